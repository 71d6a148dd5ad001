"""Runs of settings under policies, on all cores; each is done once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from hetpapers.banerjee.testbed import Setting, make_scenario
from hetsim.processes import on_all_cores
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsim.result import Result

FIRST_SEED = 3000
"""Seeds below were looked at while parameters were chosen; no network was trained on any."""
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy in a setting; `parameters`: of the policy."""

    policy: str
    setting: Setting = field(default_factory=Setting)
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two means over the same draws, with its 95 % interval."""

    value: float
    low: float
    high: float


def completion_of(case: tuple[Contender, int]) -> float:
    """Return the mean completion time of the jobs of one draw, in seconds."""
    result = result_of(case)
    times = [job.completion for job in result.jobs or []]
    return fmean(time for time in times if time is not None)


def result_of(case: tuple[Contender, int]) -> Result:
    """Run a contender on one draw."""
    contender, seed = case
    scenario = make_scenario(contender.setting, seed)
    return simulate(
        scenario,
        contender.policy,
        dict(contender.parameters),
        noise=contender.setting.wrong,
        seed=seed,
    )


def run_contenders(
    contenders: Sequence[Contender], draws: int
) -> dict[Contender, list[float]]:
    """Run each contender on the same draws; return the completion time of each draw."""
    wanted = list(dict.fromkeys(contenders))
    cases = [(c, FIRST_SEED + number) for c in wanted for number in range(draws)]
    found = on_all_cores(completion_of, cases)
    return {
        contender: found[number * draws : (number + 1) * draws]
        for number, contender in enumerate(wanted)
    }


def ratio_of(times: Sequence[float], others: Sequence[float]) -> Ratio:
    """Return the ratio of the means, with a paired bootstrap over the draws."""
    generator = random.Random(1)
    indices = range(len(times))
    found = []
    for _ in range(RESAMPLES):
        drawn = generator.choices(indices, k=len(times))
        whole = sum(others[i] for i in drawn)
        found.append(sum(times[i] for i in drawn) / whole)
    found.sort()
    edge = RESAMPLES // 40
    return Ratio(fmean(times) / fmean(others), found[edge], found[-1 - edge])
