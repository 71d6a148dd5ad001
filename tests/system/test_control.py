"""Users hold, release and cancel their tasks, in every state that a task can be in."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from libtask.errors import NotFoundError
from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon
    from system.tracing import Tracing

    Submit = Callable[..., Tracing]


def test_a_running_task_is_held_at_its_checkpoint_and_goes_on_from_there(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=10, resources=["cpu"])
    task.await_gate()

    daemon.client.hold(task.id)
    task.open_gate()
    info = daemon.await_state(task.id, "held")
    done = task.strips()
    daemon.client.release(task.id)

    task.check_completed()
    assert info.resource is None
    assert 11 <= len(done) < 20
    assert len(task.pids()) == 1


def test_a_release_before_the_checkpoint_lets_the_task_go_on(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=10)
    task.await_gate()

    daemon.client.hold(task.id)
    daemon.client.release(task.id)
    task.open_gate()

    task.check_completed()


def test_queued_and_waiting_tasks_start_only_after_their_release(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    tenant = trace(gate_at=5, resources=["gpu0"])
    tenant.await_gate()
    queued = trace(resources=["gpu0"])
    waiting = trace(after=[tenant.id], resources=["gpu0"])

    daemon.client.hold(queued.id, waiting.id)
    tenant.open_gate()
    tenant.check_completed()
    assert daemon.info(queued.id).state == "held"
    assert daemon.info(waiting.id).state == "held"
    daemon.client.release(queued.id, waiting.id)

    queued.check_completed()
    waiting.check_completed()


def test_a_task_released_before_its_dependency_ends_waits_for_it(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    first = trace(gate_at=5)
    second = trace(hold=True, after=[first.id])

    daemon.client.release(second.id)
    assert daemon.info(second.id).state == "waiting"
    first.open_gate()

    second.check_completed()


# ---------------------------------------------------------------- cancel


def test_a_running_task_is_cancelled_at_its_checkpoint(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=10, total_strips=2000)
    task.await_gate()
    (pid,) = task.pids()

    task.handle.cancel()
    task.open_gate()

    with pytest.raises(CancelledError, match="cancelled by its owner"):
        task.handle.result(30)
    assert len(task.strips()) < 2000
    assert pid in daemon.workers(), "its worker lives on"


def test_a_cancelled_task_that_reaches_no_checkpoint_is_killed(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=0)
    task.await_gate()
    (pid,) = task.pids()

    task.handle.cancel()

    with pytest.raises(CancelledError, match="cancelled by its owner"):
        task.handle.result(30)
    eventually(lambda: pid not in daemon.processes(), "the end of the worker")
    assert daemon.info(task.id).state == "cancelled"
    trace().check_completed()


def test_tasks_that_do_not_run_are_cancelled_at_once(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    tenant = trace(gate_at=5, resources=["gpu0"])
    tenant.await_gate()
    preempted = trace(gate_at=5, resources=["cpu"])
    preempted.await_gate()
    daemon.client.migrate(preempted.id, "gpu0")
    preempted.open_gate()
    daemon.await_state(preempted.id, "preempted")
    queued = trace(resources=["gpu0"])
    waiting = trace(after=[tenant.id])
    held = trace(hold=True)
    tasks = (preempted, queued, waiting, held)
    states = [daemon.info(task.id).state for task in tasks]
    assert states == ["preempted", "queued", "waiting", "held"]

    daemon.client.cancel(*(task.id for task in tasks))

    for task in tasks:
        assert task.handle.wait(30) == "cancelled"
    tenant.open_gate()
    tenant.check_completed()
    for task in (queued, waiting, held):
        assert task.strips() == []
    assert len(preempted.strips()) < 20


def test_cancelling_twice_or_too_late_changes_nothing(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=5)
    task.await_gate()
    done = trace()
    done.check_completed()

    assert daemon.client.cancel(task.id, done.id) == [task.id]
    daemon.client.cancel(task.id)

    assert task.handle.wait(30) == "cancelled"
    assert daemon.client.cancel(task.id) == []
    assert daemon.info(done.id).state == "completed"


def test_a_request_for_a_task_that_is_not_there_changes_nothing(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=5)
    task.await_gate()

    with pytest.raises(NotFoundError, match="no task 987654321"):
        daemon.client.cancel(task.id, 987654321)
    task.open_gate()

    task.check_completed()
