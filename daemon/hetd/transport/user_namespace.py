"""The user namespace check: finds the uid that several users share.

In a user namespace (`PrivateUsers=`, a container), all unmapped users appear under one
uid. That uid must be refused: each of them could see and change the others' tasks.
"""

from __future__ import annotations

from pathlib import Path

ALL_UIDS = 2**32 - 1
"""Number of uids: the last value means none."""


def shared_uid(uid_map: str, overflow_uid: str) -> int | None:
    """Return the uid that several users may share; None: each user has their own.

    Args:
        uid_map: lines of (first uid inside, first uid outside, number of uids).
        overflow_uid: uid that the kernel reports for unmapped users.

    """
    known = sum(int(line.split()[2]) for line in uid_map.splitlines())
    return None if known >= ALL_UIDS else int(overflow_uid)


def our_shared_uid() -> int | None:
    """Return the shared uid of the user namespace of this process."""
    uid_map = Path("/proc/self/uid_map").read_text(encoding="ascii")
    overflow = Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii")
    return shared_uid(uid_map, overflow)
