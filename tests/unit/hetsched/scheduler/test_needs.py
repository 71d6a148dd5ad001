"""Tasks wait for the cores and the memory that they need, and others pass behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builders import UNSTAGED, Harness, a_resource, a_task
from hetsched import actions as a
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.limits import Capacity, Needs
from hetsched.planning.explain import explain
from hetsched.policy import Drop, Place
from hetsched.queues import blocked_key
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.policy import Decision
    from hetsched.system import System

SECONDS = {
    "long": {"cpu": 100.0, "gpu0": 10.0},
    "short": {"cpu": 10.0, "gpu0": 10.0},
}


def a_node(cores: int = 4, memory: int | None = None, slots: int = 8) -> Harness:
    limits = replace(UNSTAGED, capacity=Capacity(cores, memory))
    return Harness([a_resource("cpu", slots=slots)], SECONDS, limits=limits)


def submit(
    node: Harness, task: int, cores: int, task_type: str = "long", at: float = 0.0
) -> list[int]:
    """Submit a task that needs cores; return which tasks start."""
    event = a_task(task, task_type, kinds={"cpu"}, needs=Needs(cores))
    return started(node.handle(event, at))


def started(actions: list[Action]) -> list[int]:
    return [each.task for each in actions if isinstance(each, a.Run)]


def finish(node: Harness, task: int, at: float) -> list[int]:
    record = node.scheduler.system.tasks[TaskId(task)]
    return started(node.handle(e.TaskFinished(record.id, record.epoch), at))


def blocked(node: Harness) -> list[int]:
    tasks = sorted(node.scheduler.system.blocked, key=blocked_key)
    return [task.id for task in tasks]


def reserved_at(node: Harness) -> float | None:
    kept = node.scheduler.state.needs.reservation()
    return None if kept is None else kept.at / SECOND


def test_a_task_waits_for_its_cores_and_starts_when_they_are_free() -> None:
    node = a_node(cores=4)

    assert submit(node, 1, cores=3) == [1]
    assert submit(node, 2, cores=2) == []
    assert blocked(node) == [2]
    assert reserved_at(node) == 100.0

    assert finish(node, 1, at=5.0) == [2]


def test_tasks_without_needs_are_not_counted() -> None:
    node = a_node(cores=1)
    submit(node, 1, cores=1)

    assert started(node.handle(a_task(2, "long", kinds={"cpu"}))) == [2]


def test_memory_is_counted_like_cores() -> None:
    node = a_node(memory=10)

    first = a_task(1, "long", kinds={"cpu"}, needs=Needs(memory_bytes=6))
    second = a_task(2, "long", kinds={"cpu"}, needs=Needs(memory_bytes=7))
    third = a_task(3, "long", kinds={"cpu"}, needs=Needs(memory_bytes=4))
    starts = [
        started(node.handle(each, at)) for at, each in enumerate((first, second, third))
    ]

    assert starts == [[1], [], []]  # the third would delay the second
    assert finish(node, 1, at=3.0) == [2]
    assert finish(node, 2, at=4.0) == [3]


def test_a_short_task_passes_if_it_ends_before_the_reservation() -> None:
    node = a_node(cores=4)
    submit(node, 1, cores=3)
    submit(node, 2, cores=4)

    assert submit(node, 3, cores=1, task_type="short", at=89.0) == [3]
    assert finish(node, 3, at=89.5) == []
    assert submit(node, 4, cores=1, task_type="short", at=91.0) == []
    assert reserved_at(node) == 100.0


def test_a_long_task_passes_if_it_leaves_enough_for_the_reservation() -> None:
    node = a_node(cores=4)
    submit(node, 1, cores=3)
    submit(node, 2, cores=3)

    assert submit(node, 3, cores=1) == [3]
    assert reserved_at(node) == 100.0
    assert finish(node, 1, at=100.0) == [2]


def test_a_time_limit_bounds_how_long_a_task_is_expected_to_run() -> None:
    node = a_node(cores=4)
    submit(node, 1, cores=3)
    submit(node, 2, cores=4)

    limited = a_task(3, "long", kinds={"cpu"}, needs=Needs(1), time_limit_s=20.0)

    assert started(node.handle(limited, 50.0)) == [3]


def test_more_cores_than_there_are_mean_all_of_them() -> None:
    node = a_node(cores=2)

    assert submit(node, 1, cores=64) == [1]
    assert submit(node, 2, cores=1) == []
    assert finish(node, 1, at=1.0) == [2]


def test_device_memory_keeps_tasks_off_one_device_only() -> None:
    gpus = [replace(a_resource("gpu", f"gpu{n}", 2), memory_bytes=4) for n in range(2)]
    node = Harness(gpus, {"big": {"gpu0": 1.0, "gpu1": 2.0}}, limits=UNSTAGED)
    big = [a_task(n, "big", needs=Needs(device_bytes=3)) for n in (1, 2, 3)]

    starts = [started(node.handle(each)) for each in big]

    assert starts[0] == [1]
    assert not starts[2]
    rest = [*starts[1], *finish(node, 1, at=1.0)]
    while set(rest) != {2, 3}:
        running = next(t.id for t in node.scheduler.system.running("gpu0"))
        rest += finish(node, running, at=2.0)


def test_a_task_that_needs_more_than_any_device_has_runs_alone() -> None:
    gpu = replace(a_resource("gpu", slots=2), memory_bytes=4)
    node = Harness([gpu], {"big": {"gpu0": 1.0}}, limits=UNSTAGED)
    huge = [a_task(n, "big", needs=Needs(device_bytes=9)) for n in (1, 2)]

    starts = [started(node.handle(each)) for each in huge]

    assert starts == [[1], []]
    assert finish(node, 1, at=1.0) == [2]


def test_a_cancelled_task_lets_those_behind_it_start() -> None:
    node = a_node(cores=4)
    submit(node, 1, cores=3)
    submit(node, 2, cores=4)
    assert submit(node, 3, cores=1, at=0.5) == []

    assert started(node.handle(e.TaskCancelled(TaskId(2)), 1.0)) == [3]


class DropsFirst:
    """Drops task 2 when it sees it; places every other task on the CPU."""

    def react(self, event: Event, system: System, now: int) -> Iterator[Decision]:
        for task in list(system.unplaced):
            if task.id == 2:
                yield Drop(task.id, "unwanted")
            else:
                yield Place(task.id, "cpu")


def test_blocked_tasks_are_examined_after_the_policy_dropped_an_admitted_one() -> None:
    node = a_node(cores=4)
    node.change_policy(DropsFirst())
    submit(node, 1, cores=4)
    submit(node, 2, cores=3)
    submit(node, 3, cores=4)

    record = node.scheduler.system.tasks[TaskId(1)]
    actions = node.handle(e.TaskFinished(record.id, record.epoch), 1.0)

    (timer,) = [each for each in actions if isinstance(each, a.SetTimer)]
    assert blocked(node) == [3]
    assert started(node.handle(e.TimerFired(), timer.at / SECOND)) == [3]


class Waits:
    """Places tasks on the GPU, whether it is busy or not; short ones on the CPU."""

    def react(self, event: Event, system: System, now: int) -> Iterator[Decision]:
        for task in list(system.unplaced):
            where = "cpu" if "gpu0" not in system.affinities(task.row) else "gpu0"
            yield Place(task.id, where)


def test_a_task_that_waits_for_a_busy_resource_holds_no_cores() -> None:
    resources = [a_resource("cpu", slots=8), a_resource("gpu")]
    limits = replace(UNSTAGED, capacity=Capacity(4))
    node = Harness(resources, SECONDS, limits=limits)
    node.change_policy(Waits())
    node.handle(a_task(1, "short"))  # on the GPU, without needs
    node.handle(a_task(2, "short", needs=Needs(4)))  # waits for the GPU

    assert submit(node, 3, cores=4) == [3]
    assert finish(node, 1, at=5.0) == []  # at its turn, its cores are taken
    assert blocked(node) == [2]
    assert finish(node, 3, at=6.0) == [2]


def test_a_running_task_that_is_held_gives_its_cores_back() -> None:
    node = a_node(cores=2)
    submit(node, 1, cores=2)
    submit(node, 2, cores=2)
    record = node.scheduler.system.tasks[TaskId(1)]

    node.handle(e.TaskHeld(record.id), 1.0)
    assert started(node.handle(e.TaskYielded(record.id, record.epoch, 0.5), 2.0)) == [2]
    node.handle(e.TaskReleased(record.id), 3.0)

    assert blocked(node) == [1]
    assert finish(node, 2, at=4.0) == [1]


def test_a_blocked_task_can_be_held_moved_and_amended() -> None:
    node = a_node(cores=2)
    submit(node, 1, cores=2)
    submit(node, 2, cores=2)
    submit(node, 3, cores=2)

    node.handle(e.TaskAmended(TaskId(3), 5, None), 1.0)
    assert blocked(node) == [3, 2]
    node.handle(e.TaskMoved(TaskId(3), "cpu"), 1.0)
    node.handle(e.TaskHeld(TaskId(3)), 1.0)

    assert blocked(node) == [2]


def test_a_drain_does_not_lose_blocked_tasks() -> None:
    node = a_node(cores=2)
    submit(node, 1, cores=2)
    submit(node, 2, cores=2)
    node.handle(e.ResourceDrained("cpu"), 1.0)
    assert finish(node, 1, at=2.0) == []

    assert started(node.handle(e.ResourceReturned("cpu"), 3.0)) == [2]


def test_many_groups_are_examined_up_to_a_bound_and_all_start_in_the_end() -> None:
    node = a_node(cores=200, slots=1000)
    submit(node, 1, cores=200)
    for task in range(2, 200):
        submit(node, task, cores=task % 150 + 1)

    at, live = 1.0, node.scheduler.system.tasks
    while live:
        running = [task.id for task in live.values() if task.state == "running"]
        assert running
        finish(node, running[0], at)
        at += 1.0


def test_users_are_told_what_a_blocked_task_waits_for() -> None:
    node = a_node(cores=2)
    submit(node, 1, cores=2)
    submit(node, 2, cores=2)
    system = node.scheduler.system

    why = explain(system, system.tasks[TaskId(2)]).why

    assert why == "waits until the cores or the memory that it needs are free"
