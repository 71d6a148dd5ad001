"""Tasks that lose their workers or resources, and late reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import a_resource, a_task
from hetsched import events as e
from hetsched.actions import Preempt, Record
from hetsched.limits import Limits
from hetsched.tasks import State
from unit.hetsched.scheduler.expected_actions import BOTH, CPU, GPU, ONE, TWO, ran

if TYPE_CHECKING:
    from builders import Start


def test_a_task_of_a_lost_worker_starts_again_in_another(a_scheduler: Start) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    node.handle(e.StripsDone(ONE, 1, 0.5))

    actions = node.handle(e.WorkerLost(ONE, 1, "killed by signal 9"))

    assert actions == [
        Record(ONE, State.QUEUED, "retried", None, "killed by signal 9"),
        *ran(ONE, 2, "cpu"),
    ]
    assert node.scheduler.system.tasks[ONE].progress == 0.0


def test_a_task_fails_when_it_loses_too_many_workers(a_scheduler: Start) -> None:
    node = a_scheduler([CPU], limits=Limits(attempts=2, stage=0))
    node.handle(a_task(1))
    node.handle(e.WorkerLost(ONE, 1, "killed"))

    actions = node.handle(e.WorkerLost(ONE, 2, "killed"))

    reason = "killed; 2 attempts are the limit"
    assert actions == [Record(ONE, State.FAILED, "failed", "cpu", reason)]


@pytest.mark.parametrize(
    "late",
    [
        e.StripsDone(ONE, 1, 0.9),
        e.TaskYielded(ONE, 1, 0.9),
        e.TaskFinished(ONE, 1),
        e.TaskFailed(ONE, 1, "late"),
        e.TaskAborted(ONE, 1),
        e.WorkerLost(ONE, 1, "late"),
    ],
)
@pytest.mark.parametrize("rebound", [True, False])
def test_reports_of_an_older_binding_change_nothing(
    a_scheduler: Start,
    late: e.Event,
    rebound: bool,  # noqa: FBT001  drawn by name
) -> None:
    node = a_scheduler([CPU])
    node.handle(a_task(1))
    if not rebound:  # it waits without a worker, still with its last epoch
        node.handle(e.ResourceDrained("cpu"))
    node.handle(e.WorkerLost(ONE, 1, "killed"))
    before = node.scheduler.system.tasks[ONE].state

    assert node.handle(late) == []
    assert node.scheduler.system.tasks[ONE].state is before
    assert node.scheduler.system.tasks[ONE].progress == 0.0


# ---------------------------------------------------------------- failures


def test_a_task_that_fails_on_one_resource_tries_another(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))

    retried = node.handle(e.TaskFailed(ONE, 1, "does not compile", elsewhere=True))
    failed = node.handle(e.TaskFailed(ONE, 2, "out of memory", elsewhere=True))

    assert retried == [
        Record(ONE, State.QUEUED, "retried", None, "does not compile"),
        *ran(ONE, 2, "cpu"),
    ]
    why = "failed on 2 resources: gpu0: does not compile; cpu: out of memory"
    assert failed == [Record(ONE, State.FAILED, "failed", "cpu", why)]


def test_a_task_that_fails_where_its_owner_moved_it_goes_back(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(e.TaskMoved(ONE, "cpu"))
    node.handle(e.TaskYielded(ONE, 1, 0.5))

    actions = node.handle(e.TaskFailed(ONE, 1, "no memory", elsewhere=True))

    assert actions == [
        Record(ONE, State.QUEUED, "retried", None, "no memory"),
        *ran(ONE, 2, "gpu0"),
    ]


def test_a_failed_task_waits_for_a_drained_resource(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(e.ResourceDrained("cpu"))

    waits = node.handle(e.TaskFailed(ONE, 1, "no memory", elsewhere=True))
    runs = node.handle(e.ResourceReturned("cpu"))

    assert waits == [Record(ONE, State.QUEUED, "retried", None, "no memory")]
    assert runs == ran(ONE, 2, "cpu")


def test_a_restart_on_another_resource_is_not_a_move(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(e.TaskFailed(ONE, 1, "does not compile", elsewhere=True))

    task = node.scheduler.system.tasks[ONE]
    assert task.came_from is None


# ---------------------------------------------------------------- resources


def test_tasks_of_a_lost_resource_go_elsewhere(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(a_task(2))

    lost = node.handle(e.ResourceLost("gpu0", "fell off the bus"))
    yielded = node.handle(e.TaskYielded(ONE, 1, 0.5))

    assert lost == [Preempt(ONE, 1), *ran(TWO, 2, "cpu")]
    assert yielded == [
        Record(ONE, State.PREEMPTED, "preempted"),
        Record(ONE, State.PREEMPTED, "placed", "cpu"),
    ]


def test_a_task_that_cannot_yield_runs_on_where_a_resource_is_lost(
    a_scheduler: Start,
) -> None:
    """It is elsewhere only after its worker: two would have its effects twice."""
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1, preemptible=False))

    lost = node.handle(e.ResourceLost("gpu0", "fell off the bus"))
    gone = node.handle(e.WorkerLost(ONE, 1, "reached no checkpoint"))

    assert lost == []
    assert gone == [
        Record(ONE, State.QUEUED, "retried", None, "reached no checkpoint"),
        *ran(ONE, 2, "cpu"),
    ]


def test_a_task_that_can_run_nowhere_else_runs_on(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1, resources=["gpu0"]))
    node.handle(a_task(2, resources=["gpu0"]))

    lost = node.handle(e.ResourceLost("gpu0"))
    gone = node.handle(e.WorkerLost(ONE, 1, "killed"))
    back = node.handle(e.ResourceReturned("gpu0"))

    assert lost == [Record(TWO, State.QUEUED, "unplaced")]
    assert gone == [Record(ONE, State.QUEUED, "retried", None, "killed")]
    assert back == [
        *ran(ONE, 2, "gpu0"),
        Record(TWO, State.QUEUED, "placed", "gpu0"),
    ]


def test_a_drained_resource_sends_its_tasks_away(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(a_task(2))

    drained = node.handle(e.ResourceDrained("gpu0"))
    node.handle(e.TaskFinished(TWO, 2))
    yielded = node.handle(e.TaskYielded(ONE, 1, 0.5))

    assert drained == [Preempt(ONE, 1), *ran(TWO, 2, "cpu")]
    assert yielded == [
        Record(ONE, State.PREEMPTED, "preempted"),
        *ran(ONE, 1, "cpu"),
    ]
    assert node.scheduler.system.tasks[ONE].came_from == "gpu0"


def test_a_preempted_task_without_a_destination_waits_first(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(a_task(2, resources=["cpu"]))
    node.handle(a_task(3, resources=["cpu"]))
    node.handle(e.ResourceDrained("gpu0"))
    node.handle(e.TaskYielded(ONE, 1, 0.5))

    actions = node.handle(e.TaskFinished(TWO, 2))

    assert actions[1:] == ran(ONE, 1, "cpu")


@pytest.mark.parametrize("out", [e.ResourceDrained("gpu0"), e.ResourceLost("gpu0")])
def test_a_task_that_is_leaving_is_not_redirected(
    a_scheduler: Start, out: e.Event
) -> None:
    gpus = [a_resource("gpu", "gpu0"), a_resource("gpu", "gpu1")]
    node = a_scheduler([CPU, *gpus], {"any": {"cpu": 9.0, "gpu0": 1.0, "gpu1": 2.0}})
    node.handle(a_task(1))
    node.handle(e.TaskMoved(ONE, "cpu"))

    assert node.handle(out) == []
    assert node.handle(e.TaskYielded(ONE, 1, 0.5))[1:] == ran(ONE, 1, "cpu")
