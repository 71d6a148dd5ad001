"""The fork of a worker: the child drops the launcher's state and becomes a worker."""

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

from libtask.launcher.cgroups import MemoryLimit, enter
from libtask.phase import own_page
from libtask.processes import become_subreaper
from libtask.worker.cleanup import TaskCleanup
from libtask.worker.imported_code import ImportedCode
from libtask.worker.worker import Worker

if TYPE_CHECKING:
    from libtask.origin import Origin
    from libtask.worker.options import WorkerOptions


def run_worker(
    options: WorkerOptions, group: Path | None, origin: Origin | None = None
) -> NoReturn:
    """Run a worker in this forked process, which never returns.

    Args:
        options: the worker's options.
        group: the control group that it enters, with all its descendants.
        origin: the environment that it takes on; None: it has its own.

    The launcher's objects stay unused on the stack: their sockets and threads do not
    exist in this process.
    """
    status = 1
    try:
        _leave_launcher(options, group)
        if origin is not None:
            origin.enter()
        code = ImportedCode()
        code.watch()
        # byte code is compared with its source by the second only
        sys.dont_write_bytecode = True
        Worker(
            options,
            end_processes=TaskCleanup().end_processes,
            code=code,
            limit_memory=MemoryLimit(group).set,
            interrupts=True,
        ).run()
        status = 0
    except BaseException:  # noqa: BLE001  nothing may return into the launcher's code
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status)


def _leave_launcher(options: WorkerOptions, group: Path | None) -> None:
    os.setsid()  # a process group of its own, for signals
    become_subreaper()  # orphans of its tasks become its children
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
    # Otherwise all workers would draw the same numbers; `random` reseeds itself.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    faulthandler.enable()


def _redirect(log: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        output = os.open(log, flags, 0o600)
    except OSError as error:
        # A task can run without a log; the launcher's log has the reason.
        sys.stderr.write(f"libtask: {log}: {error.strerror}; its output is discarded\n")
        sys.stderr.flush()
        output = os.open(os.devnull, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def _limit_processes(number: int) -> None:
    """Limit the processes and threads of this user, counted over the whole machine."""
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    allowed = number if most == resource.RLIM_INFINITY else min(number, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (allowed, allowed))


def _close_inherited() -> None:
    """Close the launcher's lock and sockets, but not the standard streams."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(entry.name)
        if descriptor > 2:  # noqa: PLR2004  standard error is the last to stay
            with contextlib.suppress(OSError):  # the descriptor of this listing
                os.close(descriptor)
