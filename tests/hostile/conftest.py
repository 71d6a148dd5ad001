"""A daemon under attack, a task that runs meanwhile, and a client that means well."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from system.private_daemon import (
    NAMES,
    RESOURCES,
    SETTINGS,
    eventually,
    opened,
)
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from system.private_daemon import PrivateDaemon

DESCRIPTORS = 1024
"""Files that the daemon may open: what a shell gives."""
MEMORY_MB = 64
GROWTH = 32 << 20
"""Bytes by which an attack may leave the daemon larger."""
MEMORY = Path("/dev/shm")  # noqa: S108  a file system in memory: nothing here is to last
SOON_S = 10.0
"""Within which a client that means well is served; on a quiet machine it takes
milliseconds (docs/reliability.md)."""

PAGE = os.sysconf("SC_PAGE_SIZE")


def descriptors(daemon: PrivateDaemon) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def resident(daemon: PrivateDaemon) -> int:
    """Bytes of memory that the daemon occupies."""
    pages = Path(f"/proc/{daemon.pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * PAGE


class Honest:
    """Asks again and again, and writes down how long it takes."""

    def __init__(self, daemon: PrivateDaemon) -> None:
        self._client = daemon.connect()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.waits: list[float] = []
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        try:
            while not self._over.wait(0.002):
                begun = time.monotonic()
                self._client.devices()
                self.waits.append(time.monotonic() - begun)
        except BaseException as error:  # noqa: BLE001  told by the test
            self.error = error

    def check(self) -> None:
        """Demand that it was always served, and soon."""
        assert self.error is None
        assert self.waits
        assert max(self.waits) < SOON_S, sorted(self.waits)[-5:]


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder in memory, where there is such a file system."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as made:
        yield Path(made)


@pytest.fixture(scope="session")
def _besieged() -> Iterator[PrivateDaemon]:
    config = f"memory_mb = {MEMORY_MB}\n{SETTINGS}{RESOURCES}"
    limit = ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"]
    with opened(config, limit) as daemon:
        yield daemon


@pytest.fixture
def daemon(_besieged: PrivateDaemon) -> Iterator[PrivateDaemon]:
    """A daemon with few descriptors and little memory; shared."""
    yield _besieged
    _besieged.give_up_tasks()
    for name in NAMES:
        _besieged.client.resume(name)


@pytest.fixture
def besieged(daemon: PrivateDaemon, tmp_path: Path) -> Iterator[PrivateDaemon]:
    """Attack this one; afterwards it is as before, and nobody has noticed."""
    before = daemon.pid
    bystander: Any = Tracing(daemon, tmp_path, gate_at=10)
    bystander.await_gate()
    files, size = descriptors(daemon), resident(daemon)
    with Honest(daemon) as honest:
        eventually(lambda: honest.waits or honest.error, "an answer")
        yield daemon
    honest.check()
    assert daemon.is_up()
    assert daemon.pid == before
    # the honest client may have come over another connection
    eventually(lambda: descriptors(daemon) <= files + 4, "descriptors as before")
    eventually(lambda: resident(daemon) < size + GROWTH, "memory as before")
    bystander.open_gate()
    bystander.check_completed()
    assert len(bystander.pids()) == 1
