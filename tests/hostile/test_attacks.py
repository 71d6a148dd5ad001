"""One user attacks, another is served all the same, and the daemon keeps its process.

With real uids: root only. How long the honest user waits is measured by
`python -m torture attacks`, on a quiet machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from torture.attacks import ATTACKS, SharedDaemon, shared_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    os.getuid() != 0, reason="needs root: it becomes several users"
)

SECONDS = float(os.environ.get("HETD_ATTACK_SECONDS", "2"))
GROWTH = 256 << 20
"""Bytes by which an attack may make the daemon larger: ended tasks are kept in memory, of
64 MiB at most, and answers wait for their reader."""


@pytest.fixture(scope="module")
def attacked() -> Iterator[SharedDaemon]:
    with shared_daemon() as made:
        yield made


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_honest_user_is_served_beside_an_attack(
    attacked: SharedDaemon, name: str
) -> None:
    outcome = attacked.attack(name, SECONDS)

    assert outcome.same_process
    assert outcome.asked > 0
    assert len(outcome.waits) >= 10
    assert outcome.grown < GROWTH
