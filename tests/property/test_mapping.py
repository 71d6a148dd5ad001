"""The mapping phases look at types; task by task they decide the same.

The reference here does what the paper says in the plainest way: for each task and each
machine. Integers throughout, so that ties come often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.planning.fairness import Fairness, fair_pass
from hetsched.planning.interpretation import Interpretation
from hetsched.planning.machines import Machine, Queued
from hetsched.planning.mapping import (
    Bucket,
    MappingInput,
    baseline_pass,
    efficient_pass,
    least_completion,
    most_urgent,
    soonest_deadline,
)
from hetsched.queues import NEVER, DeadlineOrder


@dataclass(frozen=True)
class Task:
    number: int
    type: int
    deadline: int


@dataclass(frozen=True)
class Picture:
    """A mapping event: times by type and machine, and per machine its state."""

    times: list[list[int]]
    watts: list[int]
    ends: list[int]
    queues: list[list[tuple[int, int]]]
    places: list[int]
    tasks: list[Task]


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    types = draw(st.integers(1, 3))
    machines = draw(st.integers(1, 4))
    times = st.lists(st.integers(1, 6), min_size=machines, max_size=machines)
    queue = st.lists(
        st.tuples(st.integers(0, types - 1), st.integers(1, 25)), max_size=3
    )
    deadlines = st.one_of(st.integers(1, 25), st.just(NEVER))
    waiting = st.lists(st.tuples(st.integers(0, types - 1), deadlines), max_size=12)
    return Picture(
        times=draw(st.lists(times, min_size=types, max_size=types)),
        watts=draw(times),
        ends=draw(st.lists(st.integers(0, 8), min_size=machines, max_size=machines)),
        queues=draw(st.lists(queue, min_size=machines, max_size=machines)),
        places=draw(st.lists(st.integers(0, 2), min_size=machines, max_size=machines)),
        tasks=[
            Task(number, kind, due) for number, (kind, due) in enumerate(draw(waiting))
        ],
    )


def input_of(picture: Picture, interpretation: Interpretation) -> MappingInput[Any]:
    buckets = []
    for kind, times in enumerate(picture.times):
        order: DeadlineOrder[Task] = DeadlineOrder()
        for task in picture.tasks:
            if task.type == kind:
                order.add(task, task.number, task.deadline)
        if len(order):
            expected = {str(j): seconds for j, seconds in enumerate(times)}
            buckets.append(Bucket(str(kind), expected, order))
    machines: list[Machine[Any]] = [
        Machine(
            str(j),
            picture.watts[j],
            [picture.ends[j]],
            [
                Queued(f"{j}/{k}", str(kind), picture.times[kind][j], due)
                for k, (kind, due) in enumerate(queue)
            ],
            picture.places[j],
        )
        for j, queue in enumerate(picture.queues)
    ]
    return MappingInput(buckets, machines, interpretation)


def start(picture: Picture, machine: int) -> int:
    """Equation 1 along the queue."""
    at = picture.ends[machine]
    for kind, due in picture.queues[machine]:
        if at < due:
            at = min(at + picture.times[kind][machine], due)
    return at


def completion(picture: Picture, task: Task, machine: int) -> int:
    return start(picture, machine) + picture.times[task.type][machine]


def open_machines(picture: Picture) -> list[int]:
    return [j for j, places in enumerate(picture.places) if places >= 1]


def reference(picture: Picture, nominate: Any, key: Any) -> dict[int, int]:
    """Phase I: `nominate` a machine for each task; Phase II: the least `key` of each."""
    nominees: dict[int, list[Task]] = {}
    for task in picture.tasks:
        machine = nominate(picture, task)
        if machine is not None:
            nominees.setdefault(machine, []).append(task)
    return {
        j: min(tasks, key=lambda task: (*key(picture, task, j), task.number)).number
        for j, tasks in nominees.items()
    }


def soonest(picture: Picture, task: Task) -> int | None:
    return min(
        open_machines(picture),
        key=lambda j: completion(picture, task, j),
        default=None,
    )


def thriftiest(picture: Picture, task: Task, margin: int = 0) -> int | None:
    feasible = [
        j
        for j in open_machines(picture)
        if completion(picture, task, j) + margin <= task.deadline
    ]
    return min(
        feasible,
        key=lambda j: (
            picture.watts[j] * picture.times[task.type][j],
            completion(picture, task, j),
        ),
        default=None,
    )


def mapped(outcome: Any) -> dict[int, int]:
    return {int(n.machine.name): n.task.number for n in outcome.chosen}


def by_completion(picture: Picture, task: Task, j: int) -> tuple[int, ...]:
    return (completion(picture, task, j),)


def by_deadline(picture: Picture, task: Task, j: int) -> tuple[int, ...]:
    return (task.deadline, completion(picture, task, j))


def by_urgency(picture: Picture, task: Task, j: int) -> tuple[int, ...]:
    spare = task.deadline - completion(picture, task, j)
    return (int(spare < 0), spare)


def by_energy(picture: Picture, task: Task, j: int) -> tuple[int, ...]:
    return (picture.watts[j] * picture.times[task.type][j],)


@pytest.mark.parametrize(
    ("urgency", "key"),
    [
        (least_completion, by_completion),
        (soonest_deadline, by_deadline),
        (most_urgent, by_urgency),
    ],
)
@given(picture=pictures())
def test_the_baselines_decide_as_task_by_task(
    urgency: Any, key: Any, picture: Picture
) -> None:
    outcome = baseline_pass(input_of(picture, Interpretation()), urgency)

    assert mapped(outcome) == reference(picture, soonest, key)


@given(picture=pictures(), margin=st.integers(0, 1))
def test_elare_decides_as_task_by_task(picture: Picture, margin: int) -> None:
    outcome = efficient_pass(input_of(picture, Interpretation(margin=margin)))

    nominate = partial(thriftiest, margin=margin)
    assert mapped(outcome) == reference(picture, nominate, by_energy)
    for bucket, reach in outcome.hopeless:
        hopeless = {task.number for task in bucket.order.before(reach)}
        assert hopeless == {
            task.number
            for task in picture.tasks
            if str(task.type) == bucket.type and nominate(picture, task) is None
        }


@given(picture=pictures())
def test_one_mapping_an_event_is_one_of_those_of_a_whole_pass(picture: Picture) -> None:
    whole = mapped(efficient_pass(input_of(picture, Interpretation())))
    single = mapped(efficient_pass(input_of(picture, Interpretation(single=True))))

    assert len(single) == min(len(whole), 1)
    assert single.items() <= whole.items()


RATES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=3, max_size=3)


@given(picture=pictures(), rates=RATES, factor=st.sampled_from([0.0, 0.5, 1.0]))
def test_felare_favours_whom_it_should(
    picture: Picture, rates: list[float], factor: float
) -> None:
    fairness = Fairness(factor=factor)
    given = input_of(picture, Interpretation())
    given.rates.update({str(kind): rate for kind, rate in enumerate(rates)})
    suffered = fairness.suffered(given.rates)

    outcome = fair_pass(given, fairness)

    queued = {
        f"{j}/{k}": (j, str(kind))
        for j, queue in enumerate(picture.queues)
        for k, (kind, _) in enumerate(queue)
    }
    chosen = {n.machine.name: n for n in outcome.chosen}
    for name in outcome.evicted:
        machine, kind = queued[str(name)]
        assert kind not in suffered
        # Somebody of a suffered type takes the machine, and is in time there.
        winner = chosen[str(machine)]
        assert winner.bucket.type in suffered
    if any(n.bucket.type in suffered for n in outcome.chosen):
        assert all(n.bucket.type in suffered for n in outcome.chosen)
    for nominee in outcome.chosen:
        expected = nominee.bucket.expected[nominee.machine.name]
        assert nominee.machine.start() + expected <= nominee.task.deadline


# ------------------------------------------------------------ the order of deadlines

INSTANTS = st.one_of(st.integers(0, 9), st.none())


@given(
    steps=st.lists(st.tuples(st.booleans(), INSTANTS, st.integers(0, 20)), max_size=40),
    low=st.integers(-1, 10),
    width=st.integers(0, 5),
)
def test_the_order_of_deadlines_is_that_of_a_sorted_list(
    steps: list[tuple[bool, int | None, int]], low: int, width: int
) -> None:
    order: DeadlineOrder[str] = DeadlineOrder()
    model: list[tuple[int, int, str]] = []
    for index, (takes_out, deadline, number) in enumerate(steps):
        if takes_out and model:
            gone = model.pop(number % len(model))
            order.remove(gone[2], None if gone[0] == NEVER else gone[0])
        else:
            entry = NEVER if deadline is None else deadline, number * 100 + index
            name = f"t{index}"
            model.append((*entry, name))
            order.add(name, entry[1], deadline)

    assert len(order) == len(model)
    assert sorted(order.entries()) == sorted(model)
    within = [entry for entry in model if low <= entry[0] < low + width]
    oldest = min(within, key=lambda entry: entry[1], default=None)
    assert order.oldest(low, low + width) == oldest
    assert set(order.before(low)) == {entry[2] for entry in model if entry[0] < low}
    first = order.first_from(low)
    later = [entry[0] for entry in model if entry[0] >= low]
    assert (None if first is None else first[0]) == min(later, default=None)
    if model:
        assert order.soonest()[0] == min(entry[0] for entry in model)
        assert order.latest()[0] == max(entry[0] for entry in model)
