"""The order in which a snapshot comes to the disk: data, name, folder; then old ones go.

A kill cannot tell whether data was forced to the disk, only a power cut can; the order
of the calls does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from libtask.messages import CheckpointRecord
from libtask.snapshots import Identity, Packed, Snapshot, SnapshotFolder

if TYPE_CHECKING:
    import pytest

OWNER = Identity("1-a", 1, "app", "1")


def _snapshot(done: int) -> Snapshot:
    packed = Packed(b"", [np.zeros(4)], ["state"])
    return Snapshot(OWNER, 1, 0.0, CheckpointRecord(done, 9), packed)


def test_data_is_forced_before_the_name_and_the_name_before_older_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SnapshotFolder(tmp_path / "1-a", 1 << 20)
    for done in range(2):
        folder.write(_snapshot(done))
    steps: list[str] = []

    def spied(name: str, tell: Any) -> None:
        real = getattr(os, name)

        def call(*words: Any, **named: Any) -> Any:
            steps.append(tell(*words))
            return real(*words, **named)

        monkeypatch.setattr(os, name, call)

    spied("fsync", lambda descriptor: f"force {_name(descriptor)}")
    spied("rename", lambda source, to: f"name {source} {to}")
    spied("unlink", lambda path: f"remove {path}")

    folder.write(_snapshot(2))

    first, third = (f"{1:016x}-{serial:08d}.snapshot" for serial in (0, 2))
    draft = f".{third}.new"
    assert steps == [
        f"remove {draft}",  # of one that was killed in the middle: there is none
        f"force {draft}",
        f"name {draft} {third}",
        "force 1-a",
        f"remove {first}",
    ]


def _name(descriptor: int) -> str:
    return Path(f"/proc/self/fd/{descriptor}").readlink().name
