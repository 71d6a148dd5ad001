"""A private daemon: the paths of its files, and how to start it."""

from __future__ import annotations

from pathlib import Path

from hetctl.output import say
from libtask.daemon.process import DaemonFiles, DaemonProcess
from libtask.endpoint import (
    SYSTEM_SOCKET,
    check_length,
    default_socket,
    not_a_socket,
    probe,
    run_directory,
)
from libtask.errors import DaemonUnreachableError, HetError, InputError
from libtask.user_folders import user_folder

SLOW_START_S = 30.0
"""Seconds that a daemon may take to start: it queries the drivers first."""
SYSTEM_STATE = Path("/var/lib/hetd")
"""State folder of the system's daemon."""


def socket_place(socket: Path | None) -> Path:
    """Return the path of the daemon's socket; create its folder if necessary.

    Raises:
        InputError: the path is too long for a socket, or that of another file.
        UnicodeEncodeError: it is not UTF-8, as clients have to be told it.

    """
    path = (socket or default_socket()).absolute()
    str(path).encode()
    check_length(path)
    if other := not_a_socket(path):
        raise InputError(other)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def state_of(socket: Path) -> Path:
    """Return the state folder: beside a private daemon's socket, so that no two share one.

    Raises:
        InputError: the user has no home directory, which has the folder by default.

    """
    if socket == SYSTEM_SOCKET:
        return SYSTEM_STATE
    if socket.parent == run_directory():
        try:
            return user_folder("state")
        except InputError as error:
            raise InputError(f"{error}, or give --state FOLDER") from error
    return socket.with_name(socket.name + ".state")


def listens(path: Path) -> bool:
    """Return whether a daemon listens at this socket."""
    try:
        probe(path)
    except DaemonUnreachableError:
        return False
    return True


def daemon_at(
    path: Path, state: Path, config: Path | None = None, policy: str | None = None
) -> DaemonProcess:
    """Describe a daemon to start; its log is in its state folder."""
    files = DaemonFiles(path, state, state / "hetd.log", config)
    return DaemonProcess(files, policy or "")


def bring_up(daemon: DaemonProcess, timeout: float) -> None:
    """Start a daemon that keeps running.

    Raises:
        HetError: it does not answer within the timeout; the text has the reason, or the
            path of the log.

    """
    daemon.files.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        daemon.start(timeout)
    except DaemonUnreachableError as error:
        raise HetError(f"{error} (see {daemon.files.log})") from error


def ensure_started(socket: Path | None) -> None:
    """Start a daemon with the defaults if none answers, and report it."""
    path = socket_place(socket)
    if not listens(path):
        bring_up(daemon_at(path, state_of(path)), SLOW_START_S)
        say(f"started a daemon at {path}; hetctl daemon stop stops it", err=True)
