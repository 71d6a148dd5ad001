"""One mapping event, one pass: the policies' own heuristics on a document's picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from hetsched.planning.machines import Machine, Queued
from hetsched.planning.mapper import MappingPolicy
from hetsched.planning.mapping import Bucket, MappingInput
from hetsched.policies import POLICIES, make_policy
from hetsched.policies.mokhtari import FairEnergyLatencyAware
from hetsched.queues import NEVER, DeadlineOrder
from hetsched.system import SECOND
from libtask.errors import InputError

if TYPE_CHECKING:
    from typing import Any

    from hetsched.ids import Nanoseconds
    from hetsched.planning.interpretation import Interpretation
    from hetsched.planning.mapping import MappingOutcome
    from hetsim.mapping_event import MachineState, MappingEvent, TaskState


class MappingResult(Struct, frozen=True):
    """The decisions of the pass, as `hetsim map --json` prints it.

    Attributes:
        map: task -> machine.
        expired: dropped, as their deadlines have passed.
        evicted: dropped from a local queue.
        unmapped: alive, and still waiting.

    """

    map: dict[str | int, int]
    expired: list[str | int]
    evicted: list[str | int]
    unmapped: list[str | int]
    fairness_limit: float | UnsetType = UNSET
    suffered: list[int] | UnsetType = UNSET
    format: str = "hetsim/mapping-result-1"


def mapper_of(
    policy: str, parameters: dict[str, Any], event: MappingEvent
) -> MappingPolicy:
    """Make the policy; the document's fairness factor is its default.

    Raises:
        InputError: a policy that does not map tasks in passes.

    """
    if policy == "felare" and event.fairness_factor is not UNSET:
        parameters = {"fairness_factor": event.fairness_factor, **parameters}
    mapper = make_policy(policy, parameters)
    if not isinstance(mapper, MappingPolicy):
        able = [n for n, kind in POLICIES.items() if issubclass(kind, MappingPolicy)]
        raise InputError(f"--policy: {policy} is none of {', '.join(able)}")
    return mapper


def map_once(event: MappingEvent, mapper: MappingPolicy) -> MappingResult:
    """Run one pass of Phase I and Phase II.

    Raises:
        InputError: the document lacks what the policy goes by.

    """
    fair = isinstance(mapper, FairEnergyLatencyAware)
    if fair and event.completion_rates is None:
        raise InputError("completion_rates: is missing; felare goes by it")
    outcome = mapper.heuristic()(_input(event, mapper.interpretation()))
    return _result(event, outcome, mapper)


def _result(
    event: MappingEvent, outcome: MappingOutcome[TaskState], mapper: MappingPolicy
) -> MappingResult:
    mapped = {n.task.id: int(n.machine.name) for n in outcome.chosen}
    expired = [task.id for task in event.arriving if _expired(task, event)]
    gone = {*mapped, *expired}
    limit: float | UnsetType = UNSET
    suffered: list[int] | UnsetType = UNSET
    if isinstance(mapper, FairEnergyLatencyAware):
        fairness, rates = mapper.fairness(), event.rates()
        limit = fairness.limit(rates)
        suffered = sorted(int(name) for name in fairness.suffered(rates))
    return MappingResult(
        map=mapped,
        expired=expired,
        evicted=[task.id for task in outcome.evicted],
        unmapped=[task.id for task in event.arriving if task.id not in gone],
        fairness_limit=limit,
        suffered=suffered,
    )


def _expired(task: TaskState, event: MappingEvent) -> bool:
    return task.deadline is not None and _nanoseconds(task.deadline) <= _nanoseconds(
        event.now
    )


def _input(
    event: MappingEvent, interpretation: Interpretation
) -> MappingInput[TaskState]:
    machines = [
        _machine(event, index, state, interpretation)
        for index, state in enumerate(event.machines)
    ]
    return MappingInput(_buckets(event), machines, interpretation, event.rates())


def _buckets(event: MappingEvent) -> list[Bucket[TaskState]]:
    buckets: dict[int, Bucket[TaskState]] = {}
    for number, task in enumerate(event.arriving):
        if _expired(task, event):
            continue
        if task.type not in buckets:
            times = _expected(event, task.type)
            buckets[task.type] = Bucket(str(task.type), times, DeadlineOrder())
        buckets[task.type].order.add(task, number, _due(task))
    return [bucket for bucket in buckets.values() if bucket.expected]


def _expected(event: MappingEvent, kind: int) -> dict[str, Nanoseconds]:
    return {
        str(machine): _nanoseconds(seconds)
        for machine, seconds in enumerate(event.eet[kind])
        if seconds is not None
    }


def _machine(
    event: MappingEvent, index: int, state: MachineState, interpretation: Interpretation
) -> Machine[TaskState]:
    """Picture a machine. One whose queue is as long as `slots` takes no task more."""
    machine: Machine[TaskState] = Machine(
        name=str(index),
        watts=event.p_dyn[index] if event.p_dyn is not None else 0.0,
        ends=[_end(event, index, state, interpretation)],
        places=_places(event, state, interpretation),
        cut=interpretation.cut,
    )
    machine.queue.extend(
        Queued(task, str(task.type), _time(event, task, index), _due(task))
        for task in state.queue
    )
    return machine


def _places(
    event: MappingEvent, state: MachineState, interpretation: Interpretation
) -> float:
    limit = event.slots if interpretation.places is None else interpretation.places
    if limit is None:
        return math.inf
    if state.running is None and not state.queue:
        return max(limit, 1)
    return limit - len(state.queue)


def _end(
    event: MappingEvent, index: int, state: MachineState, interpretation: Interpretation
) -> Nanoseconds:
    """Return when the running task is expected to end."""
    now, running = _nanoseconds(event.now), state.running
    if running is None:
        return now
    end = _nanoseconds(running.start) + _time(event, running, index)
    if interpretation.cut:
        end = min(end, _due(running))
    return max(end, now) if interpretation.clamped else end


def _time(event: MappingEvent, task: TaskState, machine: int) -> Nanoseconds:
    return _nanoseconds(event.eet[task.type][machine] or 0.0)


def _due(task: TaskState) -> Nanoseconds:
    return NEVER if task.deadline is None else _nanoseconds(task.deadline)


def _nanoseconds(seconds: float) -> Nanoseconds:
    return round(seconds * SECOND)
