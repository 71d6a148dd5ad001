"""Runs of traces under policies, on all cores; each is done once however many figures ask.

Only sums come back from the other processes, not the tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean, pstdev, stdev
from typing import TYPE_CHECKING

from hetpapers.mokhtari_felare.systems import SYSTEMS
from hetpapers.mokhtari_felare.traces import TASKS, TraceReading, make_trace
from hetsim.processes import on_all_cores
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_done: dict[Case, Outcome] = {}


@dataclass(frozen=True, slots=True)
class Case:
    """One trace under one policy.

    Attributes:
        settings: parameters of the policy.

    """

    policy: str
    rate: float
    seed: int = 0
    system: str = "table1"
    settings: tuple[tuple[str, str], ...] = ()
    trace: TraceReading = field(default_factory=TraceReading)
    tasks: int = TASKS


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. Shares are percent of the tasks, energies joules.

    Attributes:
        types: share completed in time, by type.

    """

    completed: float
    missed: float
    cancelled: float
    evicted: float
    energy: float
    wasted: float
    types: dict[str, float]

    @property
    def spread(self) -> float:
        """Standard deviation over types, of the population."""
        return pstdev(self.types.values())

    @property
    def unsuccessful(self) -> float:
        return 100.0 - self.completed


def run_all(cases: Sequence[Case]) -> list[Outcome]:
    """Run the cases that were not run yet, on all cores."""
    wanted = [case for case in dict.fromkeys(cases) if case not in _done]
    _done.update(zip(wanted, on_all_cores(run_case, wanted), strict=True))
    return [_done[case] for case in cases]


def run_case(case: Case) -> Outcome:
    """Run one case."""
    system = SYSTEMS[case.system]
    trace = make_trace(system, case.rate, case.seed, case.trace, case.tasks)
    result = simulate(trace, case.policy, dict(case.settings))
    share = 100.0 / len(result.tasks)
    counts = result.counts
    return Outcome(
        completed=share * counts["completed"],
        missed=share * (counts["missed"] + counts["failed"]),
        cancelled=share * counts["cancelled"],
        evicted=share * counts["evicted"],
        energy=result.energy.total,
        wasted=result.energy.wasted,
        types={name: 100.0 * rate for name, rate in sorted(result.rates.items())},
    )


def over_seeds(case: Case, seeds: int) -> list[Case]:
    """List the case with each seed."""
    return [
        Case(
            case.policy,
            case.rate,
            seed,
            case.system,
            case.settings,
            case.trace,
            case.tasks,
        )
        for seed in range(seeds)
    ]


def run_grid(cases: Sequence[Case], seeds: int) -> dict[Case, list[Outcome]]:
    """Run each case with each seed."""
    spread = [over_seeds(case, seeds) for case in cases]
    run_all([one for many in spread for one in many])
    return {case: run_all(many) for case, many in zip(cases, spread, strict=True)}


def mean_of(outcomes: list[Outcome], what: Callable[[Outcome], float]) -> float:
    """Mean over the traces."""
    return fmean(map(what, outcomes))


def interval_of(
    outcomes: list[Outcome], what: Callable[[Outcome], float]
) -> float | None:
    """Half the width of the 95 % confidence interval of the mean (Student's t), if any."""
    count = len(outcomes)
    if count < 2:  # noqa: PLR2004  one value has no spread
        return None
    from scipy.special import stdtrit

    values = [what(outcome) for outcome in outcomes]
    quantile = float(stdtrit(count - 1, 0.975))
    return float(quantile * stdev(values) / math.sqrt(count))
