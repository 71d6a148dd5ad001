"""Requests of many tasks while there is little memory, and after it was used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Client
from libtask.messages import TaskSpec
from system.private_daemon import RESOURCES, SETTINGS, PrivateDaemon, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY_MB = 16
MANY = 20_000
"""Tasks that take more memory than `MEMORY_MB` while they wait."""


@pytest.fixture
def small() -> Iterator[PrivateDaemon]:
    with opened(f"memory_mb = {MEMORY_MB}\n{SETTINGS}{RESOURCES}") as daemon:
        yield daemon


def test_memory_of_ended_tasks_is_there_for_others(small: PrivateDaemon) -> None:
    spec = TaskSpec("app", hold=True)
    with Client(small.socket, patience=10.0) as client:
        for _ in range(3):
            tasks = client.submit_specs([spec] * MANY)
            assert len(client.cancel(*(task.id for task in tasks))) == MANY
