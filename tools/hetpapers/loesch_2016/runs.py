"""Runs of the paper's scenarios, each done once however many figures ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from hetpapers.loesch_2016.scenarios import make_scenario
from hetsim.bound import lower_bound_of
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetpapers.loesch_2016.reading import Reading
    from hetpapers.loesch_2016.task_sets import Case
    from hetsim.result import Result

_done: dict[tuple[object, ...], Result] = {}
_bounds: dict[tuple[object, ...], float] = {}


@dataclass(frozen=True, slots=True)
class Errors:
    """How wrong the scheduler's expectations are.

    Attributes:
        noise: by up to this share.
        correct: whether strips correct them while they run, as in the daemon.
        seed: of the errors; None: the number of the order of arrival.

    """

    noise: float = 0.0
    correct: bool = False
    seed: int | None = None


NO_ERRORS = Errors()


def run_one(
    case: Case, reading: Reading, policy: str, errors: Errors = NO_ERRORS
) -> Result:
    """Run one case under one policy; the tasks themselves are left out of the result."""
    key = (case, repr(reading), policy, errors)
    if key not in _done:
        scenario = make_scenario(case, reading)
        result = simulate(
            scenario,
            policy,
            noise=errors.noise,
            seed=case.order if errors.seed is None else errors.seed,
            correct=errors.correct,
        )
        _done[key] = msgspec.structs.replace(result, tasks=[])
    return _done[key]


def makespans(
    cases: Iterable[Case], reading: Reading, policy: str, errors: Errors = NO_ERRORS
) -> list[float]:
    """Makespan of each case, in seconds."""
    return [run_one(case, reading, policy, errors).makespan for case in cases]


def bounds(cases: Iterable[Case], reading: Reading) -> list[float]:
    """Lower bound of the makespan of each case, in seconds."""
    return [_bound(case, reading) for case in cases]


def _bound(case: Case, reading: Reading) -> float:
    key = (case, repr(reading))
    if key not in _bounds:
        _bounds[key] = lower_bound_of(make_scenario(case, reading))
    return _bounds[key]
