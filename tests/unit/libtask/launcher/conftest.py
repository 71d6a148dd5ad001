"""A launcher for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.messages import Register
from unit.libtask.launcher.played_launcher import Played

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Played]:
    played = Played(tmp_path)
    hello = played.daemon.greet()
    assert hello == Register(role="launcher", pid=played.process.pid)
    yield played
    played.close()
