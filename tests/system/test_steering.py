"""What users change while tasks wait and run holds from then on, also after a crash."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hetapps.synthetic import Synthetic
from libtask import InputError
from libtask.messages import ENDED
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon

import pytest

LONG = {"cpu": 600.0}


def test_a_priority_holds_after_a_crash(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon()
    client = daemon.client
    running = [client.submit(Synthetic(LONG, 6000)) for _ in range(2)]
    first, urgent = (client.submit(Synthetic({"cpu": 0.01}, 1)) for _ in range(2))
    for handle in running:
        daemon.await_state(handle.id, "running")

    assert client.amend(urgent.id, priority=7) == [urgent.id]
    client.policy("work-conserving")
    client.drain("fpga0")
    daemon.restart()

    assert daemon.info(urgent.id).priority == 7
    told = [note.what for note in daemon.client.notes()]
    assert told == ["policy-set", "drained"]
    running[0].cancel()
    for handle in (urgent, first):
        daemon.await_state(handle.id, "completed")
    starts = [daemon.info(handle.id).started or 0.0 for handle in (urgent, first)]
    assert starts == sorted(starts)


def test_a_new_deadline_stops_a_task_that_may_not_overrun(
    daemon: PrivateDaemon,
) -> None:
    client = daemon.client
    task = client.submit(Synthetic(LONG, 60_000), deadline_s=500.0, overrun="stop")
    daemon.await_state(task.id, "running")

    asked = time.monotonic()
    client.amend(task.id, deadline_s=0.2)

    ended = daemon.await_state(task.id, *ENDED)
    assert (ended.state, time.monotonic() - asked >= 0.2) == ("cancelled", True)
    assert "stopped at its deadline" in (ended.reason or "")


def test_a_deadline_taken_away_stops_nothing(daemon: PrivateDaemon) -> None:
    client = daemon.client
    task = client.submit(
        Synthetic({"cpu": 0.6}, 60), deadline_s=0.3, overrun="stop", hold=True
    )
    client.amend(task.id, no_deadline=True)
    client.release(task.id)

    assert task.wait(60) == "completed"
    assert daemon.info(task.id).deadline is None
    with pytest.raises(InputError, match="deadline: expected seconds above 0"):
        client.amend(task.id, deadline_s=-1.0)


def test_events_tell_of_the_node_where_no_task_is_named(
    daemon: PrivateDaemon,
) -> None:
    hetctl = Terminal(daemon)
    hetctl("drain", "gpu0")
    hetctl("resume", "gpu0")
    task = daemon.client.submit(Synthetic({"cpu": 0.01}, 1))
    task.wait(60)

    whole, one = hetctl("events"), hetctl("events", str(task.id))

    assert "drained: gpu0 is drained, by uid" in whole
    assert f"task {task.id} synthetic" in whole
    assert "gpu0" not in one
