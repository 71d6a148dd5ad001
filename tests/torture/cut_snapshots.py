"""The effect of power cuts on snapshots; the other subject of `powercuts` is the store."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from libtask.messages import CheckpointRecord
from libtask.snapshots import Identity, Snapshot, SnapshotFolder, pack
from libtask.task import Task

if TYPE_CHECKING:
    import random

    from torture.powercuts import Outcome

ACK = struct.Struct("qq")
"""Task and strip that a snapshot on the disk holds, as it was said."""
TASK = 1
OWNER = Identity("1-1", TASK, "cut", "1")
LARGEST = 200_000
"""Numbers of a state: some snapshots take long to write, some do not."""


@dataclass
class Filled(Task):
    """Its numbers are all that of its strip, so that a mixture shows."""

    data: Any = None


def _unforced(fd: Any) -> None:
    """Do not wait for the disk."""


def write(place: Path, writer: int, draw: random.Random, *, careless: bool) -> None:
    """Write snapshots until killed; report each one that is durable."""
    try:
        if careless:
            os.fsync = _unforced  # a bug, sown on purpose
        folder = _folder(place)
        found, _ = folder.newest(OWNER)
        strip = found.checkpoint.done if found else 0
        while True:
            strip += 1
            task = Filled(np.full(draw.randint(1, LARGEST), strip))
            record = CheckpointRecord(strip)
            folder.write(Snapshot(OWNER, 1, 0.0, record, pack(task)))
            os.write(writer, ACK.pack(TASK, strip))
    finally:
        os._exit(0)  # whatever happened: the disk is gone


def compare(place: Path, durable: dict[int, int], outcome: Outcome) -> None:
    """Read as a worker would; count what is missing or older than told, or not whole."""
    found, refused = _folder(place).newest(OWNER)
    outcome.refusals += [str(each) for each in refused]
    strip = found.checkpoint.done if found else 0
    if found is not None and not (found.packed.arrays[0] == strip).all():
        outcome.refusals.append(f"strip {strip}: a mixture")
    outcome.lost += strip < durable.get(TASK, 0)
    durable.clear()
    durable[TASK] = strip


def _folder(place: Path) -> SnapshotFolder:
    return SnapshotFolder(place / "snapshots" / OWNER.name, 1 << 30)
