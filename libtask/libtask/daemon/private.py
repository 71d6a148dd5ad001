"""A daemon for the time of a block: for tests, benchmarks and programs of one's own."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.client.client import Client, Selection
from libtask.daemon.handshake import handshake
from libtask.daemon.launcher_processes import launcher_processes
from libtask.daemon.process import END_S, START_S, DaemonFiles, DaemonProcess
from libtask.errors import DaemonUnreachableError, HetError
from libtask.messages import ENDED
from libtask.processes import kill_with_descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAUSE_S = 0.02
LONGEST_SOCKET = 100
"""Bytes of a socket's path; the kernel takes 107, and files beside it have longer names."""
ALL = 1_000_000_000
AFTER_US = """read -r end; grep -qsF -- "$1" "/proc/$0/cmdline" && kill "$0" """
"""The pipe ends with us; the daemon's pid may be another's by then."""


@contextmanager
def private_daemon(
    config: str | None = "",
    *,
    folder: str | Path | None = None,
    policy: str = "",
    patience: float = START_S,
) -> Iterator[Client]:
    """Run a daemon of one's own: it ends with the block, and so does every task of it.

    Args:
        config: text of its `hetd.toml`; empty: the resources that are found here; None:
            as the user has configured his daemon.
        folder: for its files, which stay; None: a temporary one.
        policy: name of its policy; empty: the configured one.
        patience: seconds that it may take to answer.

    Yields:
        A client of it. Its `path` is the socket, for other clients and `HETD_SOCKET`.

    Raises:
        DaemonUnreachableError: it does not start; ends with what it said last.

    """
    with ExitStack() as parts:
        home = _temporary(parts) if folder is None else Path(folder).absolute()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = DaemonFiles.within(home, config)
        files = replace(files, socket=_reachable(files.socket, parts))
        # a Ctrl-C is for us: the daemon must be there while its tasks are given up
        daemon = DaemonProcess(files, policy, detached=True)
        parts.callback(_end, daemon)
        try:
            daemon.start(patience)
        except DaemonUnreachableError as error:
            if folder is None:
                raise
            raise DaemonUnreachableError(f"{error} (see {files.log})") from error
        parts.enter_context(_guarded(daemon))
        yield parts.enter_context(Client(files.socket))


def _temporary(parts: ExitStack) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="hetd-", ignore_cleanup_errors=True)
    return Path(parts.enter_context(folder))


def _reachable(socket: Path, parts: ExitStack) -> Path:
    """Return where the socket is to be: elsewhere where its path is too long."""
    if len(os.fsencode(socket)) <= LONGEST_SOCKET:
        return socket
    return _temporary(parts) / socket.name


@contextmanager
def _guarded(daemon: DaemonProcess) -> Iterator[None]:
    """Have the daemon ended when we are killed before we can do it."""
    ours = [str(daemon.pid), str(daemon.files.socket)]
    guard = subprocess.Popen(  # noqa: S603  our own words
        ["/bin/sh", "-c", AFTER_US, *ours],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


def _end(daemon: DaemonProcess) -> None:
    """End the daemon and its crew; who does not leave is killed."""
    socket = daemon.files.socket
    if daemon.is_up():
        with suppress(HetError):  # it went away meanwhile
            _give_up_tasks(socket)
        # one that has just been started does not know yet that it is to leave
        _wait_until(lambda: not launcher_processes(socket) or _has_launcher(socket))
        daemon.end()
        _wait_until(lambda: not launcher_processes(socket))
    kill_with_descendants(launcher_processes(socket))


def _give_up_tasks(socket: Path) -> None:
    """Cancel what has not ended, and wait for its end."""
    with Client(socket) as client:
        live = _unfinished(client, Selection(limit=ALL))
        if live:
            client.cancel(*live)
            those = Selection(ids=live)
            _wait_until(lambda: not _unfinished(client, those))


def _unfinished(client: Client, selection: Selection) -> tuple[int, ...]:
    tasks = client.iterate(selection)
    return tuple(info.id for info in tasks if info.state not in ENDED)


def _has_launcher(socket: Path) -> bool:
    welcome = handshake(socket)
    return welcome is not None and welcome.launcher


def _wait_until(look: Callable[[], bool]) -> None:
    """Look until it is so, or time is up."""
    deadline = time.monotonic() + END_S
    while not look() and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
