"""Invariants of the scheduler's state, checked after every step of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.core.tasks import State
from libtask.errors import BugError

if TYPE_CHECKING:
    from hetd.core.queues import RunQueue
    from hetd.core.system import ResourceState, System
    from hetd.core.tasks import TaskRecord


def check(system: System) -> None:
    """Raise `BugError` where a task is in two places or none, or a slot is overused."""
    places: dict[int, list[str]] = {task: [] for task in system.tasks}
    _check_queue("unplaced", None, system.unplaced, places)
    for owner, queue in system.outside.items():
        _check_queue(f"outside the quota of {owner}", None, queue, places)
    for name, state in system.states.items():
        _check_queue(f"queue of {name}", name, state.queue, places)
        _check_running(name, state, places)
    for task in system.tasks.values():
        _check_task(task, places[task.id], system)
    for task in system.departing.values():
        _demand(task.state is State.RUNNING, f"task {task.id} leaves, {task.state}")


def _check_queue(
    where: str, resource: str | None, queue: RunQueue, places: dict[int, list[str]]
) -> None:
    for task in queue:
        places[task.id].append(where)
        _demand(task.resource == resource, f"task {task.id} does not know its queue")
    rows = set(queue.rows())
    _demand(rows == {task.row for task in queue}, f"{where} has lost a row")
    for row in rows:
        head = queue.head_of(row)
        _demand(head in queue and head.row is row, f"{where} has a wrong head")


def _check_running(
    name: str, state: ResourceState, places: dict[int, list[str]]
) -> None:
    slots, running = state.resource.slots, len(state.running)
    _demand(running <= slots, f"{name} runs too much")
    idle = state.usable and running < slots
    _demand(not (idle and state.queue), f"{name} idles while tasks wait for it")
    _demand(state.usable or not state.queue, f"tasks wait for {name}, not usable")
    for task in state.running.values():
        places[task.id].append(f"running on {name}")
        _demand(task.resource == name, f"task {task.id} does not know where it runs")


def _check_task(task: TaskRecord, places: list[str], system: System) -> None:
    for truth, complaint in _facts(task, places, system):
        if not truth:  # only then is its story told, which takes longest
            story = f"task {task.id} is {task.state} and in {places}: {task.tell()}"
            raise BugError(f"{complaint}: {story}")


def _facts(
    task: TaskRecord, places: list[str], system: System
) -> tuple[tuple[bool, str], ...]:
    state = task.state
    running, waits = state is State.RUNNING, state is State.WAITING
    runs = any(place.startswith("running") for place in places)
    leaving = task.preempting or task.cancelling is not None
    kept = task.bound or task.progress <= task.kept
    return (
        (len(places) == int(state.placeable or running), "nowhere, or twice"),
        (running == runs, "runs, or not"),
        (task.bound or not running, "runs without a worker"),
        (kept, "progress without a worker or a snapshot"),
        (leaving == (task.id in system.departing), "departs, or not"),
        (leaving or task.destination is None, "destined, but stays"),
        (all(other in system.tasks for other in task.unmet), "waits on what ended"),
        (bool(task.unmet) or not waits, "waits for nothing"),
    )


def _demand(truth: bool, complaint: str) -> None:  # noqa: FBT001  reads as a sentence
    if not truth:
        raise BugError(complaint)
