"""The lock on a state directory: one process at a time writes to it."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

from hetd.store.errors import refusal
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

PASSING = (
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
)
"""Errors of the disk, and not of the arguments."""


def lock(state: Path) -> int:
    """Take the lock, which lasts as long as the descriptor that is returned.

    Raises:
        InputError: another process has it, or there can be no such directory.
        StoreError: it cannot be written, now.

    """
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(state / "lock", flags, 0o600)
        if os.geteuid() == 0:  # root restores for the daemon's user, who locks it next
            owner = state.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except OSError as error:
        if error.errno in PASSING:
            what = f"the directory cannot be written: {error.strerror}"
            raise refusal(state, what, "make it writable") from error
        raise InputError(f"state directory {state}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise InputError(f"another hetd uses the state directory {state}") from error
    return descriptor


def is_locked(state: Path) -> bool:
    """Whether a daemon runs on a state directory; one that we may not read counts."""
    try:
        descriptor = os.open(state / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
