"""Rounds a split plan so that each machine gets one split job at most.

Algorithm 1 of zhao-2018-icc gives a job to any of its child machines, Algorithm 2 of
zhao-2018-tpds to the one that serves most of it. The machine had T to do already, and a
job takes no longer than T on a machine that has a share of it: the plan takes 2 T.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetsched.planning.batch.arrays import Ints
    from hetsched.planning.batch.splitting import Split


class _Graph:
    """Jobs (as they are) and machines (as ~machine), with the shares between them."""

    def __init__(self, split: Split) -> None:
        self.near: defaultdict[int, dict[int, float]] = defaultdict(dict)
        for job, machine, share in zip(
            split.jobs.tolist(),
            split.machines.tolist(),
            split.shares.tolist(),
            strict=True,
        ):
            self.near[job][~machine] = share
            self.near[~machine][job] = share

    def remove(self, node: int) -> None:
        for other in self.near.pop(node):
            del self.near[other][node]

    def jobs(self) -> list[int]:
        return [node for node in self.near if node >= 0]


def round_split(split: Split, jobs: int, *, most: bool = True) -> Ints:
    """Assign each job to one machine; (jobs,).

    Args:
        split: its connected parts are trees plus one edge at most.
        jobs: how many there are.
        most: a job goes to the child that serves most of it; False: to the first.

    """
    chosen = np.full(jobs, -1, dtype=np.int64)
    graph = _Graph(split)
    for job in graph.jobs():
        if len(graph.near[job]) == 1:
            chosen[job] = ~next(iter(graph.near[job]))
            graph.remove(job)
    for job, machine in _on_cycles(graph):
        chosen[job] = machine
    _round_trees(graph, chosen, most=most)
    return chosen


def _on_cycles(graph: _Graph) -> list[tuple[int, int]]:
    """Orient each cycle, give each of its jobs the machine after it; remove them."""
    left = _core(graph)
    given: list[tuple[int, int]] = []
    while left:
        job = next(node for node in left if node >= 0)
        while job in left:
            left.discard(job)
            machine = next(node for node in graph.near[job] if node in left)
            left.discard(machine)
            given.append((job, ~machine))
            job = next((n for n in graph.near[machine] if n in left), -1)
    for job, machine in given:
        graph.remove(job)
        graph.remove(~machine)
    return given


def _core(graph: _Graph) -> set[int]:
    """Peel leaves off until only the cycles are left."""
    degree = {node: len(near) for node, near in graph.near.items()}
    leaves = [node for node, count in degree.items() if count <= 1]
    left = set(degree)
    while leaves:
        node = leaves.pop()
        left.discard(node)
        for other in graph.near[node]:
            degree[other] -= 1
            if degree[other] == 1 and other in left:
                leaves.append(other)
    return left


def _round_trees(graph: _Graph, chosen: Ints, *, most: bool) -> None:
    """Root each tree at its only job leaf, or at any job, and go down."""
    jobs = sorted(graph.jobs(), key=lambda job: (len(graph.near[job]), job))
    seen: set[int] = set()
    for root in jobs:
        waiting = [] if root in seen else [root]
        while waiting:
            job = waiting.pop()
            seen.add(job)
            children = [node for node in graph.near[job] if node not in seen]
            chosen[job] = ~_child(graph, job, children, most=most)
            seen.update(children)
            below = (node for child in children for node in graph.near[child])
            waiting.extend(node for node in below if node not in seen)


def _child(graph: _Graph, job: int, children: Iterable[int], *, most: bool) -> int:
    # ~machine falls as the machine's number rises: the first machine is the greatest node
    if most:
        return max(children, key=lambda node: (graph.near[job][node], node))
    return max(children)
