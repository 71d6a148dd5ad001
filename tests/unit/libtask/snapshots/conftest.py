"""A folder of snapshots for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.snapshots import SnapshotFolder
from unit.libtask.snapshots.snapshot_tasks import LIMIT, OWNER

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> SnapshotFolder:
    return SnapshotFolder(tmp_path / "snapshots" / OWNER.name, LIMIT)
