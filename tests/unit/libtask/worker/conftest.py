"""A worker for each test, welcomed or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.messages import Register
from unit.libtask.worker.played_worker import Played

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    played = Played(tmp_path)
    yield played
    played.close()


@pytest.fixture
def worker(played: Played) -> Played:
    hello = played.daemon.greet(interval_ns=1_000_000)
    assert hello == Register(role="worker", pid=played.process.pid, worker="w1")
    return played
