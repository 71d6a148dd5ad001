"""Fairness over task types: which types suffer, and which tasks make way for them (mokhtari-felare, V)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from hetsched.planning.mapping import (
    Bucket,
    MappingInput,
    MappingOutcome,
    Nominee,
    choose,
    efficient_pairs,
    energy_of,
)

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds

T = TypeVar("T")
NOISE = 1e-12
"""Completion rates closer than this are equal: with two types and a factor of 1 the lower
rate equals the limit, which rounding must not turn into suffering."""


@dataclass(frozen=True, slots=True)
class Fairness:
    """An interpretation of fairness.

    Attributes:
        factor: f of equation 3; a higher one is less aggressive.
        sample: the standard deviation is that of a sample, not of the population.
        at_limit: a type whose rate equals the limit suffers too, as in Algorithm 4.
        block: a waiting suffered task keeps all others waiting, even where it is
            infeasible itself.
        evict: tasks that do not suffer make way for infeasible ones that do.
        in_vain: they do so even if the suffered task stays infeasible.

    """

    factor: float = 1.0
    sample: bool = False
    at_limit: bool = False
    block: bool = False
    evict: bool = True
    in_vain: bool = False

    def limit(self, rates: dict[str, float]) -> float:
        """Work out the fairness limit of these completion rates (equation 3)."""
        if not rates:
            return 0.0
        mean = math.fsum(rates.values()) / len(rates)
        squares = math.fsum([(rate - mean) ** 2 for rate in rates.values()])
        members = max(len(rates) - int(self.sample), 1)
        return mean - self.factor * math.sqrt(squares / members)

    def suffered(self, rates: dict[str, float]) -> set[str]:
        """Name the types whose completion rate is below the fairness limit."""
        slack = NOISE if self.at_limit else -NOISE
        limit = self.limit(rates) + slack
        return {name for name, rate in rates.items() if rate < limit}


def fair_pass(given: MappingInput[T], fairness: Fairness) -> MappingOutcome[T]:
    """Map as ELARE does, tasks that suffer first; others make way for them (FELARE)."""
    nominees, hopeless = efficient_pairs(given)
    suffered = fairness.suffered(given.rates)
    waiting = [bucket for bucket in given.buckets if bucket.type in suffered]
    urgent = [nominee for nominee in nominees if nominee.bucket.type in suffered]
    evicted: list[T] = []
    if waiting and fairness.evict:
        wanted = [pair for pair in hopeless if pair[0].type in suffered]
        demands = _demands(wanted, given, suffered, fairness)
        evicted = _make_way(demands, suffered)
        urgent += [demand.nominee for demand in demands if demand.fits]
    if not urgent and not (fairness.block and waiting):
        urgent = nominees
    return MappingOutcome(evicted, choose(urgent, given.interpretation), hopeless)


@dataclass(frozen=True, slots=True)
class Demand(Generic[T]):
    """A suffered task that is infeasible, and how many have to go for it."""

    nominee: Nominee[T]
    count: int
    fits: bool


def _demands(
    wanted: list[tuple[Bucket[T], Nanoseconds]],
    given: MappingInput[T],
    suffered: set[str],
    fairness: Fairness,
) -> list[Demand[T]]:
    """Find for each machine the first suffered task to arrive that others can help."""
    demands: dict[str, Demand[T]] = {}
    for bucket, reach in wanted:
        demand = _demand(bucket, reach, given, suffered)
        if demand is None or not (demand.fits or fairness.in_vain):
            continue
        name = demand.nominee.machine.name
        if name not in demands or _number(demand) < _number(demands[name]):
            demands[name] = demand
    return list(demands.values())


def _number(demand: Demand[T]) -> int:
    """Place of the task in the order of arrival."""
    return demand.nominee.key[-1]


def _demand(
    bucket: Bucket[T], reach: Nanoseconds, given: MappingInput[T], suffered: set[str]
) -> Demand[T] | None:
    """Look what the first infeasible task of a type needs on its fastest machine."""
    able = [machine for machine in given.machines if machine.name in bucket.expected]
    if not able:
        return None
    machine = min(able, key=lambda machine: bucket.expected[machine.name])
    most = len(machine.evictable(suffered))
    if most == 0:
        return None
    expected = bucket.expected[machine.name]
    needed = [
        machine.start_without(count, suffered) + expected + given.interpretation.margin
        for count in range(1, most + 1)
    ]
    found = bucket.order.oldest(needed[-1], reach)
    fits = found is not None
    deadline, number, task = found or bucket.order.oldest(stop=reach) or (0, 0, None)
    if task is None:
        return None
    count = sum(end > deadline for end in needed[:-1]) + 1
    key = (energy_of(machine, expected), number)
    return Demand(Nominee(key, task, bucket, machine), count, fits)


def _make_way(demands: list[Demand[T]], suffered: set[str]) -> list[T]:
    """Evict from the tail, one at a time, until each demand is met."""
    evicted = []
    for demand in demands:
        machine = demand.nominee.machine
        for queued in machine.evictable(suffered)[: demand.count]:
            machine.evict(queued)
            evicted.append(queued.task)
    return evicted
