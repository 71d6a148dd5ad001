"""The agent of a node, between its start and the return of the errands that it had."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hetpool import messages as m
from hetpool.jobs import JobStatus
from hetpool.messages import decode, encode
from hetpool.node.agent import Agent
from hetpool.node.lease import Lease
from hetpool.node.tasks import MOVED
from hetpool.outcomes import JobOutcome
from libtask.errors import HetError
from unit.hetpool.fake_engine import a_job, a_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetpool.jobs import PoolJob
    from hetpool.seam import Answer

JOB, OTHER = f"{1:032x}", f"{2:032x}"


class FakeWorkerEngine:
    """Keeps the agent's handlers; the broker says which jobs the node has lost."""

    def __init__(self, *lost: str) -> None:
        self.handlers: dict[str, Answer] = {}
        self.given_up: list[m.OpenJob] = []
        self._lost = lost

    def answer(self, name: str, handler: Answer) -> None:
        self.handlers[name] = handler

    async def ask(self, name: str, message: bytes, node: str = "") -> bytes:
        if name == "claim":
            claim = decode(m.ClaimJobs, message)
            self.given_up += claim.given_up
            return encode(m.Claimed(tuple(m.JobTerms(job) for job in claim.ids)))
        assert name == "join"
        return encode(m.NameList(self._lost))

    def rate(self) -> None:
        """Have measured nothing."""

    def put_back(self) -> Exception:
        return PutBackError()


class PutBackError(Exception):
    """The errand is to run again."""


class FakeFiles:
    """A node's files, for jobs without any."""

    intake = SimpleNamespace(goodput=lambda: None)

    async def place(self, *_: Any) -> dict[str, str]:
        return {}

    def release(self, job: PoolJob) -> None:
        """Nothing to release."""

    def draft(self, job: str) -> Path:
        return Path(job)


class FakeTasks:
    """hetd with one running task of an earlier agent, and one that is submitted."""

    def __init__(self) -> None:
        self.cancelled: list[int] = []
        self.released: list[int] = []
        self.ended: Future[None] = Future()
        self.reasons: list[str] = []
        """Why the task was cancelled, attempt by attempt; then it completes."""

    def submit(self, *_: Any) -> Any:
        return SimpleNamespace(id=8, ended=self.ended)

    def outcome(self, node: str, handle: Any) -> JobOutcome:
        if self.reasons:
            return JobOutcome("cancelled", node, handle.id, text=self.reasons.pop(0))
        return JobOutcome("completed", node, handle.id)

    def has_outputs(self, task: int) -> bool:
        return False

    def park(self, task: int, target: Path) -> bool:
        return False

    def release(self, task: int) -> None:
        self.released.append(task)

    def open(self) -> list[Any]:
        info = SimpleNamespace(id=7, state="running", finished=None, app="heat")
        return [(m.OpenJob(JOB, 3), info)]

    def slots(self) -> tuple[()]:
        return ()

    def statuses(self, node: str, tasks: Mapping[int, JobStatus]) -> list[JobStatus]:
        return [replace(each, state="running", node=node) for each in tasks.values()]

    def cancel(self, ids: list[int], reason: str) -> None:
        self.cancelled += ids


def made(*lost: str) -> tuple[Agent, FakeWorkerEngine, FakeTasks]:
    engine, tasks = FakeWorkerEngine(*lost), FakeTasks()
    parts: Any = (engine, tasks, FakeFiles(), Lease(10.0))
    return Agent(a_node("n1"), *parts), engine, tasks


async def joined(*lost: str) -> tuple[FakeWorkerEngine, FakeTasks]:
    agent, engine, tasks = made(*lost)
    await agent.join()
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

    with pytest.raises(HetError, match="has just ended, or is found"):
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


def test_a_job_that_has_just_ended_does_not_move() -> None:
    async def parked() -> None:
        agent, engine, tasks = made()
        await agent.join()
        tasks.ended.set_result(None)
        await agent.run(encode((a_job(2),)), [])
        await engine.handlers["park"](encode(m.ParkJob(OTHER)))

    with pytest.raises(HetError, match="has just ended"):
        asyncio.run(parked())


def test_a_job_that_was_given_up_for_a_lost_move_is_tried_again() -> None:
    async def ran() -> tuple[list[m.OpenJob], Any]:
        agent, engine, tasks = made()
        await agent.join()
        tasks.reasons = [f"cancelled by its owner: {MOVED}"]
        tasks.ended.set_result(None)
        with pytest.raises(PutBackError):
            await agent.run(encode((a_job(2),)), [])
        outcomes = await agent.run(encode((a_job(2),)), [])
        await agent.run(encode((a_job(2),)), [])
        return engine.given_up, decode(tuple[JobOutcome, ...], outcomes)

    given_up, outcomes = asyncio.run(ran())

    assert given_up == [m.OpenJob(OTHER, 0)]
    assert [each.state for each in outcomes] == ["completed"]


def test_a_job_that_its_user_cancelled_stays_cancelled() -> None:
    async def ran() -> Any:
        agent, _, tasks = made()
        await agent.join()
        tasks.reasons = ["cancelled by its owner: not needed"]
        tasks.ended.set_result(None)
        return await agent.run(encode((a_job(2),)), [])

    (outcome,) = decode(tuple[JobOutcome, ...], asyncio.run(ran()))
    assert outcome.state == "cancelled"


def test_a_job_goes_on_whose_mover_is_lost() -> None:
    async def released() -> list[int]:
        agent, engine, tasks = made()
        await agent.join()
        running = asyncio.ensure_future(agent.run(encode((a_job(2),)), []))
        park = encode(m.ParkJob(OTHER))
        for _ in range(1000):
            if decode(m.ParkedJob, await engine.handlers["park"](park)).here:
                break
            await asyncio.sleep(0)
        assert not tasks.released
        agent.parted()
        await agent.join()
        tasks.ended.set_result(None)
        await running
        return tasks.released

    assert asyncio.run(released()) == [8]
