"""The papers' random batches, with what they leave open as named parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from hetsched.planning.batch.problem import ANYWHERE, Links, Problem

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints

Case: TypeAlias = Literal["computation", "network", "both"]

MEAN_SIZE = 200.0
"""Megabits; exponential with parameter 0.005."""

RATIO = 0.001
"""Seconds of computing a megabit."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A batch of one of the papers.

    Attributes:
        jobs: in the batch.
        responders: hosts with accelerators.
        each: accelerators in a responder.
        requesters: hosts with jobs; 0: no egress limits (the ICC paper).
        ingress: of a responder, Mb/s on average.
        egress: of a requester, Mb/s on average.
        case: what matters: `computation`, `network` or `both`.
        deviation: of computing times, and in the TPDS paper of bandwidths, uniform.
        per: computing times deviate by (job, accelerator) `pair` or by `machine`.
        dealt: jobs come from the requesters `evenly` or at `random`.

    """

    jobs: int = 1000
    responders: int = 30
    each: int = 5
    requesters: int = 200
    ingress: float = 5000.0
    egress: float = 1000.0
    case: Case = "both"
    deviation: float = 0.2
    per: Literal["pair", "machine"] = "pair"
    dealt: Literal["evenly", "random"] = "evenly"

    @property
    def accelerators(self) -> int:
        return self.responders * self.each


ICC = Workload(jobs=1000, responders=50, each=1, requesters=0, ingress=1000.0)
"""The ICC paper: one accelerator a responder, 1 Gb/s each, no limit on requesters."""

TPDS = Workload()


def draw(workload: Workload, seed: int) -> Problem:
    """Draw a batch; the same seed gives the same sizes whatever the case is."""
    random = np.random.default_rng(seed)
    sizes = random.exponential(MEAN_SIZE, workload.jobs)
    seconds = sizes[:, None] * RATIO * _deviations(workload, random)
    links = _links(workload, random)
    if workload.case == "network":
        seconds = np.zeros_like(seconds)
    if workload.case == "computation":
        links = Links(np.full_like(links.ingress, np.inf), np.full_like(links.egress, np.inf))  # fmt: skip
    return Problem(
        seconds=seconds,
        sizes=sizes,
        requesters=_requesters(workload, random),
        responders=np.repeat(np.arange(workload.responders), workload.each),
        free_at=np.zeros(workload.accelerators),
        links=links,
    )


def _deviations(workload: Workload, random: Any) -> Floats:
    low, high = 1 - workload.deviation, 1 + workload.deviation
    if workload.per == "machine":
        factors = random.uniform(low, high, workload.accelerators)
        return np.tile(factors, (workload.jobs, 1))
    factors = random.uniform(low, high, (workload.jobs, workload.accelerators))
    return np.asarray(factors)


def _links(workload: Workload, random: Any) -> Links:
    spread = workload.deviation if workload.requesters else 0.0
    into = workload.ingress * random.uniform(
        1 - spread, 1 + spread, workload.responders
    )
    out_of = workload.egress * random.uniform(
        1 - spread, 1 + spread, workload.requesters
    )
    return Links(into, out_of)


def _requesters(workload: Workload, random: Any) -> Ints:
    if not workload.requesters:
        return np.full(workload.jobs, ANYWHERE)
    if workload.dealt == "random":
        return np.asarray(random.integers(0, workload.requesters, workload.jobs))
    return np.arange(workload.jobs) % workload.requesters


def mixed(workload: Workload, computing: float, seed: int) -> Problem:
    """Draw a batch of which a share computes only, and the rest transfers only."""
    problem = draw(replace(workload, case="both"), seed)
    first = np.arange(problem.jobs) < computing * problem.jobs
    shuffled = np.random.default_rng(seed).permutation(first)
    return replace(
        problem,
        seconds=np.where(shuffled[:, None], problem.seconds, 0.0),
        sizes=np.where(shuffled, 0.0, problem.sizes),
    )


def misjudged(problem: Problem, error: float, seed: int) -> Problem:
    """Return what the planner believes: each computing time is wrong by up to `error`."""
    random = np.random.default_rng(10_000 + seed)
    factors = random.uniform(1 - error, 1 + error, problem.seconds.shape)
    return replace(problem, seconds=problem.seconds * factors)
