"""Owners take turns under policies that leave tasks without a place until a slot is free."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import Harness, a_resource, a_task
from hetpapers.banerjee.testbed import Setting, make_scenario
from hetsched import events as e
from hetsched.actions import Run
from hetsched.ids import TaskId
from hetsched.limits import Quota, Quotas
from hetsched.planning.expected_finish import waiting_without_place
from hetsched.planning.owners_in_turn import OwnersInTurn
from hetsim.simulate import simulate
from unit.hetsched.timed_node import ANN, BOB, Node, tasks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hetsched.actions import Action
    from hetsched.events import TaskSubmitted
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

LATE = [
    "contention-aware",
    "lookahead",
    "learned",
    "graphene",
    "sparrow",
    "paragon",
]

each_late_policy = pytest.mark.parametrize("policy", LATE)


def on(kinds: set[str], tasks: Iterator[TaskSubmitted]) -> list[TaskSubmitted]:
    """Let resources of these kinds run tasks, which take a second on each."""
    return [
        replace(task, kinds=frozenset(kinds), seconds=tuple((k, 1.0) for k in kinds))
        for task in tasks
    ]


def urgent(tasks: Iterator[TaskSubmitted]) -> list[TaskSubmitted]:
    return [replace(task, priority=1) for task in tasks]


@each_late_policy
@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("each_new", [False, True])
def test_two_owners_get_equal_parts(policy: str, slots: int, *, each_new: bool) -> None:
    """However many tasks, and kinds of tasks, one of them has."""
    node = Node(policy, [a_resource("cpu", slots=slots)])
    node.submit(*tasks_of(BOB, 120, each_new=each_new, first=1001))
    node.submit(*tasks_of(ANN, 10 * slots))

    node.run(16.0)

    assert 0.44 <= node.part_of(BOB) <= 0.56


@each_late_policy
def test_the_last_owner_to_come_is_the_next(policy: str) -> None:
    node = Node(policy, [a_resource("cpu")])
    node.submit(*tasks_of(BOB, 120, each_new=True, first=1001))
    node.run(9.5)

    node.submit(*tasks_of(ANN, 20))
    node.run(6.0)

    assert node.starts[10:] == [(ANN, "cpu"), (BOB, "cpu")] * 3


@each_late_policy
def test_time_is_what_counts_and_not_the_number_of_tasks(policy: str) -> None:
    node = Node(policy)
    node.submit(*tasks_of(BOB, 100, states=0.25, first=1001), takes=0.25)
    node.submit(*tasks_of(ANN, 30, states=2.0), takes=2.0)

    node.run(24.0)

    assert 0.42 <= node.part_of(BOB) <= 0.58


@each_late_policy
@pytest.mark.parametrize("slots", [1, 4])
def test_parts_are_in_proportion_to_shares(policy: str, slots: int) -> None:
    quotas = Quotas(single={BOB: Quota(share=3.0)})
    node = Node(policy, [a_resource("cpu", slots=slots)], quotas=quotas)
    node.submit(*tasks_of(ANN, 120))
    node.submit(*tasks_of(BOB, 120, first=1001))

    node.run(24.0)

    assert 0.7 <= node.part_of(BOB) <= 0.8


@each_late_policy
def test_priority_goes_before_turns(policy: str) -> None:
    node = Node(policy, [a_resource("cpu")])
    node.submit(*tasks_of(ANN, 10))
    node.submit(*urgent(tasks_of(BOB, 4, first=1001)), *tasks_of(BOB, 9, first=1101))

    node.run(9.5)

    first, *others = [owner for owner, _ in node.starts]
    assert first == ANN
    assert others[:4] == [BOB] * 4
    assert others[4:7] == [ANN] * 3


@each_late_policy
def test_slots_that_are_free_together_are_taken_in_turn(policy: str) -> None:
    """Each slot that one reaction fills counts for the next one."""
    node = Node(policy, [a_resource("cpu", slots=6)])

    bob = tasks_of(BOB, 20, each_new=True, first=1001)
    node.submit(*bob, *tasks_of(ANN, 20, each_new=True))

    assert Counter(node.starts) == {(ANN, "cpu"): 3, (BOB, "cpu"): 3}


@each_late_policy
def test_an_owner_with_tasks_for_one_resource_gets_an_equal_part(policy: str) -> None:
    node = Node(policy, [a_resource("cpu"), a_resource("gpu")])
    node.submit(*on({"cpu", "gpu"}, tasks_of(BOB, 100, first=1001)))
    node.submit(*on({"gpu"}, tasks_of(ANN, 100)))

    node.run(20.5)

    assert node.used[ANN] + node.used[BOB] == 40.0
    assert 0.45 <= node.part_of(ANN) <= 0.55


@each_late_policy
def test_nobody_keeps_a_resource_idle_that_their_tasks_cannot_use(policy: str) -> None:
    """Even if they have used least, and have more tasks than a decision looks at."""
    node = Node(policy, [a_resource("cpu"), a_resource("gpu")])
    node.submit(*on({"gpu"}, tasks_of(BOB, 1, each_new=True, first=1)), takes=50.0)
    node.submit(*on({"gpu"}, tasks_of(ANN, 200, each_new=True, first=1001)))
    node.submit(*on({"cpu"}, tasks_of(BOB, 30, first=2001)))

    node.run(20.5)

    assert node.used == {ANN: 0.0, BOB: 20.0}


@each_late_policy
def test_an_owner_without_tasks_is_not_waited_for(policy: str) -> None:
    node = Node(policy)
    node.submit(*tasks_of(ANN, 3))
    node.submit(*tasks_of(BOB, 37, first=1001))

    node.run(20.5)

    assert node.used == {ANN: 3.0, BOB: 37.0}


# ------------------------------------------------------------ one owner

NODE = make_scenario(Setting("node", jobs=4, every_s=5.0), seed=11)


@pytest.mark.parametrize(
    ("policy", "recorded"),
    [
        ("contention-aware", "e27a2be8fed278f8"),
        ("lookahead", "66e2b1edf8dfea4b"),
        ("learned", "29366919544bf075"),
        ("graphene", "8014ba8e5fd4232f"),
        ("sparrow", "f201ee3812b3a8ed"),
        ("paragon", "d3535242983179b4"),
    ],
)
def test_one_owner_has_the_schedule_that_was_recorded_without_turns(
    policy: str, recorded: str
) -> None:
    tasks = simulate(NODE, policy, seed=1).tasks
    starts = sorted((s.start, t.id, s.resource) for t in tasks for s in t.segments)
    order = [(task, resource) for _, task, resource in starts]

    assert sha256(repr(order).encode()).hexdigest()[:16] == recorded


SECONDS = {
    "short": {"cpu": 1.0, "gpu0": 0.5},
    "long": {"cpu": 9.0, "gpu0": 2.0},
    "even": {"cpu": 3.0, "gpu0": 3.0},
}
TASKS = st.lists(
    st.tuples(
        st.sampled_from(list(SECONDS)),
        st.integers(0, 1),
        st.sampled_from(["", "i", "j"]),
        st.sampled_from([{"cpu", "gpu"}, {"cpu"}, {"gpu"}]),
    ),
    min_size=1,
    max_size=12,
)


def decisions(policy: str, tasks: Sequence[TaskSubmitted], before: int) -> list[Action]:
    """Return what follows from tasks that end one by one, the longest running first.

    Args:
        policy: that decides.
        tasks: those of one owner.
        before: owner of a task that has run and ended before.

    """
    resources = [a_resource("cpu", slots=2), a_resource("gpu")]
    harness = Harness(resources, SECONDS, policy)
    (started,) = runs(harness.handle(a_task(1000, "even", owner=before)))
    harness.handle(e.TaskFinished(started.task, started.epoch), 3.0)
    found = harness.handle_all(*tasks, at=3.0)
    running = runs(found)
    now = 3.0
    while running and now < 60.0:
        now += 1.0
        done = running.pop(0)
        actions = harness.handle(e.TaskFinished(done.task, done.epoch), now)
        found += actions
        running += runs(actions)
    return found


def runs(actions: Sequence[Action]) -> list[Run]:
    return [action for action in actions if isinstance(action, Run)]


@each_late_policy
@settings(max_examples=20)
@given(tasks=TASKS)
def test_what_others_used_changes_no_decision_for_one_owner(
    policy: str, tasks: list[tuple[str, int, str, set[str]]]
) -> None:
    submitted = [
        a_task(number, kind, owner=ANN, priority=priority, job=job, kinds=kinds)
        for number, (kind, priority, job, kinds) in enumerate(tasks, 1)
    ]

    after_another = decisions(policy, submitted, before=BOB)

    assert after_another == decisions(policy, submitted, before=ANN)


# ------------------------------------------------------------ the turns of a reaction


def a_waiting_system(*tasks: TaskSubmitted) -> System:
    """Make a system whose only slot is taken, so that these tasks wait without a place."""
    harness = Harness([a_resource("cpu")], {}, "sparrow")
    harness.handle_all(a_task(999, owner=3))
    harness.handle_all(*tasks)
    return harness.scheduler.system


def of(owner: int, *numbers: int, priority: int = 0) -> list[TaskSubmitted]:
    return [a_task(n, owner=owner, priority=priority) for n in numbers]


def waiting(system: System) -> list[TaskRecord]:
    found = system.unplaced.tasks()
    return sorted(found, key=lambda task: (-task.priority, task.id))


def ids(tasks: Sequence[TaskRecord]) -> list[int]:
    return [task.id for task in tasks]


def test_those_of_one_owner_may_all_be_taken_in_their_order() -> None:
    system = a_waiting_system(*of(ANN, 1, 2), *of(ANN, 3, priority=1))
    turns, tasks = OwnersInTurn(system), waiting(system)

    assert not turns.several
    assert turns.next_of(tasks) is tasks
    assert list(turns.each(tasks)) == tasks
    assert turns.first(tasks, 2) == tasks[:2]


def test_a_charged_owner_lets_the_next_one_go_first() -> None:
    system = a_waiting_system(*of(ANN, 1, 2), *of(BOB, 3, 4))
    turns, tasks = OwnersInTurn(system), waiting(system)

    before = ids(list(turns.next_of(tasks)))
    turns.charge(system.tasks[TaskId(1)])

    assert before == [1, 2]
    assert ids(list(turns.next_of(tasks))) == [3, 4]


def test_of_several_owners_only_the_highest_priority_may_be_taken() -> None:
    system = a_waiting_system(*of(ANN, 1, 2), *of(BOB, 3), *of(BOB, 4, priority=1))

    assert ids(list(OwnersInTurn(system).next_of(waiting(system)))) == [4]


def test_an_owner_who_is_passed_on_is_passed_on_for_one_priority() -> None:
    tasks = [*of(ANN, 1, priority=1), *of(ANN, 2), *of(BOB, 3)]
    system = a_waiting_system(*tasks)
    turns = OwnersInTurn(system)
    order = []

    while found := list(turns.next_of(waiting(system))):
        order.append(ids(found))
        turns.pass_on(found[0])

    assert order == [[1], [2], [3]]


def test_who_takes_nothing_keeps_the_turn() -> None:
    system = a_waiting_system(*of(ANN, 1, 2, 3), *of(BOB, 4, 5, 6))
    turns = OwnersInTurn(system)
    order = []

    for task in turns.each(waiting(system)):
        order.append(task.id)
        if task.id != 1:  # it waits for something better
            turns.charge(task)

    assert order == [1, 2, 4, 3, 5, 6]


def test_each_owner_has_an_equal_part_of_those_looked_at() -> None:
    system = a_waiting_system(*of(ANN, *range(1, 10)), *of(BOB, 10, 11, 12))

    found = OwnersInTurn(system).first(waiting(system), 4)

    assert ids(found) == [1, 10, 2, 11]


def test_one_task_of_each_owner_is_looked_at_however_many_they_are() -> None:
    tasks = [a_task(n, owner=5000 + n) for n in range(1, 100)]
    system = a_waiting_system(*tasks)

    assert len(OwnersInTurn(system).first(waiting(system), 8)) == 99
    assert len(waiting_without_place(system)) == 99
