"""A fake daemon that commands connect to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.fake_daemon import FakeDaemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "s")
    monkeypatch.setenv("HETD_SOCKET", str(fake.path))
    yield fake
    fake.close()
