"""The batch document: what `hetsim plan` reads. Checked whole before anything is planned.

Beside the fixed keys there are some of our own: an accelerator's `reconfigure_s`, a job's
`source` (the responder where it arises) and `promised`, the rates that earlier batches
still use. `hetsim pool` also reads a job's `arrival` and `also_at` and the `losses` of
hosts, which a plan for one instant does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
from msgspec import Meta, Struct

from hetsched.planning.batch.executor import TOLERANCE, peak_rate
from hetsched.planning.batch.problem import ANYWHERE, Links, Problem, Promise
from hetsim.data_sources import ELSEWHERE, settled
from hetsim.documents import convert, decode_json, read_document
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMAT = "hetsim/batch-1"

Id: TypeAlias = str | int
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Rate: TypeAlias = Annotated[float, Meta(gt=0)]


class AcceleratorModel(Struct, frozen=True):
    """An accelerator. `reconfigure_s` is added to the seconds of each of its jobs."""

    id: Id
    responder: Id
    free_at: Amount | None = 0.0
    reconfigure_s: Amount | None = 0.0


class ResponderModel(Struct, frozen=True):
    """A host with accelerators; `ingress` null: no limit."""

    id: Id
    ingress: Rate | None = None


class RequesterModel(Struct, frozen=True):
    """A host with jobs; `egress` null: no limit."""

    id: Id
    egress: Rate | None = None


class JobModel(Struct, frozen=True):
    """A job.

    Attributes:
        source: the responder where it arises, if it is not a requester's.
        arrival: when it is submitted, seconds (`hetsim pool`).
        also_at: other requesters that have its data (`hetsim pool`).

    """

    id: Id
    size: Amount | None = 0.0
    requester: Id | None = None
    source: Id | None = None
    arrival: Amount = 0.0
    also_at: list[Id] = []


class LossModel(Struct, frozen=True):
    """A responder or requester that is lost at some time; `back`: when it returns, empty."""

    host: Id
    at: Amount
    back: Amount | None = None


class PromiseModel(Struct, frozen=True):
    """A rate that an earlier batch uses."""

    responder: Id
    finish: Amount
    rate: Rate
    requester: Id | None = None
    start: Amount = 0.0


class Batch(Struct, frozen=True):
    """The whole document."""

    format: str
    accelerators: Annotated[list[AcceleratorModel], Meta(min_length=1)]
    jobs: list[JobModel]
    seconds: list[list[Amount | None]]
    responders: list[ResponderModel] = []
    requesters: list[RequesterModel] = []
    promised: list[PromiseModel] = []
    losses: list[LossModel] = []


def read_batch(path: Path) -> Batch:
    """Read and check a batch file.

    Raises:
        InputError: unreadable or malformed; names the file and the place.

    """
    return read_document(path, decode_batch)


def decode_batch(text: bytes | str) -> Batch:
    """Check a batch as JSON text.

    Raises:
        InputError: malformed; names the place.

    """
    batch = convert(decode_json(text), Batch)
    if batch.format != FORMAT:
        raise InputError(f'format: expected "{FORMAT}", got "{batch.format}"')
    _check_seconds(batch)
    return batch


def _check_seconds(batch: Batch) -> None:
    jobs, machines = len(batch.jobs), len(batch.accelerators)
    if len(batch.seconds) != jobs:
        raise InputError(
            f"seconds: expected {jobs} lists, one a job, got {len(batch.seconds)}"
        )
    for index, row in enumerate(batch.seconds):
        if len(row) != machines:
            raise InputError(
                f"seconds[{index}]: expected {machines} numbers, one an accelerator,"
                f" got {len(row)}"
            )
        if all(value is None for value in row):
            job = batch.jobs[index].id
            raise InputError(f'seconds[{index}]: job "{job}" can run nowhere')


def problem_of(batch: Batch) -> Problem:
    """Turn a document into arrays.

    Raises:
        InputError: a name that is not there, or there twice; a job that can run nowhere.

    """
    _Names("jobs", [job.id for job in batch.jobs])
    _Names("accelerators", [each.id for each in batch.accelerators])
    responders = _Names("responders", [each.id for each in batch.responders])
    requesters = _Names("requesters", [each.id for each in batch.requesters])
    hosts = [
        responders.find(each.responder, f"accelerators[{index}].responder")
        for index, each in enumerate(batch.accelerators)
    ]
    askers = [
        requesters.find_any(job.requester, f"jobs[{index}].requester")
        for index, job in enumerate(batch.jobs)
    ]
    problem = Problem(
        seconds=_seconds(batch),
        sizes=_floats(job.size or 0.0 for job in batch.jobs),
        requesters=np.array(askers, dtype=np.int64),
        responders=np.array(hosts, dtype=np.int64),
        free_at=_floats(each.free_at or 0.0 for each in batch.accelerators),
        links=_links(batch, responders, requesters),
    )
    return _settled(batch, problem, responders)


class _Names:
    """Numbers of the ids of one table."""

    def __init__(self, table: str, ids: Sequence[Id]) -> None:
        self._table = table
        self._numbers: dict[Id, int] = {}
        for index, name in enumerate(ids):
            if name in self._numbers:
                raise InputError(f'{table}[{index}].id: "{name}" is there already')
            self._numbers[name] = index

    def find(self, name: Id, place: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            offered = ", ".join(f'"{one}"' for one in list(self._numbers)[:10])
            what = self._table.removesuffix("s")
            raise InputError(
                f'{place}: no {what} "{name}"; there are: {offered or "none"}'
            )
        return number

    def find_any(self, name: Id | None, place: str) -> int:
        return ANYWHERE if name is None else self.find(name, place)


def _seconds(batch: Batch) -> Any:
    rows = [[np.inf if v is None else v for v in row] for row in batch.seconds]
    seconds = np.array(rows, dtype=np.float64)
    seconds = seconds.reshape(len(batch.jobs), len(batch.accelerators))
    return seconds + _floats(each.reconfigure_s or 0.0 for each in batch.accelerators)


def _links(batch: Batch, responders: _Names, requesters: _Names) -> Links:
    promised = tuple(
        Promise(
            responders.find(each.responder, f"promised[{index}].responder"),
            requesters.find_any(each.requester, f"promised[{index}].requester"),
            each.start,
            each.finish,
            each.rate,
        )
        for index, each in enumerate(batch.promised)
    )
    ingress = [_rate(each.ingress) for each in batch.responders]
    egress = [_rate(each.egress) for each in batch.requesters]
    _check_promised(
        batch.responders, ingress, [each.responder for each in promised], promised
    )
    _check_promised(
        batch.requesters, egress, [each.requester for each in promised], promised
    )
    return Links(_floats(ingress), _floats(egress), promised)


def _check_promised(
    hosts: Sequence[ResponderModel | RequesterModel],
    limits: Sequence[float],
    numbers: Sequence[int],
    promised: Sequence[Promise],
) -> None:
    """Refuse promises that exceed what a host's link carries: no plan could keep them.

    Args:
        hosts: the responders or the requesters, and their `limits`.
        numbers: the one of them that each promise uses.

    """
    used: dict[int, list[tuple[float, float, float]]] = {}
    for number, each in zip(numbers, promised, strict=True):
        used.setdefault(number, []).append((each.start, each.finish, each.rate))
    used.pop(ANYWHERE, None)
    for number, pieces in used.items():
        peak = peak_rate(np.array(pieces))
        if peak > limits[number] * (1 + TOLERANCE):
            name = hosts[number].id
            text = f'rates that add up to {peak:g} at "{name}", whose link carries'
            raise InputError(f"promised: {text} {limits[number]:g}")


def _settled(batch: Batch, problem: Problem, responders: _Names) -> Problem:
    sources = [
        responders.find(job.source, f"jobs[{index}].source")
        if job.source is not None
        else ELSEWHERE
        for index, job in enumerate(batch.jobs)
    ]
    settled_ = settled(problem, np.array(sources, dtype=np.int64))
    for index in np.flatnonzero(~np.isfinite(settled_.seconds).any(axis=1)).tolist():
        name = batch.jobs[index].id
        raise InputError(
            f'jobs[{index}].source: job "{name}" must be computed where it arises,'
            " and no accelerator there can"
        )
    return settled_


def _floats(values: Any) -> Any:
    return np.array(list(values), dtype=np.float64)


def _rate(rate: float | None) -> float:
    return np.inf if rate is None else rate
