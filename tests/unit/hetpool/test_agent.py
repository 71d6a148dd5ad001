"""The agent of a node, between its start and the return of the errands that it had."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hetpool import messages as m
from hetpool.jobs import JobStatus
from hetpool.messages import decode, encode
from hetpool.node.agent import Agent
from hetpool.node.lease import Lease
from libtask.errors import HetError
from unit.hetpool.fake_engine import a_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetpool.seam import Answer

JOB, OTHER = f"{1:032x}", f"{2:032x}"


class FakeWorkerEngine:
    """Keeps the agent's handlers; the broker says which jobs the node has lost."""

    def __init__(self, *lost: str) -> None:
        self.handlers: dict[str, Answer] = {}
        self._lost = lost

    def answer(self, name: str, handler: Answer) -> None:
        self.handlers[name] = handler

    async def ask(self, name: str, message: bytes, node: str = "") -> bytes:
        assert name == "join"
        return encode(m.NameList(self._lost))


class FakeTasks:
    """hetd with one running task, of an earlier agent."""

    def __init__(self) -> None:
        self.cancelled: list[int] = []

    def open(self) -> list[Any]:
        info = SimpleNamespace(id=7, state="running", finished=None, app="heat")
        return [(m.OpenJob(JOB, 3), info)]

    def slots(self) -> tuple[()]:
        return ()

    def statuses(self, node: str, tasks: Mapping[int, JobStatus]) -> list[JobStatus]:
        return [replace(each, state="running", node=node) for each in tasks.values()]

    def cancel(self, ids: list[int], reason: str) -> None:
        self.cancelled += ids


async def joined(*lost: str) -> tuple[FakeWorkerEngine, FakeTasks]:
    engine, tasks = FakeWorkerEngine(*lost), FakeTasks()
    parts: Any = (engine, tasks, None, Lease(10.0))
    await Agent(a_node("n1"), *parts).join()
    return engine, tasks


def test_a_job_whose_errand_is_not_back_yet_has_begun() -> None:
    async def asked() -> Any:
        engine, _ = await joined()
        return await engine.handlers["list"](encode(m.ListJobs((JOB, OTHER))))

    found = decode(m.JobList, asyncio.run(asked())).jobs

    assert found == (JobStatus(JOB, "heat", "running", "n1", task=7),)


def test_it_does_not_move_as_if_it_had_not_begun() -> None:
    async def parked(job: str) -> Any:
        engine, _ = await joined()
        return await engine.handlers["park"](encode(m.ParkJob(job)))

    with pytest.raises(HetError, match="found again"):
        asyncio.run(parked(JOB))
    assert not decode(m.ParkedJob, asyncio.run(parked(OTHER))).here


def test_what_runs_elsewhere_by_now_is_cancelled_and_forgotten() -> None:
    async def asked() -> Any:
        engine, tasks = await joined(f"{JOB}.3")
        listed = await engine.handlers["list"](encode(m.ListJobs((JOB,))))
        parked = await engine.handlers["park"](encode(m.ParkJob(JOB)))
        return tasks, decode(m.JobList, listed), decode(m.ParkedJob, parked)

    tasks, listed, parked = asyncio.run(asked())

    assert tasks.cancelled == [7]
    assert not listed.jobs
    assert not parked.here
