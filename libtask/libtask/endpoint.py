"""The daemon's socket: where it is by default, and why nobody answers there.

ZeroMQ gives no errno when it cannot connect, so `probe` asks the kernel first.
"""

from __future__ import annotations

import errno
import functools
import grp
import hashlib
import os
import shlex
import socket
import stat
import sys
import warnings
from pathlib import Path

import platformdirs

from libtask.errors import DaemonUnreachableError, InputError

SYSTEM_SOCKET = Path("/run/hetd/hetd.sock")
LONGEST = 107
"""Bytes in the path of a UNIX socket (`sun_path` less its final zero)."""
PATIENCE_S = 0.8
"""How long a daemon may take to let somebody in whose queue of newcomers is full."""


def run_directory() -> Path:
    """Return this user's runtime directory for hetd; it may not exist yet.

    Raises:
        InputError: it is another user's, who could put a socket of his own there.

    """
    with warnings.catch_warnings():
        # Without XDG_RUNTIME_DIR it falls back to a folder in /tmp, which serves.
        warnings.simplefilter("ignore")
        try:
            return Path(platformdirs.user_runtime_dir("hetd"))
        except PermissionError as error:
            raise InputError(str(error)) from error


def default_socket() -> Path:
    """Return the socket that is meant when none is given.

    That is `$HETD_SOCKET`, else the one in the user's runtime directory, else the
    system's. Where neither exists, it is the user's: there one would be started.
    """
    named = os.environ.get("HETD_SOCKET")
    if named:
        return Path(named)
    try:
        own = run_directory() / "hetd.sock"
    except InputError as error:
        # somebody else's folder keeps nobody from the system's daemon
        if not SYSTEM_SOCKET.exists():
            raise
        _note(f"{error}; using {SYSTEM_SOCKET}")
        return SYSTEM_SOCKET
    return SYSTEM_SOCKET if SYSTEM_SOCKET.exists() and not own.exists() else own


@functools.cache
def _note(text: str) -> None:
    """Tell a user something on standard error, once."""
    sys.stderr.write(f"hetd: {text}\n")


def launcher_folder(socket: Path) -> Path:
    """Return where a user's launcher keeps logs and records: beside a private socket.

    Sockets below /run lie in memory, and logs would fill it: they go to the user's
    state directory.
    """
    home = socket.parent
    if home.stat().st_uid == os.getuid() and not home.is_relative_to("/run"):
        return socket.with_suffix(".launcher")
    digest = hashlib.sha256(os.fsencode(socket)).hexdigest()[:12]
    return platformdirs.user_state_path("hetd") / f"launcher-{digest}"


def check_length(path: Path) -> None:
    """Refuse a path that the kernel cannot bind.

    Raises:
        InputError: the path is too long.

    """
    length = len(os.fsencode(path))
    if length > LONGEST:
        raise InputError(
            f"socket path of {length} bytes is too long, the limit is {LONGEST}: {path}"
        )


def probe(path: Path) -> None:
    """Check that something listens at `path`.

    Raises:
        DaemonUnreachableError: nothing does; says why and what to do.

    """
    check_length(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(PATIENCE_S)
        try:
            trial.connect(str(path))
        except OSError as error:
            raise DaemonUnreachableError(_reason(path, error)) from error


def _members(path: Path) -> str:
    """Say who may use a socket, where a group may."""
    try:
        status = path.stat()
        group = grp.getgrgid(status.st_gid).gr_name
    except (OSError, KeyError):
        return ""
    return f": members of {group} may" if status.st_mode & stat.S_IWGRP else ""


def _remedy(path: Path) -> str:
    """Say how a daemon is started at this very socket."""
    if path == SYSTEM_SOCKET:
        return "an administrator starts it with `systemctl start hetd.socket`"
    try:
        default = default_socket()
    except InputError:
        default = None
    place = "" if path == default else f" --socket {shlex.quote(str(path))}"
    return f"start one with `hetctl daemon start{place}`"


def _reason(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"daemon absent: there is no socket {path}; {_remedy(path)}"
    if error.errno == errno.ECONNREFUSED:
        told = f"connection refused: no daemon runs at {path} any more"
        return f"{told}; {_remedy(path)}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"no permission to use {path}{_members(path)}; ask its owner, or start"
            " your own daemon with `hetctl daemon start --socket PATH`"
        )
    if isinstance(error, TimeoutError) or error.errno == errno.EAGAIN:
        return f"no answer: the daemon at {path} lets nobody in; it hangs or is flooded"
    return f"cannot connect to {path}: {error.strerror or error}; {_remedy(path)}"
