"""A fake daemon, and a client of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Client
from unit.fake_daemon import FakeDaemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "s")
    yield fake
    fake.close()


@pytest.fixture
def client(daemon: FakeDaemon) -> Iterator[Client]:
    with Client(daemon.path, timeout=5) as made:
        yield made
