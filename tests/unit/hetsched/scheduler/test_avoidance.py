"""Tasks of an application avoid a resource on which one of them crashed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import a_resource, a_task
from hetsched import events as e
from hetsched.actions import KeepCircuit, Record, Run
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.planning.explain import explain
from hetsched.tasks import State, TaskRuntime
from unit.hetsched.scheduler.expected_actions import BOTH, CPU, GPU, ONE, TWO, ran

if TYPE_CHECKING:
    from builders import Harness, Start
    from hetsched.actions import Action
    from hetsched.events import Cause
    from hetsched.ids import TaskId

FPGA = a_resource("fpga")
ABORTED = "killed by signal 6 (SIGABRT)"


def _crash(
    node: Harness, task: TaskId, at: float, cause: Cause = "crash"
) -> list[Action]:
    epoch = node.scheduler.system.tasks[task].epoch
    return node.handle(e.WorkerLost(task, epoch, ABORTED, cause=cause), at)


def _without_circuits(actions: list[Action]) -> list[Action]:
    return [each for each in actions if not isinstance(each, KeepCircuit)]


def _places(actions: list[Action]) -> list[tuple[int, str]]:
    return [(each.task, each.resource) for each in actions if isinstance(each, Run)]


@pytest.mark.parametrize("cause", ["crash", "hang", "killed", "stuck"])
def test_a_task_that_crashes_before_a_checkpoint_goes_elsewhere(
    a_scheduler: Start, cause: Cause
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))

    actions = _crash(node, ONE, 1.0, cause)

    assert _without_circuits(actions) == [
        Record(ONE, State.QUEUED, "retried", None, ABORTED),
        *ran(ONE, 2, "cpu"),
    ]
    assert node.scheduler.system.tasks[ONE].attempts == 0


def test_a_crash_after_a_checkpoint_counts_as_a_lost_worker_only(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    node.handle(e.StripsDone(ONE, 1, 0.25))

    actions = _crash(node, ONE, 1.0)

    assert actions == [
        Record(ONE, State.QUEUED, "retried", None, ABORTED),
        *ran(ONE, 2, "gpu0"),
    ]
    assert node.scheduler.system.tasks[ONE].attempts == 1


def test_a_task_that_may_run_on_one_resource_only_fails_at_its_first_crash(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1, resources=["gpu0"]))

    actions = _crash(node, ONE, 1.0)

    assert actions[0] == Record(ONE, State.FAILED, "failed", "gpu0", ABORTED)


@pytest.mark.parametrize("cause", ["killed", "stuck"])
def test_a_killed_task_without_an_alternative_is_retried_up_to_its_attempts(
    a_scheduler: Start, cause: Cause
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1, resources=["gpu0"]))

    for at in (1.0, 2.0):
        _crash(node, ONE, at, cause)
    actions = _crash(node, ONE, 3.0, cause)

    reason = f"{ABORTED}; 3 attempts are the limit"
    assert actions[0] == Record(ONE, State.FAILED, "failed", "gpu0", reason)


def test_a_task_that_crashed_on_all_resources_fails_with_each_reason(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU, FPGA], BOTH, limits=Limits(attempts=2, stage=0))
    node.handle(a_task(1))

    for at in (1.0, 2.0):
        _crash(node, ONE, at)
    assert node.scheduler.system.tasks[ONE].state is State.RUNNING
    epoch = node.scheduler.system.tasks[ONE].epoch
    last = e.WorkerLost(ONE, epoch, "no strip in 600 s", cause="hang")
    actions = node.handle(last, 3.0)

    failed = actions[0]
    assert isinstance(failed, Record)
    assert failed.state is State.FAILED
    reason = failed.reason or ""
    assert reason.startswith("failed on 3 resources: ")
    assert reason.count(ABORTED) == 2
    assert reason.count("no strip in 600 s") == 1
    assert all(f"{name}: " in reason for name in ("cpu", "gpu0", "fpga0"))


def test_waiting_tasks_of_the_application_leave_the_queue_of_the_resource(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle_all(a_task(1), a_task(2), a_task(3, owner=5))
    assert {task.id for task in node.scheduler.system.queue("gpu0")} == {2, 3}

    crashed = _crash(node, ONE, 1.0)
    submitted = node.handle(a_task(4), 2.0)

    assert _places(crashed) == [(1, "cpu"), (3, "gpu0")]
    assert [task.id for task in node.scheduler.system.queue("cpu")] == [2, 4]
    assert submitted == [Record(TaskId(4), State.QUEUED, "submitted", "cpu")]


def test_a_task_without_an_alternative_runs_where_its_application_failed(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    _crash(node, ONE, 1.0)

    actions = node.handle(a_task(2, resources=["gpu0"]), 2.0)

    assert _places(actions) == [(2, "gpu0")]


def test_a_checkpoint_of_the_trial_task_closes_the_circuit(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    _crash(node, ONE, 1.0)
    node.handle_all(a_task(2), a_task(3), at=2.0)
    assert node.scheduler.next_trial() == 61_000_000_000

    trial = node.handle(e.TrialDue(), 61.0)
    assert _places(trial) == [(2, "gpu0")]
    assert _places(node.handle(a_task(4), 62.0)) == []
    closed = node.handle(
        e.StripsDone(TWO, node.scheduler.system.tasks[TWO].epoch, 0.5), 63.0
    )

    pair = ("any", "gpu0")
    assert [each.pair[1:] for each in closed if isinstance(each, KeepCircuit)] == [pair]
    finished = node.handle(
        e.TaskFinished(TWO, node.scheduler.system.tasks[TWO].epoch), 64.0
    )
    assert _places(finished) == []
    assert _places(node.handle(a_task(5), 65.0)) == [(5, "gpu0")]


def test_limits_set_how_long_a_resource_is_avoided(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH, limits=Limits(stage=0, avoid_ns=500))
    node.handle(a_task(1))
    _crash(node, ONE, 1.0)

    assert node.scheduler.next_trial() == 1_000_000_500


def test_a_failed_trial_doubles_the_time(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    _crash(node, ONE, 0.0)
    node.handle(a_task(2), 2.0)
    node.handle(e.TrialDue(), 60.0)

    actions = _crash(node, TWO, 70.0)

    assert _places(actions) == []
    assert [task.id for task in node.scheduler.system.queue("cpu")] == [2]
    assert node.scheduler.next_trial() == 190_000_000_000


def test_a_task_with_unsaved_progress_gets_no_trial(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    _crash(node, ONE, 1.0)
    node.handle(e.StripsDone(ONE, 2, 0.5), 2.0)
    node.handle(e.TaskHeld(ONE), 2.0)
    node.handle(e.TaskYielded(ONE, 2, 0.5), 3.0)
    node.handle(a_task(2), 4.0)
    node.handle(e.StripsDone(TWO, 3, 0.5), 5.0)
    node.handle(e.TaskHeld(TWO), 5.0)
    node.handle(e.TaskYielded(TWO, 3, 0.5), 6.0)

    node.handle(e.TrialDue(), 61.0)
    assert _places(node.handle(e.TaskReleased(TWO), 62.0)) == [(2, "cpu")]

    circuits = dict(node.scheduler.system.breaker)
    assert [each.trial for each in circuits.values()] == [None]


@pytest.mark.parametrize("cause", ["program", "binary"])
def test_a_program_that_does_not_compile_is_tried_once(
    a_scheduler: Start, cause: Cause
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    failed = e.TaskFailed(ONE, 1, "does not compile", elsewhere=True, cause=cause)
    node.handle(failed, 1.0)
    node.handle(e.TaskFinished(ONE, 2), 2.0)

    actions = node.handle(a_task(2), 3.0)

    assert _places(actions) == [(2, "cpu")]


def test_a_new_version_of_an_application_closes_its_circuits(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1, version="a"))
    _crash(node, ONE, 1.0)

    actions = node.handle(a_task(2, version="b"), 2.0)

    assert _places(actions) == [(2, "gpu0")]
    assert not node.scheduler.system.breaker


def test_forgotten_failures_are_not_avoided(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    _crash(node, ONE, 1.0)
    node.handle(e.FailuresForgotten(resources=frozenset({"fpga0"})), 2.0)
    assert node.scheduler.system.breaker

    node.handle(e.FailuresForgotten(owner=0, apps=frozenset({"any"})), 2.0)

    assert not node.scheduler.system.breaker
    assert _places(node.handle(a_task(2), 3.0)) == [(2, "gpu0")]


def test_a_task_that_waits_for_a_drained_resource_is_preferred_for_the_trial(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    _crash(node, ONE, 1.0)
    node.handle(e.TaskFinished(ONE, 2), 2.0)
    node.handle(e.ResourceDrained("cpu"), 3.0)
    assert _places(node.handle(a_task(2), 4.0)) == []

    assert _places(node.handle(e.TrialDue(), 61.0)) == [(2, "gpu0")]


def test_an_explanation_names_avoided_resources_with_time_and_reason(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], BOTH)
    node.handle(a_task(1))
    _crash(node, ONE, 1.0)
    node.handle(a_task(2), 21.0)
    tasks, system = node.scheduler.system.tasks, node.scheduler.system

    notes = {
        task.id: {each.resource: each.note for each in explain(system, task).prospects}
        for task in tasks.values()
    }

    assert notes[ONE]["gpu0"] == f"failed there before: {ABORTED}"
    avoided = f"avoided for another 40 s: 1 failure in a row, the last: {ABORTED}"
    assert notes[TWO]["gpu0"] == avoided


def test_failures_are_restored_after_a_restart(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], BOTH)

    stored = TaskRuntime(failures={"gpu0": "x"}, excluded=frozenset({"gpu0"}))
    actions = node.restart((a_task(1), stored))
    (run,) = [each for each in actions if isinstance(each, Run)]
    failed = node.handle(e.WorkerLost(ONE, run.epoch, ABORTED, cause="crash"), 1.0)

    assert run.resource == "cpu"
    why = f"failed on 2 resources: gpu0: x; cpu: {ABORTED}"
    assert failed[0] == Record(ONE, State.FAILED, "failed", "cpu", why)
