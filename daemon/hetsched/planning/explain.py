"""Why a task waits or runs where it does, in figures. Pure; for users, not for policies."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.planning.outlook import Outlook
from hetsched.system import SECOND
from hetsched.tasks import State

if TYPE_CHECKING:
    from hetsched.ids import TaskId
    from hetsched.system import System
    from hetsched.tasks import Row, TaskRecord


RESOURCE_LOST = "the resource is lost"
MINUTE = 60
LISTED = 50
"""Tasks that are named in one line."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """The expected course of a task on a resource. Times are seconds; infinite: never.

    Attributes:
        affinity: to it, by the policy's objective.
        remaining: what the task has left to do there, alone; `spread`: its standard
            deviation.
        ahead: tasks that it would wait for, running or before it in the queue.
        wait: until it could start there.
        moving: to bring its state there.
        finish: until it would be done there.
        note: why it cannot run there.

    """

    resource: str
    affinity: float = 0.0
    remaining: float = math.inf
    spread: float = math.inf
    ahead: int = 0
    wait: float = math.inf
    moving: float = 0.0
    finish: float = math.inf
    note: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task is where it is, and its prospect on every resource."""

    why: str
    rule: str
    prospects: list[Prospect]


def explain(system: System, task: TaskRecord) -> Explanation:
    """Explain where a task is."""
    before = _count_before(system, task)
    return Explanation(
        _why(system, task, before), _rule(task), _prospects(system, task, before)
    )


def estimate(system: System, task: TaskRecord) -> list[Prospect]:
    """Estimate the prospects of a task that is not submitted: behind all that waits."""
    return _prospects(system, task, Counter())


def _prospects(
    system: System, task: TaskRecord, before: Counter[Row]
) -> list[Prospect]:
    return [prospect(system, task, name, before) for name in system.resources]


def _count_before(system: System, task: TaskRecord) -> Counter[Row]:
    """Count the tasks that wait before one in its queue, by row."""
    if task.resource is None or task not in system.queue(task.resource):
        return Counter()
    queue = system.queue(task.resource)
    return queue.count_ahead_of(task)


def prospect(
    system: System, task: TaskRecord, name: str, before: Counter[Row]
) -> Prospect:
    """Estimate the prospect of a task on a resource if nothing else is changed."""
    note = _hindrance(system, task, name)
    if note:
        return Prospect(name, note=note)
    outlook = Outlook(system, 1.0, 1.0)
    remaining = outlook.left(task, name)
    running_here = task.state is State.RUNNING and task.resource == name
    ahead, wait = (0, 0.0) if running_here else _ahead(system, task, name, before)
    moving = outlook.moving(task, name)
    pace = outlook.pace(name, newcomers=0 if running_here else 1)
    return Prospect(
        resource=name,
        affinity=system.affinity(task.row, name),
        remaining=remaining,
        spread=system.remaining_spread(task, name),
        ahead=ahead,
        wait=wait,
        moving=moving,
        finish=wait + moving + remaining * pace,
    )


def _hindrance(system: System, task: TaskRecord, name: str) -> str:
    """Say why a task cannot run on a resource now; empty: it can."""
    state, row = system.states[name], task.row
    if state.resource.kind not in row.kinds:
        return f"no implementation for {state.resource.kind}"
    if name in task.excluded:
        why = task.failures.get(name)
        return f"failed there before: {why}" if why else "failed there before"
    if row.resources and name not in row.resources:
        avoided = _avoidance(system, task, name)
        return avoided or "its owner does not want it there"
    if not (state.up and state.slots):
        return RESOURCE_LOST
    return "the resource is being drained" if state.draining else ""


def _avoidance(system: System, task: TaskRecord, name: str) -> str:
    """Say why a task avoids a resource, and until when; empty: it does not."""
    circuit = system.breaker.find(task.submitted, name)
    if circuit is None:
        return ""
    left = max(0, circuit.retry_at - system.now) / SECOND
    until = f"avoided for another {_duration(left)}"
    if circuit.half_open:
        until = "avoided until another task has tried it"
    times = f"{circuit.failures} failure{'s' * (circuit.failures != 1)} in a row"
    return f"{until}: {times}, the last: {circuit.fault.reason}"


def _ahead(
    system: System, task: TaskRecord, name: str, own: Counter[Row]
) -> tuple[int, float]:
    """Count the tasks before this one on a resource, and the time until it has a slot."""
    state = system.states[name]
    others = [other for other in state.running.values() if other is not task]
    before = own if task in system.queue(name) else _queued(system, name)
    ahead = len(others) + sum(before.values())
    slots = max(1, state.slots)
    if ahead < slots:
        return 0, 0.0
    work = 0.0
    for other in others:
        work += system.remaining(other, name)
    for row, count in before.items():
        work += system.seconds(row, name) * count
    # Tasks that share a resource run at the same time, and leave it one after the other.
    share = (ahead - slots + 1) / ahead if state.resource.shared else 1 / slots
    return ahead, work * share


def _queued(system: System, name: str) -> dict[Row, int]:
    """Count all that wait for a resource."""
    queue = system.queue(name)
    return {row: queue.count_of(row) for row in queue.rows()}


def _why(system: System, task: TaskRecord, before: Counter[Row]) -> str:
    """Say what a task does, or what it waits for."""
    match task.state:
        case State.HELD:
            return "is held until its owner releases it"
        case State.WAITING:
            return _why_not_ready(system, task)
        case State.RUNNING:
            return _why_running(system, task)
        case _:
            return _why_waiting(system, task, before)


def _why_not_ready(system: System, task: TaskRecord) -> str:
    """Say which tasks or which instant a task waits for."""
    submitted = task.submitted
    if task in system.beginnings:
        seconds = max(0, task.not_before - system.now) / SECOND
        if not task.retried:
            return f"begins in {_duration(seconds)}, as its owner asked"
        pause = _duration(seconds)
        return f"retries in {pause}, for time {task.retried} of {submitted.retries}"
    if task.awaits_parts:
        return f"waits for its parts: {_some(sorted(task.parts_left))}"
    anyhow = submitted.after_any or submitted.after_notok
    end = "end" if anyhow else "complete"
    return f"waits for {_some(sorted(task.unmet))} to {end}"


def _duration(seconds: float) -> str:
    """Format a duration with the units in which people think of it."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / MINUTE), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def _some(tasks: list[TaskId]) -> str:
    """List tasks, the first of them where they are many."""
    listed = ", ".join(map(str, tasks[:LISTED]))
    more = len(tasks) - LISTED
    return f"{listed} and {more} more" if more > 0 else listed


def _why_running(system: System, task: TaskRecord) -> str:
    if task.not_started and task.train:
        return f"waits for {task.resource}, in the worker that runs task {task.train[0].id}"
    if task.cancelling is not None:
        return f"runs on {task.resource} until its next checkpoint: {task.cancelling}"
    if task.holding:
        return f"runs on {task.resource} until its next checkpoint, to be held"
    if task.preempting:
        destination = task.destination or "wherever the policy says"
        return f"leaves {task.resource} at its next checkpoint for {destination}"
    return _how_it_runs(system, task)


def _how_it_runs(system: System, task: TaskRecord) -> str:
    if task.id in system.awaited:
        others = sorted(
            other for other in system.awaited[task.id] if other in system.tasks
        )
        return f"waits on {task.resource} for {_some(others)}, which may use its slot"
    if task.lent:
        return f"runs on {task.resource}, in the slot of a task that waits for it"
    return f"runs on {task.resource}"


def _why_waiting(system: System, task: TaskRecord, before: Counter[Row]) -> str:
    if task.resource is not None:
        ahead, _ = _ahead(system, task, task.resource, before)
        return f"waits for {task.resource}, behind {ahead} other{'s' * (ahead != 1)}"
    if not system.feasible(task.row):
        return "waits until a resource that can run it is usable"
    return _why_hidden(system, task)


def _why_hidden(system: System, task: TaskRecord) -> str:
    """Say why a task is kept from the policy, if it is."""
    if system.array_queue(task) is not None:
        most = task.submitted.at_once
        return f"waits for others of its array: at most {most} at once"
    if task in system.blocked:
        return "waits until the cores or the memory that it needs are free"
    if task in system.deferred.get(task.submitted.owner, ()):
        if task.submitted.owner in system.unattended:
            return "keeps out of the way of others"
        return "waits until other tasks of its owner end: they use the whole quota"
    return "waits: the policy has not given it to a resource yet"


def _rule(task: TaskRecord) -> str:
    """Name the rule that put a task where it is."""
    if task.pinned is not None:
        return f"its owner moved it to {task.pinned}"
    return task.rule
