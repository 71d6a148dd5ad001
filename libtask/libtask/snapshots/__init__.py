"""Snapshots: a task's checkpoint on disk with what its strips changed.

`state` packs and restores a task's attributes, `file` writes and checks one snapshot,
`folder` stores the generations of one task, `interval` determines when the next one is
due, `transfer` copies them from one hetd to another. Workers use them; they do not use
sockets or daemons.
"""

from libtask.snapshots.file import (
    Identity,
    Snapshot,
    SnapshotError,
    SnapshotSummary,
)
from libtask.snapshots.folder import Refused, SnapshotFolder
from libtask.snapshots.interval import SnapshotInterval
from libtask.snapshots.state import Packed, other_with, pack, put_back
from libtask.snapshots.transfer import adopt, export

__all__ = [
    "Identity",
    "Packed",
    "Refused",
    "Snapshot",
    "SnapshotError",
    "SnapshotFolder",
    "SnapshotInterval",
    "SnapshotSummary",
    "adopt",
    "export",
    "other_with",
    "pack",
    "put_back",
]
