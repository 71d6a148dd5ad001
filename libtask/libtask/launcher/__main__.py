"""The process of a launcher: `python -m libtask.launcher --socket PATH`.

A second launcher for the same socket exits at once, unless the first one hangs. With
`--wait` it takes over when the first one has no workers any more. The
process imports what tasks need and computes nothing itself, so that a fork is a worker
within milliseconds. It never calls OpenCL and starts no thread except libzmq's own,
which forked workers do not inherit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.endpoint import launcher_folder
from libtask.launcher.cgroups import find_groups
from libtask.launcher.launcher import Launcher, Patience
from libtask.launcher.preloading import preload
from libtask.launcher.takeover import take_lock
from libtask.origin import own_interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

LOG_DAYS = 14
"""Logs that were not written to for this long are removed at the start."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the launcher; return its exit status."""
    options = _options(arguments)
    socket = options.socket.absolute()
    folder = (options.directory or launcher_folder(socket)).absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not take_lock(folder, socket, wait=options.wait):
        return 0
    _detach(folder)
    _remove_old_logs(folder / "logs")
    interpreter = own_interpreter()
    preload()
    patience = Patience(options.alone, options.idle)
    groups = find_groups(delegated=options.delegated)
    Launcher(socket, folder, patience, interpreter, groups).run()
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="libtask.launcher", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="hetd's socket")
    parser.add_argument("--directory", type=Path, help="folder of logs and records")
    patience = Patience()
    for name in ("alone", "idle"):
        parser.add_argument(
            f"--{name}", type=float, default=getattr(patience, name), help="seconds"
        )
    parser.add_argument(
        "--wait", action="store_true", help="take over from another launcher later"
    )
    parser.add_argument(
        "--delegated",
        action="store_true",
        help="make control groups for workers: its own group is delegated to it",
    )
    return parser.parse_args(arguments)


def _detach(folder: Path) -> None:
    """Detach from the terminal and the current folder."""
    with contextlib.suppress(PermissionError):  # it already leads a session
        os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(
        folder / "launcher.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    os.close(nothing)
    os.close(log)


def _remove_old_logs(folder: Path) -> None:
    limit = time.time_ns() / 1e9 - LOG_DAYS * 86_400
    for log in folder.glob("*.log"):
        if log.stat().st_mtime < limit:
            log.unlink()


if __name__ == "__main__":
    sys.exit(main())
