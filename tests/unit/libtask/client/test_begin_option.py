"""The keyword `begin` of a submission."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Client
from libtask.messages import Submit

if TYPE_CHECKING:
    from unit.fake_daemon import FakeDaemon


@pytest.mark.parametrize(
    "begin", [1893553440.0, datetime(2030, 1, 2, 3, 4, tzinfo=UTC)]
)
def test_a_begin_is_a_number_or_a_date(
    daemon: FakeDaemon, begin: float | datetime
) -> None:
    with Client(daemon.path) as client:
        client.submit("synthetic", {"seconds": {"cpu": 1.0}}, begin=begin)

    (task,) = daemon.requests(Submit)[0].tasks
    assert task.begin == 1893553440.0
