"""From a fork of the launcher to a worker: what must be left behind, what renewed."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from libtask.faultpoints import reach
from libtask.worker.worker import Worker

if TYPE_CHECKING:
    from libtask.worker.worker import Terms


def be_worker(terms: Terms) -> NoReturn:
    """Turn this process, just forked, into a worker; it ends here.

    The launcher's objects stay untouched on the stack: they belong to sockets and
    threads that are not in this process.
    """
    status = 1
    try:
        _leave_launcher(terms.log)
        reach("worker.forked")
        Worker(terms).run()
        status = 0
    except BaseException:  # noqa: BLE001  nothing may return into the launcher's code
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status)


def _leave_launcher(log: str) -> None:
    os.setsid()  # a group of its own, so that what a task starts dies with its worker
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect(log)
    _close_inherited()
    # Otherwise every worker would draw the same numbers; `random` sees to itself.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    faulthandler.enable()


def _redirect(log: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    output = os.open(log, flags, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def _close_inherited() -> None:
    """Close the launcher's lock and sockets; the standard three stay."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        if descriptor > 2:  # noqa: PLR2004  standard error is the last to stay
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(descriptor)
