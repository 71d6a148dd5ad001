"""The five mapping heuristics of mokhtari-felare: MM, MSD, MMU, ELARE and FELARE.

Each is `MappingPolicy` (`hetsched.planning.mapper`) with one heuristic. Where the paper
leaves something open, a parameter decides: see `hetsched.planning.interpretation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from hetsched.planning.fairness import Fairness, fair_pass
from hetsched.planning.mapper import MappingPolicy
from hetsched.planning.mapping import (
    baseline_pass,
    efficient_pass,
    least_completion,
    most_urgent,
    most_urgent_as_printed,
    soonest_deadline,
)

if TYPE_CHECKING:
    from hetsched.planning.mapper import Heuristic


@dataclass(frozen=True, slots=True)
class MinMin(MappingPolicy):
    """MM: each task to where it ends soonest; of those the one that ends soonest.

    Attributes:
        reading, deferrals, ...: see `MappingParameters`.

    """

    def heuristic(self) -> Heuristic:
        return partial(baseline_pass, urgency=least_completion)


@dataclass(frozen=True, slots=True)
class MinSoonestDeadline(MappingPolicy):
    """MSD: each task to where it ends soonest; of those the one due soonest.

    Attributes:
        reading, deferrals, ...: see `MappingParameters`.

    """

    def heuristic(self) -> Heuristic:
        return partial(baseline_pass, urgency=soonest_deadline)


@dataclass(frozen=True, slots=True)
class MinMaxUrgency(MappingPolicy):
    """MMU: each task to where it ends soonest; of those the one with least time to spare.

    Attributes:
        urgency: 1 / (deadline - c): c is the expected `completion`, or the `execution`
            time, as printed.
        reading, deferrals, ...: see `MappingParameters`.

    """

    urgency: Literal["completion", "execution"] = "completion"

    def heuristic(self) -> Heuristic:
        if self.urgency == "execution":
            return partial(baseline_pass, urgency=most_urgent_as_printed)
        return partial(baseline_pass, urgency=most_urgent)


@dataclass(frozen=True, slots=True)
class EnergyLatencyAware(MappingPolicy):
    """ELARE: what can be done in time, to where it takes least energy.

    Attributes:
        reading, deferrals, ...: see `MappingParameters`.

    """

    def heuristic(self) -> Heuristic:
        return efficient_pass


@dataclass(frozen=True, slots=True)
class FairEnergyLatencyAware(MappingPolicy):
    """FELARE: ELARE with types that fall behind first, and others making way for them.

    Attributes:
        fairness_factor: f of equation 3.
        deviation: that of a `population` or a `sample`.
        suffer_at_limit: a type whose rate equals the fairness limit suffers too.
        others: what other tasks do while an infeasible task that suffers waits: `go` or
            `wait`; None: as the preset says.
        evict: tasks that do not suffer make way for infeasible ones that do; with
            `evict_in_vain` even where that does not help.
        reading, deferrals, ...: see `MappingParameters`.

    """

    fairness_factor: float = 1.0
    deviation: Literal["population", "sample"] = "population"
    suffer_at_limit: bool = False
    others: Literal["go", "wait"] | None = None
    evict: bool = True
    evict_in_vain: bool = False

    def heuristic(self) -> Heuristic:
        return partial(fair_pass, fairness=self.fairness())

    def fairness(self) -> Fairness:
        """Resolve the preset and the parameters that override it."""
        preset = "wait" if self.reading == "authors-code" else "go"
        return Fairness(
            factor=self.fairness_factor,
            sample=self.deviation == "sample",
            at_limit=self.suffer_at_limit,
            block=(self.others or preset) == "wait",
            evict=self.evict,
            in_vain=self.evict_in_vain,
        )
