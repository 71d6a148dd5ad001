"""Tracebacks that begin in the user's code."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

_RUNTIME = str(Path(__file__).parent) + os.sep


def formatted(error: BaseException) -> str:
    """Return the traceback of an exception without the runtime's frames that lead to the app.

    It is whole if no frame is the app's. An exception whose `__str__` raises is formatted too.
    """
    report = traceback.TracebackException.from_exception(error)
    places = (frame.filename for frame in report.stack)
    outside = (i for i, name in enumerate(places) if not name.startswith(_RUNTIME))
    del report.stack[: next(outside, 0)]
    return "".join(report.format())
