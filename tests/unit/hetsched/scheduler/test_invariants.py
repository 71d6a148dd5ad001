"""The check of invariants: each broken one is reported, with the story of the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from builders import Harness, a_task
from hetsched import events as e
from hetsched.accounts import NOBODY
from hetsched.ids import TaskId
from hetsched.tasks import Cancel, Hold, State, Yield
from libtask.errors import BugError
from unit.hetsched.scheduler.expected_actions import CPU, GPU, ONE, THREE, TWO

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.system import System

FOUR = TaskId(4)


def busy() -> Harness:
    """Task 1 runs on the CPU, 2 waits for it; 3 is held, 4 waits for 3."""
    node = Harness([CPU, GPU], policy="affinity")
    node.handle(a_task(1, resources={"cpu"}))
    node.handle(a_task(2, resources={"cpu"}))
    node.handle(a_task(3, hold=True))
    node.handle(a_task(4, after=(3,)))
    node.handle(e.NodeStarted())
    system = node.scheduler.system
    assert [system.tasks[t].state.value for t in (ONE, TWO, THREE, FOUR)] == [
        "running",
        "queued",
        "held",
        "waiting",
    ]
    return node


def _waits_nowhere(system: System) -> None:
    system.queue("cpu").remove(system.tasks[TWO])


def _stands_in_two_queues(system: System) -> None:
    task = system.tasks[TWO]
    system.deferred[7] = type(system.unplaced)()
    system.queue("cpu").remove(task)
    task.resource = None
    system.deferred[7].push(task)
    system.unplaced.push(task)


def _loses_a_row(system: System) -> None:
    system.queue("cpu")._buckets.clear()


def _has_a_wrong_head(system: System) -> None:
    task = system.tasks[THREE]
    system.queue("cpu")._heads[system.tasks[TWO].row] = ((0, 0.0, NOBODY, 0), task)


def _runs_too_much(system: System) -> None:
    system.states["cpu"].running[TWO] = system.tasks[TWO]


def _idles(system: System) -> None:
    system.states["cpu"].running.clear()


def _waits_for_what_is_lost(system: System) -> None:
    system.states["cpu"].up = False


def _is_a_stranger(system: System) -> None:
    del system.tasks[TWO]


def _change(task: TaskId, **fields: object) -> Callable[[System], None]:
    def change(system: System) -> None:
        for name, value in fields.items():
            setattr(system.tasks[task], name, value)

    return change


def _miscounts(**fields: float) -> Callable[[System], None]:
    def miscount(system: System) -> None:
        for name, value in fields.items():
            setattr(system.tasks[ONE].row.account, name, value)

    return miscount


def _leaves_waiting(system: System) -> None:
    system.departing[THREE] = system.tasks[THREE]
    system.tasks[THREE].intent = Yield()


def _leaves_ended(system: System) -> None:
    ended = replace(system.tasks[TWO], state=State.COMPLETED)
    system.departing[TaskId(9)] = ended


BROKEN: dict[str, tuple[Callable[[System], None], str]] = {
    "nowhere": (
        _waits_nowhere,
        r"not in exactly one place: task 2 is queued and in \[\]: ",
    ),
    "twice": (
        _stands_in_two_queues,
        r"not in exactly one place: task 2 is queued and in \['unplaced', 'deferred, of 7'\]",
    ),
    "held in a queue": (
        _change(TWO, state=State.HELD),
        r"not in exactly one place: task 2 is held and in \['queue of cpu'\]",
    ),
    "queue unknown": (
        _change(TWO, resource="gpu0"),
        "task 2 has another resource than its queue",
    ),
    "row lost": (_loses_a_row, "queue of cpu lacks a row"),
    "head": (_has_a_wrong_head, "queue of cpu has a wrong head"),
    "too much": (_runs_too_much, "cpu runs more tasks than it has slots"),
    "idle": (_idles, "cpu has a free slot while tasks wait for it"),
    "not usable": (_waits_for_what_is_lost, "tasks wait for cpu, which is not usable"),
    "elsewhere": (
        _change(ONE, resource="gpu0"),
        "task 1 has another resource than the one that runs it",
    ),
    "stranger": (
        _is_a_stranger,
        r"task 2 is in \['queue of cpu'\], but not in the table of tasks",
    ),
    "runs, or not": (
        _change(ONE, state=State.PREEMPTED),
        "state and place disagree: task 1 is preempted",
    ),
    "no worker": (
        _change(ONE, bound=False),
        "runs without a worker: task 1 is running and in .*: 0: queued -Dispatched->",
    ),
    "departs": (
        _change(ONE, intent=Yield()),
        "intent and departing tasks disagree: task 1",
    ),
    "cancels": (
        _change(ONE, intent=Cancel("so")),
        "intent and departing tasks disagree: task 1",
    ),
    "stops waiting": (
        _change(TWO, intent=Hold()),
        "has an intent, but does not run: task 2",
    ),
    "leaves waiting": (_leaves_waiting, "has an intent, but does not run: task 3"),
    "leaves ended": (_leaves_ended, "task 2 is departing while completed"),
    "progress": (
        _change(TWO, progress=0.5),
        "progress without a worker or a snapshot: task 2",
    ),
    "waits for an end": (
        _change(FOUR, unmet=frozenset({TaskId(9)})),
        "depends on an ended task: task 4",
    ),
    "waits for nothing": (
        _change(FOUR, unmet=frozenset()),
        "waits for no task and no instant: task 4",
    ),
    "waits for two things": (
        lambda system: system.beginnings.add(system.tasks[FOUR]),
        "waits for an instant while it does not wait, or waits for a task: task 4",
    ),
    "waits uncounted": (_miscounts(waiting=3), "1 tasks wait, and 3 are counted"),
    "runs uncharged": (_miscounts(running=2), "1 tasks run, and 2 are charged"),
    "charged wrongly": (
        _miscounts(charged=9.0),
        r"charges of 0.0 s, and 9.0 are counted",
    ),
    "too often": (_change(ONE, retried=1), "was run again too often: task 1"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_invariant_is_reported(name: str) -> None:
    spoil, message = BROKEN[name]
    node = busy()

    spoil(node.scheduler.system)

    with pytest.raises(BugError, match=message):
        node.scheduler.check()


def test_a_task_may_have_progress_where_a_snapshot_holds_it() -> None:
    node = busy()
    task = node.scheduler.system.tasks[TWO]

    task.progress = task.kept = 0.5

    node.scheduler.check()
