"""Batches whose transfers matter, not their computation: Algorithm 3 of zhao-2018-tpds.

NIM-OR, the program with all responders as one, has a closed form: with f the least of
(all ingress) / (all data) and of each requester's (egress) / (data), job i is sent at
the rate s_i f. The jobs are then assigned to responders so that these rates have to be
scaled down least, which is the assignment problem with e_ij = s_i / B_j.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.assignment import Effort, assign
from hetsched.planning.batch.bounds import into_responders, one_responder_bound
from hetsched.planning.batch.executor import timed
from hetsched.planning.batch.network import NO_PIECES, Network
from hetsched.planning.batch.problem import ANYWHERE, Links, Problem

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints
    from hetsched.planning.batch.plan import Plan


def network_intensive(problem: Problem, effort: Effort, *, residual: bool = True) -> Plan:  # fmt: skip
    """Plan a batch by Algorithm 3; beside earlier batches, the better of two schemes.

    The one waits until the earlier transfers are done, the other uses what they leave.
    """
    promised = problem.links.promised
    alone = replace(problem, links=replace(problem.links, promised=()))
    if not promised:
        return _scaled(alone, effort, 0.0, residual=residual)
    wait = max(promise.finish for promise in promised)
    waiting = _scaled(alone, effort, wait, residual=residual)
    left = replace(problem, links=_left(problem.links))
    if not _passable(left):
        return waiting
    beside = _scaled(left, effort, 0.0, residual=residual)
    return min(beside, waiting, key=lambda plan: plan.makespan)


def _left(links: Links) -> Links:
    """Return the capacity that earlier batches leave of the links at all times."""
    network = Network(links)
    into = [network.into(host).rates.min() for host in range(len(links.ingress))]
    out_of = [network.out_of(host).rates.min() for host in range(len(links.egress))]
    return Links(np.array(into), np.array(out_of))


def _passable(problem: Problem) -> bool:
    """Whether every job could be sent at once, at some rate."""
    sending = np.unique(problem.requesters[problem.requesters != ANYWHERE])
    out_of = bool((problem.links.egress[sending] > 0).all())
    with np.errstate(divide="ignore", invalid="ignore"):
        times = into_responders(problem)
    return out_of and bool(np.isfinite(times).any(axis=1).all())


def _scaled(problem: Problem, effort: Effort, wait: float, *, residual: bool) -> Plan:
    """Carry Algorithm 3 out, all transfers starting at `wait` seconds."""
    responders = _responders(problem, effort)
    limits = np.minimum(problem.links.ingress[responders], problem.egress_of())
    sent = (problem.sizes > 0) & np.isfinite(limits)
    rates = np.where(sent, _rates(problem, responders), 0.0)
    if residual:
        rates = rates + _extra(problem, responders, rates)
    ends = np.full(problem.jobs, wait)
    ends[sent] += problem.sizes[sent] / rates[sent]
    pieces = np.column_stack([np.full(problem.jobs, wait), ends, rates])
    transfers = [pieces[j : j + 1] if sent[j] else NO_PIECES for j in range(len(sent))]
    sequence = np.argsort(ends, kind="stable")
    chosen = _inside(problem, responders, sequence, ends)
    return timed(problem, chosen, sequence, transfers)


def _responders(problem: Problem, effort: Effort) -> Ints:
    """Assign jobs to responders: the least scaling down (model 5 of the paper)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        times = into_responders(problem)
    times = np.where(np.isnan(times), np.inf, times)
    return assign(times, np.zeros(times.shape[1]), effort).machines


def _rates(problem: Problem, responders: Ints) -> Floats:
    """Rates of NIM-OR, scaled down where a responder's link is too narrow."""
    time = one_responder_bound(problem)
    # some responder is unlimited: NIM-OR ends at once, and the other links decide alone
    rates = problem.sizes / time if time > 0 else problem.sizes
    used = np.bincount(responders, rates, len(problem.links.ingress))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(used > 0, used / problem.links.ingress, 0.0)
    scale = np.maximum(ratio, 1.0) if time > 0 else np.where(used > 0, ratio, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(rates / scale[responders])


def _extra(problem: Problem, responders: Ints, rates: Floats) -> Floats:
    """Give what is left of the links to the shortest jobs first."""
    known = problem.requesters != ANYWHERE
    links = problem.links
    into = links.ingress - np.bincount(responders, rates, len(links.ingress))
    sent = np.bincount(problem.requesters[known], rates[known], len(links.egress))
    out_of = np.append(links.egress - sent, np.inf)  # the last is `ANYWHERE`
    extra = np.zeros(problem.jobs)
    for job in np.argsort(problem.sizes, kind="stable").tolist():
        responder, requester = responders[job], problem.requesters[job]
        spare = min(into[responder], out_of[requester])
        if rates[job] > 0 and np.isfinite(spare) and spare > 0:
            extra[job] = spare
            into[responder] -= spare
            out_of[requester] -= spare
    return extra


def _inside(problem: Problem, responders: Ints, sequence: Ints, ends: Floats) -> Ints:
    """Choose an accelerator in each job's responder: the one that is done first."""
    free = problem.free_at.astype(np.float64)
    hosts = range(len(problem.links.ingress))
    inside = [np.flatnonzero(problem.responders == host) for host in hosts]
    chosen = np.zeros(problem.jobs, dtype=np.int64)
    for job in sequence.tolist():
        machines = inside[int(responders[job])]
        done = np.maximum(free[machines], ends[job]) + problem.seconds[job, machines]
        best = machines[int(done.argmin())]
        free[best] = done.min()
        chosen[job] = best
    return chosen
