"""Trains: short tasks that are dispatched together to one worker, in one slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from builders import a_resource, a_task
from hetsched import events as e
from hetsched.actions import Abort, Begin, Preempt, Recall, Record, Run, Stage
from hetsched.estimates.point import Figures
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.tasks import State

if TYPE_CHECKING:
    from builders import Harness, Start
    from hetsched.actions import Action
    from hetsched.estimates.table import EstimateTable

CPU, GPU = a_resource("cpu"), a_resource("gpu")
SECONDS = {
    "short": {"cpu": 1e-4, "gpu0": 1.0},
    "half": {"cpu": 4e-4, "gpu0": 1.0},
    "some": {"cpu": 0.02, "gpu0": 1.0},
    "long": {"cpu": 0.06, "gpu0": 1.0},
}
LIMITS = Limits(stage=0, train=4)
QUEUED, RUNNING = State.QUEUED, State.RUNNING


@pytest.fixture
def node(a_scheduler: Start) -> Harness:
    return a_scheduler([CPU], SECONDS, limits=LIMITS)


def submit(node: Harness, *types: str, first: int = 1, **fields: int) -> list[Action]:
    tasks = [a_task(n, t, **fields) for n, t in enumerate(types, start=first)]
    return node.handle_all(*tasks)


def orders(actions: list[Action]) -> list[tuple[int, int | None]]:
    """List what is ordered, and behind what."""
    return [(each.task, each.after) for each in actions if isinstance(each, Run)]


def a_train(node: Harness) -> None:
    """Let 2, 3 and 4 be behind 1, epochs 1 to 4, and 5 wait."""
    assert orders(submit(node, *["short"] * 5)) == [(1, None), (2, 1), (3, 1), (4, 1)]


def ended(task: int) -> Record:
    return Record(TaskId(task), State.COMPLETED, "completed", "cpu")


def began(task: int) -> list[Action]:
    record = Record(TaskId(task), RUNNING, "dispatched", "cpu")
    return [Begin(TaskId(task), task), record]


def returned(task: int, reason: str | None = None) -> Record:
    return Record(TaskId(task), QUEUED, "returned", "cpu", reason)


def finished(*tasks: int) -> list[e.Event]:
    return [e.TaskFinished(TaskId(task), task) for task in tasks]


# ---------------------------------------------------------------- who rides


def test_short_tasks_are_dispatched_behind_the_first_in_its_slot(node: Harness) -> None:
    actions = submit(node, *["short"] * 3)

    assert actions[3:] == [
        Run(TaskId(1), 1, "cpu"),
        Record(TaskId(1), RUNNING, "dispatched", "cpu"),
        Run(TaskId(2), 2, "cpu", TaskId(1)),
        Record(TaskId(2), RUNNING, "ordered", "cpu"),
        Run(TaskId(3), 3, "cpu", TaskId(1)),
        Record(TaskId(3), RUNNING, "ordered", "cpu"),
    ]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["long"] * 3, [(1, None)]),
        (["short", "half", "short"], [(1, None)]),
        (["half"] * 9, [(1, None), (2, 1), (3, 1), (4, 1)]),
        (["some"] * 9, [(1, None), (2, 1)]),
    ],
    ids=["long", "others", "two milliseconds", "one and the next"],
)
def test_a_train_contains_only_short_tasks_of_one_row(
    node: Harness, types: list[str], expected: list[tuple[int, int | None]]
) -> None:
    assert orders(submit(node, *types)) == expected


def test_a_train_contains_only_tasks_of_one_owner_and_priority(node: Harness) -> None:
    tasks = [a_task(1, "short"), a_task(2, "short", owner=5), a_task(3, "short")]

    assert orders(node.handle_all(*tasks)) == [(1, None), (3, 1)]
    submit(node, "short", first=4, priority=1)
    node.handle(e.TaskFinished(TaskId(1), 1))
    assert orders(node.handle(e.TaskFinished(TaskId(3), 2))) == [(4, None)]


def test_users_take_turns_by_trains(node: Harness) -> None:
    mine = [a_task(n, "short") for n in range(1, 10)]
    others = [a_task(n, "short", owner=5) for n in range(11, 20)]

    first = orders(node.handle_all(*mine, *others))
    ends = [e.TaskFinished(TaskId(task), task) for task, _ in first]
    following = orders(node.handle_all(*ends))

    assert first == [(1, None), (2, 1), (3, 1), (4, 1)]
    assert following == [(11, None), (12, 11), (13, 11), (14, 11)]


def test_a_train_is_no_longer_than_what_other_users_may_wait(
    a_scheduler: Start,
) -> None:
    """Two users of equal tasks of 0.4 ms, of which five would be in a train of 2 ms."""
    node = a_scheduler([CPU], SECONDS, limits=Limits(stage=0, train=8, train_s=0.002))
    mine = [a_task(n, "half") for n in range(1, 20)]
    other = a_task(20, "half", owner=5)

    assert len(orders(node.handle_all(*mine, other))) == 5


def test_a_train_contains_only_tasks_of_the_same_workers(node: Harness) -> None:
    key = ("origin", "")
    tasks = [a_task(1, "short", workers=key), a_task(2, "short")]

    assert orders(node.handle_all(*tasks)) == [(1, None)]


@pytest.mark.parametrize("fields", [{"single": True}, {"preemptible": False}])
@pytest.mark.parametrize("place", [1, 2])
def test_single_and_nonpreemptible_tasks_are_in_no_train(
    node: Harness, place: int, fields: dict[str, bool]
) -> None:
    tasks = [a_task(n, "short", **(fields if n == place else {})) for n in (1, 2, 3)]

    assert orders(node.handle_all(*tasks)) == [(1, None)]


def test_a_train_leaves_the_other_slots_their_share(a_scheduler: Start) -> None:
    node = a_scheduler([a_resource("cpu", slots=2)], SECONDS, limits=LIMITS)

    actions = submit(node, *["short"] * 4)

    # three wait when the first is given a slot: one of them follows it
    assert orders(actions) == [(1, None), (2, 1), (3, None)]


# ---------------------------------------------------------------- its way


def test_each_task_of_a_train_starts_when_the_one_before_it_ends(node: Harness) -> None:
    a_train(node)

    assert node.handle_all(*finished(1)) == [*began(2), ended(1)]
    assert node.handle_all(*finished(2, 3)) == [
        *began(3),
        ended(2),
        *began(4),
        ended(3),
        Run(TaskId(5), 5, "cpu", TaskId(4)),
        Record(TaskId(5), RUNNING, "ordered", "cpu"),
    ]
    assert node.handle_all(*finished(4)) == [*began(5), ended(4)]


def test_a_train_is_extended_when_its_next_task_starts(node: Harness) -> None:
    submit(node, *["some"] * 4)

    first = orders(node.handle_all(*finished(1)))
    second = orders(node.handle_all(*finished(2)))

    assert (first, second) == ([(3, 2)], [(4, 3)])


def test_several_tasks_are_added_to_a_train_together(a_scheduler: Start) -> None:
    node = a_scheduler([CPU], SECONDS, limits=LIMITS)
    submit(node, *["short"] * 9)

    added = [orders(node.handle_all(*finished(task))) for task in (1, 2, 3, 4)]

    assert added == [[], [(5, 3), (6, 3)], [], [(7, 5), (8, 5)]]


def test_a_train_whose_first_task_is_to_leave_is_not_extended(node: Harness) -> None:
    submit(node, *["some"] * 4)
    node.handle(e.TaskHeld(TaskId(2)))  # it is recalled, and has started already

    assert orders(node.handle_all(*finished(1))) == []
    assert orders(node.handle(e.TaskStarted(TaskId(2), 2))) == []


@pytest.mark.parametrize(
    ("spread", "expected"), [(0.05, [(1, None), (2, 1)]), (0.5, [(1, None)])]
)
def test_tasks_of_uncertain_length_are_in_no_train(
    a_scheduler: Start, spread: float, expected: list[tuple[int, int | None]]
) -> None:
    node = a_scheduler([CPU], limits=LIMITS)
    estimates = cast("EstimateTable", node.scheduler.system.estimates)
    estimates.enter(Figures("some", "cpu", 0.03, 1.0, spread=spread, count=64))

    assert orders(submit(node, *["some"] * 3)) == expected


def staged(actions: list[Action]) -> list[int]:
    return [each.task for each in actions if isinstance(each, Stage)]


def test_what_waits_for_a_train_is_not_staged(a_scheduler: Start) -> None:
    node = a_scheduler([CPU], SECONDS, limits=Limits(stage=1, train=4))

    assert staged(submit(node, *["some"] * 5)) == []
    assert staged(node.handle_all(a_task(6, "some", priority=1))) == [6]


def test_tasks_of_different_rows_are_staged(a_scheduler: Start) -> None:
    node = a_scheduler([CPU], SECONDS, limits=Limits(stage=1, train=4))

    assert staged(submit(node, "some", "long", "some", "long")) == [2]
    assert staged(node.handle_all(*finished(1))) == [3]


def test_a_staged_task_may_follow_in_another_worker(a_scheduler: Start) -> None:
    node = a_scheduler([CPU], SECONDS, limits=Limits(stage=2, train=4))
    submit(node, "some", "long", "some", "some", "some")
    cancelled = node.handle(e.TaskCancelled(TaskId(2)))

    actions = node.handle_all(*finished(1))

    assert staged(cancelled) == [4]
    assert orders(actions) == [(3, None), (4, 3)]
    assert [each.task for each in actions if isinstance(each, Abort)] == [4]
    assert staged(actions) == []


def test_policies_see_only_the_running_task_of_a_train(node: Harness) -> None:
    a_train(node)
    system = node.scheduler.system

    assert [task.id for task in system.running("cpu")] == [1]
    assert [task.id for task in system.queue("cpu")] == [5]


def test_a_stuck_train_is_recalled(node: Harness) -> None:
    a_train(node)
    assert node.scheduler.next_recall() == 5_200_000
    assert node.handle(e.TrainOverdue(), at=0.0056) == []
    assert node.scheduler.next_recall() == 20_200_000

    asked = node.handle(e.TrainOverdue(), at=0.0202)
    back = [node.handle(e.TaskAborted(TaskId(n), n), at=0.021) for n in (2, 3, 4)]

    assert asked == [Recall(TaskId(n), n) for n in (2, 3, 4)]
    assert back == [[returned(n)] for n in (2, 3, 4)]
    assert node.scheduler.next_recall() is None
    waiting = list(node.scheduler.system.queue("cpu"))
    assert [(task.id, task.attempts) for task in waiting] == [
        (2, 0),
        (3, 0),
        (4, 0),
        (5, 0),
    ]


def test_a_train_that_goes_on_is_not_stuck(node: Harness) -> None:
    a_train(node)
    node.handle(e.TrainOverdue(), at=0.0056)

    node.handle_all(*finished(1), at=0.015)

    assert node.handle(e.TrainOverdue(), at=0.0202) == []
    assert node.scheduler.next_recall() == 35_200_000


def test_an_overdue_task_is_recalled_for_another_one(node: Harness) -> None:
    submit(node, *["short"] * 4, "long")

    # each has the time of those before it, twice
    asked = [node.handle(e.TrainOverdue(), at=at) for at in (0.0052, 0.0054, 0.0056)]

    assert asked == [[Recall(TaskId(n), n)] for n in (2, 3, 4)]


def test_an_overdue_task_is_recalled_for_a_free_slot(a_scheduler: Start) -> None:
    node = a_scheduler([a_resource("cpu", slots=2)], SECONDS, limits=LIMITS)
    runs = [each for each in submit(node, *["short"] * 6) if isinstance(each, Run)]
    assert [(run.task, run.after) for run in runs] == [
        (1, None),
        (2, 1),
        (3, 1),
        (4, None),
        (5, 4),
    ]
    assert node.handle(e.TrainOverdue(), at=0.0058) == []

    node.handle_all(*finished(4, 5), at=0.006)
    node.handle_all(*finished(6), at=0.007)
    node.handle_all(*finished(1), at=0.015)  # so the worker of 2 and 3 is not stuck

    assert node.handle(e.TrainOverdue(), at=0.0202) == [Recall(TaskId(3), 3)]


def test_the_next_of_two_longer_tasks_is_recalled_once_they_are_stuck(
    node: Harness,
) -> None:
    submit(node, *["some"] * 4)
    assert node.scheduler.next_recall() == 45_000_000
    node.handle(e.TrainOverdue(), at=0.045)
    assert node.scheduler.next_recall() == 60_000_000

    node.handle_all(*finished(1), at=0.05)
    node.handle(e.TrainOverdue(), at=0.095)

    assert node.scheduler.next_recall() == 110_000_000
    assert node.handle(e.TrainOverdue(), at=0.110) == [Recall(TaskId(3), 3)]


def test_a_task_of_higher_priority_does_not_wait_for_a_train(node: Harness) -> None:
    submit(node, *["some"] * 4)

    asked = node.handle_all(a_task(5, "some", priority=1))
    back = node.handle(e.TaskAborted(TaskId(2), 2))

    assert [each for each in asked if isinstance(each, Recall)] == [
        Recall(TaskId(2), 2)
    ]
    assert orders(back) == []
    assert orders(node.handle_all(*finished(1))) == [(5, None)]


def test_a_train_of_less_than_a_millisecond_is_not_recalled(node: Harness) -> None:
    a_train(node)

    asked = node.handle_all(a_task(6, "short", priority=1))

    assert [each for each in asked if isinstance(each, Recall)] == []


def test_recalled_tasks_keep_the_slot_until_the_worker_answers(
    node: Harness,
) -> None:
    a_train(node)
    for at in (0.0056, 0.0202):
        node.handle(e.TrainOverdue(), at=at)

    assert node.handle_all(*finished(1), at=0.021) == [ended(1)]
    # 2 had begun when it was asked back; 3 and 4 had not
    assert node.handle_all(*finished(2), at=0.021) == [*began(2), ended(2)]
    node.handle(e.TaskAborted(TaskId(3), 3), at=0.021)
    last = node.handle(e.TaskAborted(TaskId(4), 4), at=0.021)

    assert orders(last)[0] == (3, None)


# ---------------------------------------------------------------- wishes


def test_preempting_the_first_task_recalls_the_others(node: Harness) -> None:
    a_train(node)

    actions = node.handle(e.TaskHeld(TaskId(1)))

    assert actions == [
        *(Recall(TaskId(n), n) for n in (2, 3, 4)),
        Preempt(TaskId(1), 1),
    ]


def test_an_unstarted_task_is_held_when_it_is_given_back(node: Harness) -> None:
    a_train(node)

    asked = node.handle(e.TaskHeld(TaskId(3)))
    back = node.handle(e.TaskAborted(TaskId(3), 3))

    assert asked == [Recall(TaskId(3), 3)]
    assert back == [Record(TaskId(3), State.HELD, "returned")]
    assert node.handle_all(*finished(1, 2))[-5:-2] == [*began(4), ended(2)]


def test_an_unstarted_task_is_cancelled_when_it_is_given_back(node: Harness) -> None:
    a_train(node)

    asked = node.handle(e.TaskCancelled(TaskId(2), "enough"))
    back = node.handle(e.TaskAborted(TaskId(2), 2))

    assert asked == [Abort(TaskId(2), 2)]
    assert back == [Record(TaskId(2), State.CANCELLED, "cancelled", "cpu", "enough")]


def test_a_report_of_a_task_in_a_train_marks_it_as_started(node: Harness) -> None:
    a_train(node)
    node.handle(e.TrainOverdue(), at=1.0)
    assert began(2)[0] not in node.handle(finished(1)[0], at=1.0)

    assert node.handle(e.TaskStarted(TaskId(2), 2), at=1.0) == began(2)


def test_a_task_that_starts_before_its_recall_yields_at_its_checkpoint(
    node: Harness,
) -> None:
    a_train(node)
    node.handle(e.TaskHeld(TaskId(2)))
    node.handle_all(*finished(1))

    actions = node.handle(e.StripsDone(TaskId(2), 2, 0.1))

    behind = [Recall(TaskId(n), n) for n in (3, 4)]
    assert actions == [*began(2), *behind, Preempt(TaskId(2), 2)]


def test_a_moved_unstarted_task_is_given_back_and_runs_there(
    a_scheduler: Start,
) -> None:
    node = a_scheduler([CPU, GPU], SECONDS, limits=LIMITS)
    a_train(node)

    asked = node.handle(e.TaskMoved(TaskId(2), "gpu0"))
    back = node.handle(e.TaskAborted(TaskId(2), 2))

    assert asked == [Recall(TaskId(2), 2)]
    assert orders(back) == [(2, None)]
    assert node.scheduler.system.tasks[TaskId(2)].resource == "gpu0"


# ---------------------------------------------------------------- losses


def lose(node: Harness, ran: int, *tasks: int) -> list[Action]:
    lost = [
        e.WorkerLost(TaskId(n), n, "it died", begun=n == ran) for n in reversed(tasks)
    ]
    return node.handle_all(*lost)


@pytest.mark.parametrize("ran", [1, 2, 4])
def test_only_the_running_task_of_a_lost_worker_loses_an_attempt(
    node: Harness, ran: int
) -> None:
    a_train(node)

    lose(node, ran, 1, 2, 3, 4)

    attempts = {n: task.attempts for n, task in node.scheduler.system.tasks.items()}
    assert attempts == {n: int(n == ran) for n in range(1, 6)}


def test_tasks_of_a_lost_train_are_in_no_train_again(node: Harness) -> None:
    a_train(node)

    actions = lose(node, 1, 1, 2, 3, 4)

    assert orders(actions) == [(1, None)]


def test_a_lost_resource_recalls_what_it_has_not_begun(a_scheduler: Start) -> None:
    node = a_scheduler([CPU, GPU], SECONDS, limits=LIMITS)
    submit(node, *["short"] * 5)
    train = [t for t in node.scheduler.system.tasks.values() if t.not_started]

    actions = node.handle(e.ResourceLost("cpu", "it broke"))
    for task in reversed(train):
        node.handle(e.TaskAborted(task.id, task.epoch))

    assert [x.task for x in actions if isinstance(x, Preempt)] == [1]
    recalled = [x.task for x in actions if isinstance(x, Recall)]
    assert recalled == [task.id for task in train] != []
    attempts = {task.attempts for task in node.scheduler.system.tasks.values()}
    assert attempts == {0}
