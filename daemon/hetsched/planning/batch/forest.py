"""Corollary 1: makes every connected part of a split plan a tree plus one edge at most.

Jobs and machines are the nodes, shares the edges. A part with more edges than nodes is
solved again by itself; a vertex of the small program has no more shares than the part
has nodes, so that it falls apart or becomes a pseudo-tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import null_space
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hetsched.planning.batch.splitting import LEAST_SHARE, Split, split_at

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints

MOST_PASSES = 8


def pseudo_forest(
    split: Split,
    seconds: Floats,
    free_at: Floats,
    time: float,
    solver_seconds: float = 10.0,
) -> Split:
    """Return a split plan as short as `split` whose parts are all pseudo-trees.

    Args:
        split: a plan that takes `time` at most.
        seconds: (jobs, machines).
        free_at: seconds, one a machine.
        time: pairs longer than this stay forbidden, seconds.
        solver_seconds: the time for each part; where it does not do, edges are
            cancelled along the null space instead.

    """
    for _ in range(MOST_PASSES):
        labels, crowded = _crowded(split, seconds.shape)
        if not len(crowded):
            return split
        kept = [split.part(~np.isin(labels, crowded))]
        for label in crowded:
            part = split.part(labels == label)
            solved = _solve_again(part, seconds, free_at, (time, solver_seconds))
            kept.append(solved or cancelled(part, seconds))
        split = _joined(kept)
    return cancelled(split, seconds)


def _crowded(split: Split, shape: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Label each edge with its part; list the parts with more edges than nodes."""
    jobs, machines = shape
    edges = (np.ones(len(split.jobs)), (split.jobs, jobs + split.machines))
    graph = coo_array(edges, shape=(jobs + machines, jobs + machines))
    count, nodes = connected_components(graph, directed=False)
    labels = nodes[split.jobs]
    surplus = np.bincount(labels, minlength=count) - np.bincount(nodes, minlength=count)
    return labels, np.flatnonzero(surplus > 0)


def _solve_again(
    part: Split, seconds: Floats, free_at: Floats, limits: tuple[float, float]
) -> Split | None:
    time, solver_seconds = limits
    jobs, machines = np.unique(part.jobs), np.unique(part.machines)
    own = seconds[np.ix_(jobs, machines)]
    free = free_at[machines]
    # the part's own edges stay allowed, whatever rounding did to `time`
    allowed = own + free <= time
    lines, places = np.searchsorted(jobs, part.jobs), np.searchsorted(machines, part.machines)  # fmt: skip
    allowed[lines, places] = True
    found = split_at(own, free, allowed, solver_seconds)
    if found is None or len(found.jobs) >= len(part.jobs):
        return None
    return Split(jobs[found.jobs], machines[found.machines], found.shares)


def cancelled(split: Split, seconds: Floats) -> Split:
    """Move shares along the null space until no part has more edges than nodes.

    Such a move changes neither what a job has in all nor what a machine has to do.
    """
    while True:
        labels, crowded = _crowded(split, seconds.shape)
        if not len(crowded):
            return split
        inside = labels == crowded[0]
        moved = _one_less(split.part(inside), seconds)
        split = _joined([split.part(~inside), moved])


def _one_less(part: Split, seconds: Floats) -> Split:
    jobs, lines = np.unique(part.jobs, return_inverse=True)
    machines, places = np.unique(part.machines, return_inverse=True)
    edges = np.arange(len(lines))
    matrix = np.zeros((len(jobs) + len(machines), len(edges)))
    matrix[lines, edges] = 1.0
    own = seconds[part.jobs, part.machines]
    matrix[len(jobs) + places, edges] = own / own.max()
    way = null_space(matrix)[:, 0]
    if way.min() >= 0:
        way = -way
    falling = way < 0
    length = (part.shares[falling] / -way[falling]).min()
    shares = part.shares + length * way
    dropped = int(np.where(falling, shares, np.inf).argmin())
    keep = shares > LEAST_SHARE
    keep[dropped] = False
    return Split(part.jobs, part.machines, shares).part(keep)


def _joined(parts: list[Split]) -> Split:
    return Split(
        np.concatenate([part.jobs for part in parts]),
        np.concatenate([part.machines for part in parts]),
        np.concatenate([part.shares for part in parts]),
    )
