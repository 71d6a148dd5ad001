"""Snapshots: a task's checkpoint on disk with what its strips changed.

`state` takes a task's attributes apart and puts them back, `file` writes and checks
one snapshot, `folder` keeps the generations of one task, `pace` says when the next one
is worth its time. Workers use them; they know nothing of sockets or daemons.
"""

from libtask.snapshots.file import Identity, Snapshot, SnapshotError
from libtask.snapshots.folder import Refused, SnapshotFolder
from libtask.snapshots.interval import SnapshotInterval
from libtask.snapshots.state import Packed, pack, put_back

__all__ = [
    "Identity",
    "Packed",
    "Refused",
    "Snapshot",
    "SnapshotError",
    "SnapshotFolder",
    "SnapshotInterval",
    "pack",
    "put_back",
]
