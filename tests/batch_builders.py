"""Small batches and their best makespans, found by trying everything."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from hetsched.planning.batch.flow_shop import johnson, span
from hetsched.planning.batch.problem import ANYWHERE, Links, Problem

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats


def a_problem(seconds: Any, **keys: Any) -> Problem:
    """One accelerator a responder, no limits, all jobs from one requester."""
    times = np.array(seconds, dtype=np.float64)
    jobs, machines = times.shape
    responders = keys.pop("responders", np.arange(machines))
    hosts = int(max(responders)) + 1
    links = Links(
        np.array(keys.pop("ingress", [np.inf] * hosts), dtype=np.float64),
        np.array(keys.pop("egress", [np.inf]), dtype=np.float64),
        keys.pop("promised", ()),
    )
    return Problem(
        seconds=times,
        sizes=np.array(keys.pop("sizes", [0.0] * jobs), dtype=np.float64),
        requesters=np.array(keys.pop("requesters", [0] * jobs)),
        responders=np.array(responders),
        free_at=np.array(keys.pop("free_at", [0.0] * machines), dtype=np.float64),
        links=links,
        **keys,
    )


SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5])
RATES = st.sampled_from([1.0, 2.0, 4.0, np.inf])


@st.composite
def seconds_matrices(draw: Any, most_jobs: int = 6, most_machines: int = 3) -> Floats:
    """Times of jobs on machines; some cannot run somewhere, all can somewhere."""
    jobs = draw(st.integers(1, most_jobs))
    machines = draw(st.integers(1, most_machines))
    entries = st.one_of(SECONDS, SECONDS, st.just(np.inf))
    rows = [[draw(entries) for _ in range(machines)] for _ in range(jobs)]
    for row in rows:
        if not np.isfinite(row).any():
            row[draw(st.integers(0, machines - 1))] = draw(SECONDS)
    return np.array(rows)


@st.composite
def problems(draw: Any) -> Problem:
    """Batches with several accelerators a responder, busy ones, limits and sizes."""
    seconds = draw(seconds_matrices(most_jobs=8, most_machines=4))
    jobs, machines = seconds.shape
    responders = [draw(st.integers(0, machine)) for machine in range(machines)]
    hosts, askers = max(responders) + 1, draw(st.integers(1, 3))
    return a_problem(
        seconds,
        responders=responders,
        free_at=[draw(SECONDS) for _ in range(machines)],
        sizes=[draw(SECONDS) for _ in range(jobs)],
        requesters=[draw(st.integers(ANYWHERE, askers - 1)) for _ in range(jobs)],
        ingress=[draw(RATES) for _ in range(hosts)],
        egress=[draw(RATES) for _ in range(askers)],
    )


def every_assignment(problem: Problem) -> Any:
    able = [np.flatnonzero(np.isfinite(row)).tolist() for row in problem.seconds]
    return (np.array(chosen) for chosen in itertools.product(*able))


def best_computing(problem: Problem) -> float:
    """Least makespan where transfers take no time."""
    every = np.arange(problem.jobs)
    least = np.inf
    for chosen in every_assignment(problem):
        loads = np.bincount(
            chosen, problem.seconds[every, chosen], problem.accelerators
        )
        used = np.unique(chosen)
        least = min(least, float((loads + problem.free_at)[used].max()))
    return least


def best_overlapped(problem: Problem) -> float:
    """Least makespan with ingress limits only: Johnson's rule on each responder."""
    sent = problem.transfer_seconds()
    least = np.inf
    for chosen in every_assignment(problem):
        spans = []
        for machine in np.unique(chosen):
            mine = np.flatnonzero(chosen == machine)
            a, b = sent[mine, machine], problem.seconds[mine, machine]
            order = johnson(a, b)
            spans.append(span(a[order], b[order]))
        least = min(least, max(spans))
    return least


def best_transfers(problem: Problem) -> float:
    """Least time of all transfers; by Theorem 2 the links' loads decide."""
    sent = np.bincount(problem.requesters, problem.sizes, len(problem.links.egress))
    out_of = float((sent / problem.links.egress).max())
    least = np.inf
    for chosen in every_assignment(problem):
        hosts = problem.responders[chosen]
        into = np.bincount(hosts, problem.sizes, len(problem.links.ingress))
        least = min(least, float((into / problem.links.ingress).max()))
    return max(out_of, least)
