"""Invariants of the scheduler's state, checked after every step of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.core.tasks import State
from libtask.errors import BugError

if TYPE_CHECKING:
    from hetd.core.system import System


def check(system: System) -> None:
    """Raise `BugError` where a task is in two places or none, or a slot is overused."""
    places: dict[int, list[str]] = {task: [] for task in system.tasks}
    for task in system.unplaced:
        places[task.id].append("unplaced")
    for name, state in system.states.items():
        _demand(len(state.running) <= state.resource.slots, f"{name} runs too much")
        for task in state.queue:
            places[task.id].append(f"queue of {name}")
            _demand(task.resource == name, f"task {task.id} does not know its queue")
        for task in state.running.values():
            places[task.id].append(f"running on {name}")
            _demand(task.state is State.RUNNING, f"task {task.id} runs, {task.state}")
            _demand(task.bound, f"task {task.id} runs without a worker")
    for task in system.tasks.values():
        expected = int(task.state.placeable or task.state is State.RUNNING)
        found = places[task.id]
        _demand(
            len(found) == expected,
            f"task {task.id} is {task.state} and in {found}: {task.story}",
        )
    for name, state in system.states.items():
        idle = state.usable and len(state.running) < state.resource.slots
        _demand(
            not (idle and len(state.queue)), f"{name} idles while tasks wait for it"
        )


def _demand(truth: bool, complaint: str) -> None:  # noqa: FBT001  reads as a sentence
    if not truth:
        raise BugError(complaint)
