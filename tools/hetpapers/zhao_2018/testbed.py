"""The testbed of zhao-2018-tpds (section 5.1): four requesters, two responders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetpapers.figures import Claim, Figure
from hetpapers.zhao_2018.study import improvement
from hetpapers.zhao_2018.tpds_runs import OURS, PAPER, planners_of
from hetsched.planning.batch.problem import Links, Problem

if TYPE_CHECKING:
    from hetpapers.figures import Row
    from hetsched.planning.batch.arrays import Floats

MEGABITS = np.array([2400.0, 2400.0, 2400.0, 7200.0])
"""Word counting: 300, 300, 300 and 900 MB."""

PHOTOS = np.array([6000.0, 6000.0, 6000.0, 18000.0])
SECONDS_A_PHOTO = 1e-3
"""Not given; it cancels out of every ratio."""

SLOW_FIRST = np.array([500.0, 1000.0])
"""Mb/s into the responders. With LJF the slower one must be the first to choose, or LJF
is best: 9.6 s."""


def figure_2a(_seeds: int) -> Figure:
    """Word counting, network-intensive."""
    problem = _problem(
        MEGABITS, np.zeros((4, 2)), Links(SLOW_FIRST, np.full(4, 1000.0))
    )
    row = _makespans(problem, "network")
    claims = [
        Claim("NIM less than SJF", 19.56, improvement(row["paper"], row["sjf"]), "%"),
        Claim("NIM less than LJF", 33.72, improvement(row["paper"], row["ljf"]), "%"),
    ]
    note = "SJF: of two responders free at once, the faster chooses first"
    return Figure("fig2a", [row], claims, "testbed, word counting (s)", note)


def figure_2b(_seeds: int) -> Figure:
    """Neural networks, computation-intensive, equal accelerators."""
    seconds = np.repeat(PHOTOS[:, None] * SECONDS_A_PHOTO, 2, axis=1)
    unlimited = Links(np.full(2, np.inf), np.full(4, np.inf))
    row = _makespans(_problem(PHOTOS, seconds, unlimited), "computation")
    claims = [
        Claim("CIM less than SJF", 25.80, improvement(row["paper"], row["sjf"]), "%"),
        Claim("CIM less than LJF", 0.0, improvement(row["paper"], row["ljf"]), "%"),
    ]
    return Figure("fig2b", [row], claims, "testbed, neural networks (s)")


def _problem(sizes: Floats, seconds: Floats, links: Links) -> Problem:
    return Problem(
        seconds=seconds,
        sizes=sizes,
        requesters=np.arange(4),
        responders=np.arange(2),
        free_at=np.zeros(2),
        links=links,
    )


def _makespans(problem: Problem, case: str) -> Row:
    planners = {**planners_of(case), "paper": PAPER[case], "ours": OURS[case]}
    return {name: each.plan(problem).makespan for name, each in planners.items()}
