"""A private daemon that runs during a `with` block, for tests and users' programs."""

from __future__ import annotations

import os
import shutil
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
"""Maximum bytes of a socket's path: the kernel allows 107, other files need longer names."""
ALL = 1_000_000_000
AFTER_US = """read -r end; grep -qsF -- "$1" "/proc/$0/cmdline" && kill "$0" """
"""The pipe closes when this process ends; the pid may have been reused by then."""


@contextmanager
def private_daemon(
    config: str | Path | None = "",
    *,
    folder: str | Path | None = None,
    policy: str = "",
    patience: float = START_S,
) -> Iterator[Client]:
    """Run a private daemon, which ends with the block together with all of its tasks.

    A child that this process has forked ends nothing when it leaves the block.

    Args:
        config: text of its `hetd.toml`, or a file with it, which is copied; empty: the
            discovered resources; None: the user's own configuration.
        folder: folder of its files, which stay; None: a temporary one.
        policy: name of its policy; empty: the configured one.
        patience: timeout in seconds for its first answer.

    Yields:
        A client of the daemon, whose `path` is the socket for other clients.

    Raises:
        DaemonUnreachableError: it does not start; ends with the last lines of its log.
        OSError: the file cannot be read.

    """
    if isinstance(config, Path):
        config = config.read_text(encoding="utf-8")
    process = os.getpid()
    with ExitStack() as parts:
        home = _temporary(parts) if folder is None else Path(folder).absolute()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = DaemonFiles.within(home, config)
        files = replace(files, socket=_reachable(files.socket, parts))
        # detached from Ctrl-C: the daemon must still run while its tasks are cancelled
        daemon = DaemonProcess(files, policy, detached=True)
        parts.callback(_end, daemon)
        try:
            daemon.start(patience)
        except DaemonUnreachableError as error:
            if folder is None:
                raise
            raise DaemonUnreachableError(f"{error} (see {files.log})") from error
        parts.enter_context(_guarded(daemon))
        try:
            yield parts.enter_context(Client(files.socket))
        finally:
            if os.getpid() != process:
                parts.pop_all()


def _temporary(parts: ExitStack) -> Path:
    # not `TemporaryDirectory`, which a child of this process would remove at its exit
    folder = tempfile.mkdtemp(prefix="hetd-")
    parts.callback(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _reachable(socket: Path, parts: ExitStack) -> Path:
    """Return the socket's path, or a temporary one if it is too long."""
    if len(os.fsencode(socket)) <= LONGEST_SOCKET:
        return socket
    return _temporary(parts) / socket.name


@contextmanager
def _guarded(daemon: DaemonProcess) -> Iterator[None]:
    """End the daemon if this process is killed first."""
    ours = [str(daemon.pid), str(daemon.files.socket)]
    guard = subprocess.Popen(  # noqa: S603  fixed arguments
        ["/bin/sh", "-c", AFTER_US, *ours],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() == process:  # not a child in which this generator is garbage
            guard.kill()
            guard.communicate()


def _end(daemon: DaemonProcess) -> None:
    """End the daemon, its launcher and workers; kill the remaining processes."""
    try:
        if daemon.is_up():
            _end_in_order(daemon)
    finally:  # also where the above is interrupted
        if daemon.is_up():
            daemon.kill()
        kill_with_descendants(launcher_processes(daemon.files.socket))


def _end_in_order(daemon: DaemonProcess) -> None:
    socket = daemon.files.socket
    with suppress(HetError):  # it has exited meanwhile
        _give_up_tasks(socket)
    # a launcher that has just started must register before hetd can retire it
    _wait_until(
        lambda: (
            not daemon.is_up()
            or not launcher_processes(socket)
            or _has_launcher(socket)
        )
    )
    daemon.end()
    if daemon.wait() >= 0:  # a killed one has retired nobody
        _wait_until(lambda: not launcher_processes(socket))


def _give_up_tasks(socket: Path) -> None:
    """Cancel all unfinished tasks and wait for their end."""
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
    """Poll a condition until it holds or the timeout has passed."""
    deadline = time.monotonic() + END_S
    while not look() and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
