"""Tracebacks that begin in the user's code."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path

_RUNTIME = str(Path(__file__).parent) + os.sep
_STANDARD = (sysconfig.get_path("stdlib") + os.sep, "<frozen ")
"""Beginnings of the names of files of the standard library; packages may lie below."""
_PACKAGES = ("site-packages", "dist-packages")


def formatted(error: BaseException) -> str:
    """Return the traceback of an exception without the runtime's frames that lead to the app.

    It is whole if no frame is the app's. An exception whose `__str__` raises is formatted too.
    """
    report = traceback.TracebackException.from_exception(error)
    places = (frame.filename for frame in report.stack)
    outside = (i for i, name in enumerate(places) if not name.startswith(_RUNTIME))
    del report.stack[: next(outside, 0)]
    return "".join(report.format())


def is_of_app(error: BaseException) -> bool:
    """Return whether code of the app raised an exception, or what caused it."""
    report: traceback.TracebackException | None
    report = traceback.TracebackException.from_exception(error)
    while report is not None:
        if any(is_apps_file(frame.filename) for frame in report.stack):
            return True
        hidden = None if report.__suppress_context__ else report.__context__
        report = report.__cause__ or hidden
    return False


def is_apps_file(file: str) -> bool:
    """Return whether a file is neither of the runtime nor of the standard library."""
    standard = file.startswith(_STANDARD) and not any(n in file for n in _PACKAGES)
    return not standard and not file.startswith(_RUNTIME)
