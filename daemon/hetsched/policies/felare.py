"""`felare`: energy- and latency-aware mapping that is fair to task types."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from hetsched.planning.fairness import Fairness, fair_pass
from hetsched.planning.mapper import MappingPolicy

if TYPE_CHECKING:
    from hetsched.planning.mapper import Heuristic


@dataclass(frozen=True, slots=True)
class FairEnergyLatencyAware(MappingPolicy):
    """FELARE: ELARE with types that fall behind first, and others making way for them.

    Attributes:
        fairness_factor: f of equation 3.
        deviation: that of a `population` or a `sample`.
        suffer_at_limit: a type whose rate equals the fairness limit suffers too.
        others: while an infeasible task that suffers waits, others `go` or `wait`; None:
            as the preset says.
        evict: tasks that do not suffer make way for infeasible ones that do; with
            `evict_in_vain` even where that does not help.
        reading, deferrals, ...: see `Mapping`.

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
        """Resolve the preset and what is set besides."""
        preset = "wait" if self.reading == "authors-code" else "go"
        return Fairness(
            factor=self.fairness_factor,
            sample=self.deviation == "sample",
            at_limit=self.suffer_at_limit,
            block=(self.others or preset) == "wait",
            evict=self.evict,
            in_vain=self.evict_in_vain,
        )
