"""Batch planners on the live node: what the policies `sct` to `ncjm` are made of.

Resources are responders, their slots accelerators, their links the ingress; a batch is
what is submitted together or arrives within a window. How late a timer fires does not
change it, so a replay of a recorded run forms the same batches. The plan says where each task
waits and in which order; the mechanism stages what comes next. Where a plan turns out
wrong, an idle resource takes a waiting task, or a running one at its next checkpoint.

Numerics are loaded when the first batch is planned, not with the policies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from hetsched import events as e
from hetsched.planning.outlook import Outlook
from hetsched.planning.stealing import running_tasks, steal, waiting_tasks
from hetsched.policy import Place, Preempt, Wake
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.planning.batch.problem import Problem
    from hetsched.planning.stealing import Offer
    from hetsched.policy import Decision
    from hetsched.system import ResourceState, System
    from hetsched.tasks import TaskRecord

CAUTION = 2.0
AMORTIZE = 10.0
LEAST_GAIN = 0.02
"""A running task moves if it is done sooner by this share of its time at least."""


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """A batch planner as a policy; fields that a policy adds are its planner's own.

    Attributes:
        planner: its name in `PLANNERS`.
        window_s: seconds from the arrival of a batch's first task until it is planned.
        most_tasks: planned at once; more are planned in several batches.
        correct: idle resources take what the plan gave to others.

    """

    planner: ClassVar[str]

    window_s: float = 0.02
    most_tasks: int = 500
    correct: bool = True

    def react(
        self, event: Event, system: System, now: Nanoseconds
    ) -> Iterator[Decision]:
        """Plan the batches whose window is over, then correct what turned out wrong."""
        if len(system.unplaced):
            yield from _plan_batches(self, system, now)
        progress = isinstance(event, e.StripsDone | e.TaskReady | e.TaskStarted)
        if self.correct and system.idle() and not (progress and len(system.unplaced)):
            outlook = Outlook(system, CAUTION, AMORTIZE)
            yield from _take_waiting(system, outlook)
            yield from _take_running(system, outlook)

    def planner_parameters(self) -> dict[str, Any]:
        """Read what the policy adds to the fields of every batch policy."""
        shared = {field.name for field in fields(BatchPolicy)}
        own = [field.name for field in fields(self) if field.name not in shared]
        return {name: getattr(self, name) for name in own}


def _plan_batches(
    policy: BatchPolicy, system: System, now: Nanoseconds
) -> Iterator[Decision]:
    window = int(policy.window_s * SECOND)
    while able := _placeable(system):
        closes = min(task.arrival for task in able) + window
        if closes > now:
            yield Wake(closes)
            return
        # later ones only if their own window is over as well: they have waited for long
        last = max(closes, now - window)
        batch = [task for task in able if task.arrival <= last]
        yield from _place(policy, system, batch[: policy.most_tasks])


def _placeable(system: System) -> list[TaskRecord]:
    """List the unplaced tasks that some resource can run now."""
    found = system.unplaced.first(len(system.unplaced))
    return [task for task in found if system.best(task.row) is not None]


def _place(
    policy: BatchPolicy, system: System, tasks: list[TaskRecord]
) -> Iterator[Place]:
    from hetsched.planning.batch.planners import make_planner

    problem, names = problem_of(system, tasks)
    plan = make_planner(policy.planner, policy.planner_parameters()).plan(problem)
    now = system.now / SECOND
    rule = f"planned by {policy.planner} in a batch of {len(tasks)}"
    for index, task in enumerate(tasks):
        name = names[int(plan.accelerators[index])]
        # later batches wait behind earlier ones
        yield Place(task.id, name, now + float(plan.starts[index]), rule)


def problem_of(system: System, tasks: list[TaskRecord]) -> tuple[Problem, list[str]]:
    """Describe a batch to the planners; also return each accelerator's resource."""
    import numpy as np

    from hetsched.planning.batch.problem import ANYWHERE, Links, Problem

    states = system.usable_states()
    slots = [state for state in states for _ in range(state.slots)]
    links = [state.resource.link_bytes_per_s or math.inf for state in states]
    seconds = [
        [system.remaining(task, slot.resource.name) for slot in slots] for task in tasks
    ]
    problem = Problem(
        seconds=np.array(seconds, dtype=np.float64),
        sizes=np.array([_bytes(task) for task in tasks], dtype=np.float64),
        requesters=np.full(len(tasks), ANYWHERE),
        responders=np.array([states.index(slot) for slot in slots]),
        free_at=np.array([at for state in states for at in _free_at(system, state)]),
        links=Links(np.array(links), np.empty(0)),
    )
    return problem, [slot.resource.name for slot in slots]


def _bytes(task: TaskRecord) -> float:
    """Return the bytes that a resource needs first: the inputs, or the state so far."""
    submitted = task.submitted
    started = task.last_resource is not None
    return float(submitted.state_bytes if started else submitted.input_bytes)


def _free_at(system: System, state: ResourceState) -> list[float]:
    """Return when each slot is expected to have done what was placed earlier, seconds."""
    name, slots = state.resource.name, state.slots
    running = [system.remaining(task, name) for task in state.running.values()]
    queued = sum(
        state.queue.count_of(row) * system.seconds(row, name)
        for row in state.queue.rows()
    )
    ends = sorted(left for left in running if left < math.inf)[:slots]
    ends += [0.0] * (slots - len(ends))
    return [end + (queued / slots if queued < math.inf else 0.0) for end in ends]


# ---------------------------------------------------------------- corrections


def _helpers(system: System) -> list[str]:
    """Names of the idle resources; one that is shared only if nothing is there."""
    return [
        name
        for name in system.idle()
        if not system.resources[name].shared or not system.running(name)
    ]


def _take_waiting(system: System, outlook: Outlook) -> Iterator[Place]:
    """Let an idle resource take a waiting task from the queue that is longest."""

    def offers(idle: list[str]) -> list[Offer]:
        dry = outlook.dry_donors()
        return [
            ((-dry[donor], -saved, task.sequence), task, name)
            for donor, task in waiting_tasks(system)
            for name in idle
            if name != donor and name in system.affinities(task.row)
            for saved in [outlook.saved_by_taking(task, donor, name, dry[donor])]
            if saved > 0
        ]

    for task, name in steal(lambda: _helpers(system), offers):
        yield Place(task.id, name, rule="an idle resource takes what would wait longer")


def _take_running(system: System, outlook: Outlook) -> Iterator[Preempt]:
    """Let an idle resource take a running task that it would have done sooner."""

    def offers(idle: list[str]) -> list[Offer]:
        return [
            ((-saved, task.sequence), task, name)
            for task in running_tasks(system)
            if task.id not in system.departing and outlook.settled(task)
            for name in idle
            if name != task.resource and name in system.affinities(task.row)
            for saved in [outlook.saved_by_moving(task, name)]
            if saved > LEAST_GAIN * outlook.until_done(task)
        ]

    for task, name in steal(lambda: _helpers(system), offers):
        yield Preempt(task.id, name, "an idle resource would have it done sooner")
