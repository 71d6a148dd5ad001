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
    from collections.abc import Awaitable, Callable, Mapping

    from hetpool.jobs import PoolJob
    from hetpool.seam import Answer

JOB, OTHER = f"{1:032x}", f"{2:032x}"


class FakeWorkerEngine:
    """Keeps the agent's handlers; the broker says which jobs the node has lost."""

    def __init__(self, *lost: str) -> None:
        self.handlers: dict[str, Answer] = {}
        self.given_up: list[m.OpenJob] = []
        self.ended: list[JobStatus] = []
        self.cancelled = ""
        """Why the jobs that the node claims are not to run."""
        self._lost = lost

    def answer(self, name: str, handler: Answer) -> None:
        self.handlers[name] = handler

    async def ask(self, name: str, message: bytes, node: str = "") -> bytes:
        if name == "claim":
            claim = decode(m.ClaimJobs, message)
            self.given_up += claim.given_up
            terms = [m.JobTerms(job, cancelled=self.cancelled) for job in claim.ids]
            return encode(m.Claimed(tuple(terms)))
        if name == "ended":
            self.ended.append(decode(m.EndedJob, message).status)
            return encode(m.NameList())
        assert name == "join"
        return encode(m.NameList(self._lost))

    def rate(self) -> None:
        """Have measured nothing."""

    def put_back(self) -> Exception:
        return PutBackError()


class PutBackError(Exception):
    """The errand is to run again."""


class FakeFiles:
    """A node's files; `here`: the inputs have arrived."""

    intake = SimpleNamespace(goodput=lambda: None)

    def __init__(self) -> None:
        self.here = asyncio.Event()
        self.here.set()

    async def place(self, *_: Any) -> dict[str, str]:
        await self.here.wait()
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
        self.refusal = ""

    def submit(self, *_: Any) -> Any:
        if self.refusal:
            raise HetError(self.refusal)
        return SimpleNamespace(id=8, ended=self.ended)

    def outcome(self, node: str, handle: Any) -> JobOutcome:
        if self.reasons:
            return JobOutcome("cancelled", node, handle.id, text=self.reasons.pop(0))
        return JobOutcome("completed", node, handle.id)

    def has_ended(self, task: int) -> bool:
        return self.ended.done()

    def has_outputs(self, task: int) -> bool:
        return False

    def park(self, task: int, target: Path) -> bool:
        return False

    def release(self, task: int) -> None:
        self.released.append(task)

    def open(self) -> list[Any]:
        info = SimpleNamespace(id=7, state="running", finished=None, app="heat")
        return [(m.OpenJob(JOB, 3), info)]

    def capacity(self) -> tuple[int, int]:
        return (0, 0)

    def slots(self) -> tuple[()]:
        return ()

    def statuses(self, node: str, tasks: Mapping[int, JobStatus]) -> list[JobStatus]:
        return [replace(each, state="running", node=node) for each in tasks.values()]

    def cancel(self, ids: list[int], reason: str) -> None:
        self.cancelled += ids


def made(
    *lost: str, files: FakeFiles | None = None
) -> tuple[Agent, FakeWorkerEngine, FakeTasks]:
    engine, tasks = FakeWorkerEngine(*lost), FakeTasks()
    parts: Any = (engine, tasks, files or FakeFiles(), Lease(10.0))
    return Agent(a_node("n1"), *parts), engine, tasks


async def joined(*lost: str) -> tuple[FakeWorkerEngine, FakeTasks]:
    agent, engine, tasks = made(*lost)
    await agent.join()
    return engine, tasks


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(100_000):
        if await look():
            return
        await asyncio.sleep(0)
    pytest.fail("it did not become true")


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
        wanted = encode(m.ListJobs((OTHER,)))

        async def runs() -> bool:
            listed = await engine.handlers["list"](wanted)
            return "running" in {each.state for each in decode(m.JobList, listed).jobs}

        await until(runs)
        park = encode(m.ParkJob(OTHER))
        assert decode(m.ParkedJob, await engine.handlers["park"](park)).here
        assert not tasks.released
        agent.parted()
        await agent.join()
        tasks.ended.set_result(None)
        await running
        return tasks.released

    assert asyncio.run(released()) == [8]


@pytest.mark.parametrize(
    ("given", "told"), [("enough", "enough"), ("", "cancelled by its owner")]
)
def test_a_cancelled_job_does_not_wait_for_its_inputs(given: str, told: str) -> None:
    async def ran() -> tuple[Any, list[JobStatus]]:
        files = FakeFiles()
        files.here.clear()
        agent, engine, _ = made(files=files)
        await agent.join()
        running = asyncio.ensure_future(agent.run(encode((a_job(2),)), []))
        cancel = encode(m.CancelJobs((OTHER,), given))

        async def is_there() -> bool:
            answer = await engine.handlers["cancel"](cancel)
            return bool(decode(m.NameList, answer).names)

        await until(is_there)
        return await running, engine.ended

    outcomes, ended = asyncio.run(ran())

    (outcome,) = decode(tuple[JobOutcome, ...], outcomes)
    assert outcome == JobOutcome("cancelled", "n1", text=told)
    assert [(each.id, each.state, each.reason) for each in ended] == [
        (OTHER, "cancelled", told)
    ]


@pytest.mark.parametrize(
    ("cancelled", "refusal", "end"),
    [("enough", "", ("cancelled", "enough")), ("", "no", ("failed", "no"))],
)
def test_the_broker_is_told_how_a_job_ended_that_hetd_never_had(
    cancelled: str, refusal: str, end: tuple[str, str]
) -> None:
    async def ran() -> list[JobStatus]:
        agent, engine, tasks = made()
        engine.cancelled, tasks.refusal = cancelled, refusal
        await agent.join()
        await agent.run(encode((a_job(2),)), [])
        return engine.ended

    (status,) = asyncio.run(ran())

    assert (status.state, status.reason) == end
    assert (status.id, status.node) == (OTHER, "n1")
    assert status.finished > 0


def test_the_broker_is_not_told_of_what_hetd_has() -> None:
    async def ran() -> list[JobStatus]:
        agent, engine, tasks = made()
        await agent.join()
        tasks.ended.set_result(None)
        await agent.run(encode((a_job(2),)), [])
        return engine.ended

    assert asyncio.run(ran()) == []
