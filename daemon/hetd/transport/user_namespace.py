"""Strangers: users that the kernel cannot tell us apart.

In a user namespace (`PrivateUsers=`, a container), all users that it does not know look
like one. That one must be nobody: each would see and touch the others' tasks.
"""

from __future__ import annotations

from pathlib import Path

ALL_UIDS = 2**32 - 1
"""How many there are: the last one means none."""


def shared_uid(uid_map: str, overflow_uid: str) -> int | None:
    """Return the uid as which several users may appear; None: each has his own.

    Args:
        uid_map: lines of (first uid in here, first outside, how many).
        overflow_uid: the kernel's word for whom it cannot name.

    """
    known = sum(int(line.split()[2]) for line in uid_map.splitlines())
    return None if known >= ALL_UIDS else int(overflow_uid)


def our_shared_uid() -> int | None:
    """Return that of the user namespace that we are in."""
    uid_map = Path("/proc/self/uid_map").read_text(encoding="ascii")
    overflow = Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii")
    return shared_uid(uid_map, overflow)
