"""The daemon's socket: its default path, and the reason for a failed connection.

ZeroMQ reports no errno when it cannot connect, so `probe` connects a plain socket first.
"""

from __future__ import annotations

import errno
import functools
import grp
import os
import shlex
import socket
import stat
import sys
import warnings
from pathlib import Path

from libtask.errors import DaemonUnreachableError, InputError
from libtask.user_folders import user_folder

SYSTEM_SOCKET = Path("/run/hetd/hetd.sock")
LONGEST = 107
"""Bytes in the path of a UNIX socket (`sun_path` less its final zero)."""
PATIENCE_S = 0.8
"""Seconds for a daemon with a full listen queue to accept the connection."""


def run_directory() -> Path:
    """Return this user's runtime directory for hetd; it may not exist yet.

    Raises:
        InputError: another user owns it and could place their own socket there.

    """
    import platformdirs  # a twelfth of a command's start; see also `launcher_folder`

    with warnings.catch_warnings():
        # Without XDG_RUNTIME_DIR it falls back to a folder in /tmp, which is acceptable.
        warnings.simplefilter("ignore")
        try:
            return Path(platformdirs.user_runtime_dir("hetd"))
        except PermissionError as error:
            raise InputError(str(error)) from error


def default_socket() -> Path:
    """Return the default socket.

    That is `$HETD_SOCKET`, or the socket in the user's runtime directory, or the
    system's. If neither exists, it is the user's, where a daemon would be started.
    """
    named = os.environ.get("HETD_SOCKET")
    if named:
        return Path(named)
    try:
        own = run_directory() / "hetd.sock"
    except InputError as error:
        # another user's folder does not prevent use of the system's daemon
        if not SYSTEM_SOCKET.exists():
            raise
        _note(f"{error}; using {SYSTEM_SOCKET}")
        return SYSTEM_SOCKET
    return SYSTEM_SOCKET if SYSTEM_SOCKET.exists() and not own.exists() else own


@functools.cache
def _note(text: str) -> None:
    """Write a warning to standard error, once per text."""
    sys.stderr.write(f"hetd: {text}\n")


def launcher_folder(socket: Path) -> Path:
    """Return the folder of a user's launcher for logs and records: beside a private socket.

    /run is in memory, which logs would fill: for sockets there, the folder is in the
    user's state directory.

    Raises:
        InputError: the user has no home directory.

    """
    home = socket.parent
    if home.stat().st_uid == os.getuid() and not home.is_relative_to("/run"):
        return socket.with_suffix(".launcher")
    import hashlib  # loads OpenSSL

    digest = hashlib.sha256(os.fsencode(socket)).hexdigest()[:12]
    return user_folder("state") / f"launcher-{digest}"


def check_length(path: Path) -> None:
    """Check that the kernel can bind a path.

    Raises:
        InputError: the path is too long.

    """
    length = len(os.fsencode(path))
    if length > LONGEST:
        raise InputError(
            f"socket path of {length} bytes is too long, the limit is {LONGEST}: {path}"
        )


def probe(path: Path) -> None:
    """Check that a daemon listens at `path`.

    Raises:
        DaemonUnreachableError: none does; gives the reason and a remedy.

    """
    check_length(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(PATIENCE_S)
        try:
            trial.connect(str(path))
        except OSError as error:
            text = not_a_socket(path) or _reason(path, error)
            raise DaemonUnreachableError(text) from error


def _members(path: Path) -> str:
    """Name the group that may use a socket; empty: there is none."""
    try:
        status = path.stat()
        group = grp.getgrgid(status.st_gid).gr_name
    except (OSError, KeyError):
        return ""
    return f": members of {group} may" if status.st_mode & stat.S_IWGRP else ""


def _remedy(path: Path) -> str:
    """Describe how to start a daemon at this socket."""
    if path == SYSTEM_SOCKET:
        return "an administrator starts it with `systemctl start hetd.socket`"
    try:
        default = default_socket()
    except InputError:
        default = None
    place = "" if path == default else f" --socket {shlex.quote(str(path))}"
    return f"start one with `hetctl daemon start{place}`"


def not_a_socket(path: Path) -> str:
    """Return what is wrong with a path at which there is another file; empty: nothing."""
    try:
        if stat.S_ISSOCK(path.stat().st_mode):
            return ""
    except OSError:
        return ""
    return f"{path} is not a socket; give the path of a daemon's socket"


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


def is_same_socket(one: Path, other: Path) -> bool:
    """Whether two paths are of one hetd's socket."""
    return one == other or os.path.realpath(one) == os.path.realpath(other)
