"""The client of a pool beside an engine that fails as scripted: no job fails with a scheduler."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import pytest

from hetpool import Pool
from hetpool import messages as m
from hetpool.errors import PoolUnreachableError
from hetpool.jobs import PlanEntry, PoolJob, PoolPlan
from hetpool.messages import decode, encode
from hetpool.outcomes import completed
from hetpool.seam import EngineGoneError
from libtask.errors import InputError
from unit.hetpool.fake_engine import a_node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hetpool.seam import Errand, StartedErrand


class EndedErrand:
    """An errand whose jobs have the numbers of their errand as results."""

    def __init__(self, errand: Errand) -> None:
        self._jobs = decode(tuple[PoolJob, ...], errand.argument)

    async def outcome(self) -> bytes:
        return encode(tuple(completed("n1", 1, int(job.id, 16)) for job in self._jobs))

    def drop(self) -> None:
        """Keep nothing."""


class CutErrand:
    """An errand whose connection is closed before it ends."""

    def __init__(self, closing: asyncio.Event) -> None:
        self._closing = closing

    async def outcome(self) -> bytes:
        await self._closing.wait()
        raise EngineGoneError("closed")

    def drop(self) -> None:
        """Keep nothing."""


class ScriptedEngine:
    """Places every job on n1, or nowhere if that is `full`, as soon as it is `answering`.

    The first starts meet a scheduler that was just lost.
    """

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.full = False
        self.refuses = False
        self.closing: asyncio.Event | None = None
        """If it is given, errands end only when the connection does."""
        self.answering = threading.Event()
        self.answering.set()
        self.asked = threading.Event()
        self.placed: list[int] = []
        self.started: list[Errand] = []
        self.cancelled: list[str] = []
        self.cancels: list[int] = []
        self.closed = threading.Event()
        self.thread: threading.Thread | None = None
        """The thread of the pool's event loop."""

    async def open(self) -> None:
        self.thread = threading.current_thread()

    async def ask(self, name: str, message: bytes) -> bytes:
        if name == "nodes":
            return encode(m.NodeList((a_node("n1"),)))
        if name == "cancel":
            ids = decode(m.CancelJobs, message).ids
            self.cancels.append(len(ids))
            self.cancelled += ids
            return encode(m.NameList(tuple(self.cancelled)))
        if self.refuses:
            raise InputError("no planner of that name")
        jobs = decode(m.PlaceJobs, message).jobs
        self.placed.append(len(jobs))
        self.asked.set()
        while not self.answering.is_set():  # noqa: ASYNC110  it is set in another thread
            await asyncio.sleep(0.01)
        if self.full:
            waiting = {job.id: number for number, job in enumerate(jobs)}
            return encode(PoolPlan("ncjm", (), waiting=waiting))
        entries = [PlanEntry(job.id, "n1", "cpu", 0, job.id) for job in jobs]
        return encode(PoolPlan("ncjm", tuple(entries)))

    async def start(self, errands: Sequence[Errand]) -> Sequence[StartedErrand]:
        if self.losses:
            self.losses -= 1
            raise PoolUnreachableError("the connection was lost")
        self.started += errands
        if self.closing is not None:
            return [CutErrand(self.closing) for _ in errands]
        return [EndedErrand(each) for each in errands]

    async def close(self) -> None:
        if self.closing is not None:
            self.closing.set()
            await asyncio.sleep(0.05)  # those who wait for errands look first
        self.closed.set()


@pytest.fixture
def pool_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[ScriptedEngine], Pool]:
    """Return a function that makes the pool of an engine."""

    def make(engine: ScriptedEngine) -> Pool:
        monkeypatch.setattr("hetpool.client.pool.DaskClientEngine", lambda *_: engine)
        settings: Any = object()
        return Pool(settings, incoming=tmp_path)

    return make


def test_jobs_whose_scheduler_is_lost_before_they_start_are_placed_again(
    pool_of: Callable[[ScriptedEngine], Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedEngine(losses=2)
    monkeypatch.setattr("hetpool.client.pool.FIRST_PAUSE_S", 0.01)
    with pool_of(engine) as pool:
        _, tasks = pool.batch(
            [pool.job("synthetic", {"seconds": {"cpu": 1.0}}, id=f"{7:032x}")]
        )
        later = pool.submit("synthetic", {"seconds": {"cpu": 1.0}}, id=f"{8:032x}")

        assert [tasks[0].result(10.0), later.result(10.0)] == [7, 8]
    assert sum(engine.placed) == 4


def test_the_last_who_has_a_pool_may_be_a_callback(
    pool_of: Callable[[ScriptedEngine], Pool],
) -> None:
    engine = ScriptedEngine(losses=0)
    owners = [pool_of(engine)]
    ended = owners[0].submit("synthetic", {"seconds": {"cpu": 1.0}}).ended

    ended.add_done_callback(lambda _outcome: owners.clear())

    assert engine.closed.wait(10.0)
    assert engine.thread is not None
    engine.thread.join(10.0)
    assert not engine.thread.is_alive()


def test_a_job_that_is_cancelled_before_the_broker_has_it_is_not_started(
    pool_of: Callable[[ScriptedEngine], Pool],
) -> None:
    engine = ScriptedEngine(losses=0)
    engine.answering.clear()
    with pool_of(engine) as pool:
        task = pool.submit("synthetic", {"seconds": {"cpu": 1.0}}, id=f"{7:032x}")
        assert engine.asked.wait(10.0)
        task.cancel()
        with pytest.raises(CancelledError):
            task.result(10.0)

        engine.answering.set()

    assert engine.cancelled == [task.id] * 2
    assert engine.started == []


def test_a_job_without_a_node_is_started_without_one(
    pool_of: Callable[[ScriptedEngine], Pool],
) -> None:
    engine = ScriptedEngine(losses=0)
    engine.full = True
    with pool_of(engine) as pool:
        task = pool.submit("synthetic", {"seconds": {"cpu": 1.0}}, id=f"{7:032x}")
        assert task.result(10.0) == 7

    assert [(each.key, each.node) for each in engine.started] == [(task.id, "")]


def test_more_jobs_than_a_request_may_have_are_cancelled(
    pool_of: Callable[[ScriptedEngine], Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedEngine(losses=0)
    monkeypatch.setattr("hetpool.client.pool.MAX_JOBS", 2)
    ids = [f"{number:032x}" for number in range(5)]
    with pool_of(engine) as pool:
        pool.cancel(*ids)

    assert engine.cancels == [2, 2, 1]
    assert engine.cancelled == ids


def test_close_names_the_jobs_that_it_could_not_send(
    pool_of: Callable[[ScriptedEngine], Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetpool.client.pool.CLOSE_S", 0.1)
    pool = pool_of(ScriptedEngine(losses=1000))
    task = pool.submit("synthetic", {"seconds": {"cpu": 1.0}}, id=f"{7:032x}")

    with pytest.raises(PoolUnreachableError, match="not submitted: 1, the first"):
        pool.close()

    assert isinstance(task.ended.exception(), PoolUnreachableError)
    pool.close()


def test_close_leaves_jobs_alone_that_are_not_done(
    pool_of: Callable[[ScriptedEngine], Pool],
) -> None:
    engine = ScriptedEngine(losses=0)
    engine.closing = asyncio.Event()
    with pool_of(engine) as pool:
        task = pool.submit("synthetic", {"seconds": {"cpu": 1.0}}, id=f"{7:032x}")

    assert isinstance(task.ended.exception(), PoolUnreachableError)
    assert [each.key for each in engine.started] == [task.id]
    assert engine.placed == [1]
    assert engine.cancelled == []


def test_close_says_nothing_of_a_batch_that_was_refused(
    pool_of: Callable[[ScriptedEngine], Pool],
) -> None:
    engine = ScriptedEngine(losses=0)
    engine.refuses = True
    with pool_of(engine) as pool:
        job = pool.job("synthetic", {"seconds": {"cpu": 1.0}}, id=f"{7:032x}")
        with pytest.raises(InputError, match="no planner"):
            pool.batch([job], planner="best")
