"""The client of a pool beside an engine that fails as scripted: no job fails with a scheduler."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from hetpool import Pool
from hetpool import messages as m
from hetpool.errors import PoolUnreachableError
from hetpool.jobs import PlanEntry, PoolJob, PoolPlan
from hetpool.messages import decode, encode
from hetpool.outcomes import completed
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


class ScriptedEngine:
    """Places every job on n1; the first starts meet a scheduler that was just lost."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.placed: list[int] = []
        self.closed = threading.Event()
        self.thread: threading.Thread | None = None
        """The thread of the pool's event loop."""

    async def open(self) -> None:
        self.thread = threading.current_thread()

    async def ask(self, name: str, message: bytes) -> bytes:
        if name == "nodes":
            return encode(m.NodeList((a_node("n1"),)))
        jobs = decode(m.PlaceJobs, message).jobs
        self.placed.append(len(jobs))
        entries = [PlanEntry(job.id, "n1", "cpu", 0, job.id) for job in jobs]
        return encode(PoolPlan("ncjm", tuple(entries)))

    async def start(self, errands: Sequence[Errand]) -> Sequence[StartedErrand]:
        if self.losses:
            self.losses -= 1
            raise PoolUnreachableError("the connection was lost")
        return [EndedErrand(each) for each in errands]

    async def close(self) -> None:
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
