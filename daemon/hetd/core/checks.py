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
    running = task.state is State.RUNNING
    story = f"task {task.id} is {task.state} and in {places}: {task.tell()}"
    _demand(len(places) == int(task.state.placeable or running), story)
    _demand(running == any(place.startswith("running") for place in places), story)
    _demand(task.bound or not running, f"runs without a worker: {story}")
    kept = task.bound or task.progress <= task.kept
    _demand(kept, f"progress without a worker or a snapshot: {story}")
    leaving = task.preempting or task.cancelling is not None
    _demand(leaving == (task.id in system.departing), f"departs, or not: {story}")
    _demand(leaving or task.destination is None, f"destined, but stays: {story}")
    _demand(all(other in system.tasks for other in task.unmet), f"waits on: {story}")
    waits = task.state is State.WAITING
    _demand(bool(task.unmet) or not waits, f"waits for nothing: {story}")


def _demand(truth: bool, complaint: str) -> None:  # noqa: FBT001  reads as a sentence
    if not truth:
        raise BugError(complaint)
