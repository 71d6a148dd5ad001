"""Two-phase mapping: which waiting task goes to which machine in one mapping event.

Phase I nominates a machine for each task, Phase II chooses among the nominees of each
machine (mokhtari-felare, IV and VI-B). Tasks of one type have the same times and differ
in deadlines only, so both phases go through types, not tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

from hetsched.ids import Nanoseconds
from hetsched.planning.interpretation import Interpretation
from hetsched.planning.machines import Machine
from hetsched.queues import NEVER, DeadlineOrder

T = TypeVar("T")
Key: TypeAlias = tuple[int, ...]
"""Rank in Phase II; the smallest wins, and its last number, arrival, breaks ties."""


@dataclass(slots=True)
class Bucket(Generic[T]):
    """Waiting tasks of one type.

    Attributes:
        expected: machine -> expected time; machines that cannot run it are absent.
        order: its tasks by deadline.

    """

    type: str
    expected: dict[str, Nanoseconds]
    order: DeadlineOrder[T]


@dataclass(frozen=True, slots=True)
class Nominee(Generic[T]):
    """A task that Phase I gave to a machine."""

    key: Key
    task: T
    bucket: Bucket[T]
    machine: Machine[T]


@dataclass(frozen=True, slots=True)
class MappingInput(Generic[T]):
    """The input of a heuristic.

    Attributes:
        rates: share of each type completed in time; fairness goes by it.

    """

    buckets: list[Bucket[T]]
    machines: list[Machine[T]]
    interpretation: Interpretation
    rates: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MappingOutcome(Generic[T]):
    """The decisions of one pass of both phases, in this order.

    Attributes:
        evicted: waiting tasks, already mapped, that make way.
        chosen: the tasks that are mapped; at most one for each machine.
        hopeless: for each type the instant before which deadlines cannot be met.

    """

    evicted: list[T]
    chosen: list[Nominee[T]]
    hopeless: list[tuple[Bucket[T], Nanoseconds]]


class Urgency(Protocol):
    """Phase II of a baseline: orders the tasks of a bucket that go to one machine."""

    def __call__(
        self, order: DeadlineOrder[T], completion: Nanoseconds, expected: Nanoseconds
    ) -> tuple[Key, T]:
        """Return the first task and its key, given when it would be complete."""
        ...


# ------------------------------------------------------------ MM, MSD, MMU


def baseline_pass(given: MappingInput[T], urgency: Urgency) -> MappingOutcome[T]:
    """Map by completion time, then as `urgency` says; late tasks too."""
    nominees = soonest_pairs(given, urgency)
    return MappingOutcome([], choose(nominees, given.interpretation), [])


def soonest_pairs(given: MappingInput[T], urgency: Urgency) -> list[Nominee[T]]:
    """Nominate for each type the machine that completes it soonest."""
    nominees = []
    for bucket in given.buckets:
        found = _soonest(bucket, given.machines, given.interpretation)
        if found is not None:
            completion, machine = found
            expected = bucket.expected[machine.name]
            key, task = urgency(bucket.order, completion, expected)
            nominees.append(Nominee(key, task, bucket, machine))
    return nominees


def _soonest(
    bucket: Bucket[T], machines: list[Machine[T]], interpretation: Interpretation
) -> tuple[Nanoseconds, Machine[T]] | None:
    best: tuple[Nanoseconds, Machine[T]] | None = None
    for machine in machines:
        expected = bucket.expected.get(machine.name)
        if expected is None or (machine.places < 1 and not interpretation.full):
            continue
        completion = machine.start() + expected
        if best is None or completion < best[0]:
            best = completion, machine
    return best


def least_completion(
    order: DeadlineOrder[T],
    completion: Nanoseconds,
    expected: Nanoseconds,
) -> tuple[Key, T]:
    """Order by expected completion (MM)."""
    _, number, task = order.oldest() or order.soonest()
    return (completion, number), task


def soonest_deadline(
    order: DeadlineOrder[T],
    completion: Nanoseconds,
    expected: Nanoseconds,
) -> tuple[Key, T]:
    """Order by deadline, equal ones by expected completion (MSD)."""
    deadline, number, task = order.soonest()
    return (deadline, completion, number), task


def most_urgent(
    order: DeadlineOrder[T],
    completion: Nanoseconds,
    expected: Nanoseconds,
) -> tuple[Key, T]:
    """Order by urgency 1 / (deadline - completion), tasks that are late last (MMU)."""
    in_time = order.first_from(completion)
    deadline, number, task = in_time or order.soonest()
    return (int(in_time is None), deadline - completion, number), task


def most_urgent_as_printed(
    order: DeadlineOrder[T], completion: Nanoseconds, expected: Nanoseconds
) -> tuple[Key, T]:
    """Order by urgency 1 / (deadline - execution time), as printed (MMU)."""
    return most_urgent(order, expected, completion)


# ------------------------------------------------------------ ELARE, FELARE


def efficient_pass(given: MappingInput[T]) -> MappingOutcome[T]:
    """Map what can be done in time to where it takes least energy (ELARE)."""
    nominees, hopeless = efficient_pairs(given)
    return MappingOutcome([], choose(nominees, given.interpretation), hopeless)


def efficient_pairs(
    given: MappingInput[T],
) -> tuple[list[Nominee[T]], list[tuple[Bucket[T], Nanoseconds]]]:
    """Nominate for each task the machine that completes it in time with least energy.

    Returns:
        The first nominee of each type for each machine, and for each type the instant
        before which deadlines cannot be met.

    """
    nominees: list[Nominee[T]] = []
    hopeless = []
    for bucket in given.buckets:
        reach = NEVER + 1
        for energy, completion, _, machine in _offers(bucket, given):
            needed = completion + given.interpretation.margin
            if needed >= reach:
                continue
            # Deadlines from `reach` on can be met on a machine that takes less energy.
            found = bucket.order.oldest(needed, reach)
            if found is not None:
                _, number, task = found
                nominees.append(Nominee((energy, number), task, bucket, machine))
            reach = needed
        hopeless.append((bucket, reach))
    return nominees, hopeless


def energy_of(machine: Machine[T], expected: Nanoseconds) -> int:
    """Expected energy of a task that is completed (equation 2), in nanojoules."""
    return round(machine.watts * expected)


def _offers(
    bucket: Bucket[T], given: MappingInput[T]
) -> list[tuple[int, Nanoseconds, int, Machine[T]]]:
    """List (energy, completion, number, machine), the least energy first."""
    offers = []
    full = given.interpretation.full
    for number, machine in enumerate(given.machines):
        expected = bucket.expected.get(machine.name)
        if expected is not None and (machine.places >= 1 or full):
            completion = machine.start() + expected
            offers.append((energy_of(machine, expected), completion, number, machine))
    offers.sort()
    return offers


# ------------------------------------------------------------ Phase II


def choose(
    nominees: list[Nominee[T]], interpretation: Interpretation
) -> list[Nominee[T]]:
    """Choose the first nominee of each machine, or only one in all (`single`)."""
    chosen: dict[str, Nominee[T]] = {}
    for nominee in nominees:
        best = chosen.get(nominee.machine.name)
        if best is None or nominee.key < best.key:
            chosen[nominee.machine.name] = nominee
    able = [nominee for nominee in chosen.values() if nominee.machine.places >= 1]
    if interpretation.single and able:
        return [min(able, key=lambda nominee: nominee.key)]
    return able
