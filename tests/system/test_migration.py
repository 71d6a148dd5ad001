"""Running tasks move between resources, and lose nothing on the way."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from libtask.errors import InputError, NotFoundError
from libtask.messages import Sample
from system.private_daemon import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon
    from system.tracing import Tracing

    Submit = Callable[..., Tracing]


@pytest.mark.parametrize(("start", "destination"), [*permutations(NAMES, 2)])
def test_a_task_moves_in_the_middle(
    daemon: PrivateDaemon, trace: Submit, start: str, destination: str
) -> None:
    task = trace(gate_at=10, resources=[start])
    task.await_gate()

    daemon.client.migrate(task.id, destination)
    task.open_gate()

    task.check_completed()
    assert task.resources() == [start, destination]
    assert len(task.pids()) == 1, "a preempted task keeps its worker"
    info = daemon.info(task.id)
    assert (info.migrations, info.resource, info.progress) == (1, destination, 1.0)
    first, second = info.segments
    assert [first.resource, second.resource] == [start, destination]
    assert first.strips >= 11
    assert second.strips >= 1
    assert first.strips + second.strips == 20
    assert first.finish is not None
    assert second.finish is not None
    assert info.started == first.start < first.finish <= second.start < second.finish
    assert second.finish <= (info.finished or 0.0)


def test_a_moved_task_stays_though_the_policy_prefers_where_it_was(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    daemon.client.policy("migration", minimum_run_s=0.0)
    fast, slow = (Sample("traced:Traced/traced", n, s) for n, s in FAST_AND_SLOW)
    daemon.client.learn([fast, slow])
    task = trace(gate_at=3, total_strips=60, only="cpu,gpu", resources=[])
    task.await_gate()
    assert task.resources() == ["gpu0"]

    daemon.client.migrate(task.id, "cpu")
    task.open_gate()

    task.check_completed(60)
    assert task.resources() == ["gpu0", "cpu"]
    assert [s.resource for s in daemon.info(task.id).segments] == ["gpu0", "cpu"]


FAST_AND_SLOW = (("gpu0", 0.5), ("cpu", 50.0))


def test_a_task_may_move_many_times(daemon: PrivateDaemon, trace: Submit) -> None:
    task = trace(total_strips=400, resources=["cpu"])
    places = ["gpu0", "fpga0", "cpu", "fpga0", "gpu0"]

    for place in places:
        with daemon.client.watch(task.id) as changes:
            daemon.client.migrate(task.id, place)
            while (change := next(changes)).resource != place or (
                change.what != "progress"
            ):
                assert change.state not in ("completed", "failed"), change

    task.check_completed(400)
    info = daemon.info(task.id)
    assert [segment.resource for segment in info.segments] == ["cpu", *places]
    assert all(segment.strips > 0 for segment in info.segments)
    assert sum(segment.strips for segment in info.segments) == 400
    assert info.migrations == 5


def test_the_last_of_two_moves_before_a_checkpoint_counts(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=5, resources=["cpu"])
    task.await_gate()

    daemon.client.migrate(task.id, "gpu0")
    daemon.client.migrate(task.id, "fpga0")
    task.open_gate()

    task.check_completed()
    assert task.resources() == ["cpu", "fpga0"]


def test_a_move_taken_back_before_a_checkpoint_leaves_the_task_where_it_is(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=5, resources=["cpu"])
    task.await_gate()

    daemon.client.migrate(task.id, "gpu0")
    daemon.client.migrate(task.id, "cpu")
    task.open_gate()

    task.check_completed()
    assert task.resources() == ["cpu"]


def test_a_task_waits_for_the_busy_resource_that_it_moves_to(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    tenant = trace(gate_at=5, resources=["gpu0"])
    tenant.await_gate()
    task = trace(gate_at=5, resources=["cpu"])
    task.await_gate()

    daemon.client.migrate(task.id, "gpu0")
    task.open_gate()
    daemon.await_state(task.id, "preempted")
    tenant.open_gate()

    tenant.check_completed()
    task.check_completed()
    assert task.resources() == ["cpu", "gpu0"]


def test_a_queued_task_moves_to_another_queue(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    tenant = trace(gate_at=5, resources=["gpu0"])
    tenant.await_gate()
    task = trace(resources=["gpu0"])

    daemon.client.migrate(task.id, "fpga0")

    task.check_completed()
    assert task.resources() == ["fpga0"]
    tenant.open_gate()
    tenant.check_completed()


def test_held_and_waiting_tasks_start_where_they_were_moved(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    first = trace(gate_at=5, resources=["cpu"])
    waiting = trace(after=[first.id], resources=["cpu"])
    held = trace(hold=True, resources=["cpu"])

    for task in (waiting, held):
        daemon.client.migrate(task.id, "fpga0")
    daemon.client.release(held.id)
    first.open_gate()

    for task in (waiting, held):
        task.check_completed()
        assert task.resources() == ["fpga0"]


def test_moves_that_cannot_be_are_refused(daemon: PrivateDaemon, trace: Submit) -> None:
    task = trace(gate_at=5, only="cpu,gpu", resources=["cpu"])
    task.await_gate()

    with pytest.raises(NotFoundError, match=r"no resource 'gpu7'.*did you mean 'gpu0'"):
        daemon.client.migrate(task.id, "gpu7")
    with pytest.raises(InputError, match=r"cannot run on fpga0.*gpu, cpu"):
        daemon.client.migrate(task.id, "fpga0")
    with pytest.raises(NotFoundError, match="no task 987654321"):
        daemon.client.migrate(987654321, "cpu")
    task.open_gate()

    task.check_completed()
    assert task.resources() == ["cpu"]
    with pytest.raises(InputError, match="is completed; it cannot be moved"):
        daemon.client.migrate(task.id, "gpu0")
