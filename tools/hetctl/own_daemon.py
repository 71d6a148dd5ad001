"""A daemon of the user's own: where its files lie, and how it is started."""

from __future__ import annotations

from pathlib import Path

from hetctl.output import say
from libtask.daemon.process import DaemonFiles, DaemonProcess
from libtask.endpoint import (
    SYSTEM_SOCKET,
    check_length,
    default_socket,
    probe,
    run_directory,
)
from libtask.errors import DaemonUnreachableError, HetError

SLOW_START_S = 30.0
"""Seconds that a daemon may take to come up: it asks the drivers first."""
SYSTEM_STATE = Path("/var/lib/hetd")
"""Where the system's daemon keeps its state."""


def socket_place(socket: Path | None) -> Path:
    """Return where the daemon's socket is to be, in a folder that is there."""
    path = (socket or default_socket()).absolute()
    check_length(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def state_of(socket: Path) -> Path:
    """Keep the state of a private daemon beside its socket, so that no two share one."""
    import platformdirs

    if socket == SYSTEM_SOCKET:
        return SYSTEM_STATE
    if socket.parent == run_directory():
        return Path(platformdirs.user_state_dir("hetd"))
    return socket.with_name(socket.name + ".state")


def listens(path: Path) -> bool:
    """Whether a daemon listens at this socket."""
    try:
        probe(path)
    except DaemonUnreachableError:
        return False
    return True


def daemon_at(
    path: Path, state: Path, config: Path | None = None, policy: str | None = None
) -> DaemonProcess:
    """Describe a daemon that is to be started; its log lies beside its state."""
    files = DaemonFiles(path, state, state / "hetd.log", config)
    return DaemonProcess(files, policy or "")


def bring_up(daemon: DaemonProcess, timeout: float) -> None:
    """Start a daemon that stays.

    Raises:
        HetError: it does not answer in so many seconds; says why, or where that stands.

    """
    daemon.files.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        daemon.start(timeout)
    except DaemonUnreachableError as error:
        raise HetError(f"{error} (see {daemon.files.log})") from error


def ensure_started(socket: Path | None) -> None:
    """Start a daemon with the defaults where none answers, and say so."""
    path = socket_place(socket)
    if not listens(path):
        bring_up(daemon_at(path, state_of(path)), SLOW_START_S)
        say(f"started a daemon at {path}; hetctl daemon stop ends it", err=True)
