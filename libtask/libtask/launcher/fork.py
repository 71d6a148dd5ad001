"""From a fork of the launcher to a worker: what must be left behind, what renewed."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from libtask.launcher.cgroups import enter
from libtask.phase import own_page
from libtask.processes import become_subreaper
from libtask.worker.cleanup import TaskCleanup
from libtask.worker.worker import Worker

if TYPE_CHECKING:
    from libtask.worker.options import WorkerOptions


def run_worker(options: WorkerOptions, group: Path | None) -> NoReturn:
    """Turn this process, just forked, into a worker; it ends here.

    Args:
        terms: what it is told.
        group: the control group that it enters with all that it will start.

    The launcher's objects stay untouched on the stack: they belong to sockets and
    threads that are not in this process.
    """
    status = 1
    try:
        _leave_launcher(options, group)
        Worker(options, end_processes=TaskCleanup().end_processes).run()
        status = 0
    except BaseException:  # noqa: BLE001  nothing may return into the launcher's code
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status)


def _leave_launcher(options: WorkerOptions, group: Path | None) -> None:
    os.setsid()  # a group of its own, which signals reach as a whole
    become_subreaper()  # what its tasks orphan stays below it, to be found
    if group is not None:
        enter(group)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect(options.log)
    _close_inherited()
    if options.page is not None:
        own_page.write_to(options.page)
    if options.processes:
        _limit_processes(options.processes)
    # Otherwise every worker would draw the same numbers; `random` sees to itself.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    faulthandler.enable()


def _redirect(log: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        output = os.open(log, flags, 0o600)
    except OSError as error:
        # A task can do without a log; the launcher's own says why there is none.
        sys.stderr.write(f"libtask: {log}: {error.strerror}; no output is kept\n")
        sys.stderr.flush()
        output = os.open(os.devnull, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def _limit_processes(number: int) -> None:
    """Bound the processes and threads of this user, counted over the whole machine."""
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    allowed = number if most == resource.RLIM_INFINITY else min(number, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (allowed, allowed))


def _close_inherited() -> None:
    """Close the launcher's lock and sockets; the standard three stay."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        if descriptor > 2:  # noqa: PLR2004  standard error is the last to stay
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(descriptor)
