"""A batch document as the nodes, jobs and losses of a pool."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetpool.jobs import InputFile, NodeSlot, PoolJob, PoolNode
from hetsim.batch import problem_of
from libtask.errors import InputError

if TYPE_CHECKING:
    from hetsim.batch import Batch, Id, JobModel

UNIT = 1000
"""Bytes of a chunk in the model; a chunk is a share of the mean size of the batch."""


@dataclass(frozen=True, slots=True)
class HostLoss:
    """A node that is lost; `back` may be infinite. Seconds."""

    node: str
    at: float
    back: float


@dataclass(frozen=True, slots=True, eq=False)
class PoolModel:
    """A pool and what is submitted to it.

    Attributes:
        jobs: by number; `arrivals`: when each is submitted, seconds.
        seconds: of each job on each accelerator, as expected: (jobs, accelerators).
        nodes: responders with their accelerators as slots, requesters without slots.
        accelerators: number by (node, slot); `free_at`: of each, seconds.
        scale: bytes of the model for a unit of the document.

    """

    batch: Batch
    jobs: tuple[PoolJob, ...]
    arrivals: tuple[float, ...]
    seconds: np.ndarray[tuple[int, int], np.dtype[np.float64]]
    nodes: dict[str, PoolNode]
    accelerators: dict[tuple[str, str], int]
    free_at: tuple[float, ...]
    losses: tuple[HostLoss, ...]
    scale: float


def model_of(batch: Batch, chunks: int) -> PoolModel:
    """Turn a document into a pool.

    Args:
        batch: the document.
        chunks: in which data of the mean size is sent.

    Raises:
        InputError: a name that is not there; or keys that only `hetsim plan` knows.

    """
    problem = problem_of(batch)
    _refuse(batch)
    sizes = problem.sizes[problem.sizes > 0]
    scale = chunks * UNIT / float(sizes.mean()) if len(sizes) else 1.0
    jobs = [
        _job(batch, number, problem.seconds[number], scale)
        for number in range(problem.jobs)
    ]
    nodes = _nodes(batch, scale)
    return PoolModel(
        batch,
        tuple(jobs),
        tuple(job.arrival for job in batch.jobs),
        problem.seconds,
        nodes,
        {
            (_host("responder", each.responder), str(each.id)): number
            for number, each in enumerate(batch.accelerators)
        },
        tuple(each.free_at or 0.0 for each in batch.accelerators),
        tuple(_losses(batch, nodes)),
        scale,
    )


def _refuse(batch: Batch) -> None:
    for index, job in enumerate(batch.jobs):
        if job.source is not None:
            raise InputError(
                f"jobs[{index}].source: hetsim pool knows requesters only; hetsim plan"
                " has jobs that arise in a responder"
            )
        for each in job.also_at:
            if each not in {one.id for one in batch.requesters}:
                raise InputError(f'jobs[{index}].also_at: no requester "{each}"')
    if batch.promised:
        raise InputError("promised: hetsim pool keeps what its own plans promise")


def _job(batch: Batch, number: int, seconds: object, scale: float) -> PoolJob:
    model = batch.jobs[number]
    times = np.asarray(seconds, dtype=np.float64).tolist()
    expected = {
        f"{_host('responder', each.responder)}/{each.id}": time
        for each, time in zip(batch.accelerators, times, strict=True)
        if time < math.inf
    }
    return PoolJob(
        id=str(number),
        app=str(model.id),
        seconds=expected,
        inputs=_inputs(model, number, scale),
    )


def _inputs(model: JobModel, number: int, scale: float) -> tuple[InputFile, ...]:
    size = math.ceil((model.size or 0.0) * scale)
    if not size:
        return ()
    if model.requester is None:
        return (InputFile(str(number), size),)
    holders = (model.requester, *model.also_at)
    sources = tuple(_host("requester", each) for each in holders)
    return (InputFile(str(number), size, sources),)


def _nodes(batch: Batch, scale: float) -> dict[str, PoolNode]:
    slots: dict[str, list[NodeSlot]] = {}
    for each in batch.accelerators:
        host = _host("responder", each.responder)
        slots.setdefault(host, []).append(NodeSlot(str(each.id), str(each.id)))
    nodes = [
        PoolNode(
            name,
            name,
            tuple(slots.get(name, ())),
            ingress=each.ingress * scale if each.ingress else None,
        )
        for each in batch.responders
        for name in [_host("responder", each.id)]
    ]
    nodes += [
        PoolNode(name, name, egress=each.egress * scale if each.egress else None)
        for each in batch.requesters
        for name in [_host("requester", each.id)]
    ]
    return {node.name: node for node in nodes}


def _losses(batch: Batch, nodes: dict[str, PoolNode]) -> list[HostLoss]:
    losses = []
    for index, each in enumerate(batch.losses):
        found = [
            name
            for side in ("responder", "requester")
            for name in [_host(side, each.host)]
            if name in nodes
        ]
        if not found:
            raise InputError(f'losses[{index}].host: no host "{each.host}"')
        back = math.inf if each.back is None else each.back
        if back <= each.at:
            raise InputError(f"losses[{index}].back: not after {each.at:g} s")
        losses += [HostLoss(name, each.at, back) for name in found]
    return _merged(losses)


def _merged(losses: list[HostLoss]) -> list[HostLoss]:
    """Make one loss of those of a node that overlap or follow each other at once."""
    merged: dict[str, list[HostLoss]] = {}
    for loss in sorted(losses, key=lambda each: each.at):
        own = merged.setdefault(loss.node, [])
        if own and loss.at <= own[-1].back:
            own[-1] = HostLoss(loss.node, own[-1].at, max(loss.back, own[-1].back))
        else:
            own.append(loss)
    return [loss for own in merged.values() for loss in own]


def _host(side: str, name: Id) -> str:
    """Name a host: a responder and a requester may have one id."""
    return f"{side} {name}"
