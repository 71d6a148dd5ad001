"""Submission of an executor's calls, against a client that ends, refuses and delays at random."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from libtask.apps import Options, describe
from libtask.client.executor import TaskExecutor
from libtask.errors import NotAllowedError
from unit.fake_daemon import a_change, a_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskChanged, TaskInfo, TaskSpec
    from libtask.task import Task

THREADS = 4
CALLS = 40
"""Of each thread."""


class Handle:
    """A submitted task of `ErraticClient`."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.ended: Future[TaskChanged] = Future()
        self._lock = threading.Lock()

    def end(self, state: str) -> None:
        with self._lock:
            if not self.ended.done():
                self.ended.set_result(a_change(self.id, state, reason="over"))

    def cancel(self) -> None:
        self.end("cancelled")

    def info(self) -> TaskInfo:
        return a_task(self.id, state="queued")


class ErraticClient:
    """Ends tasks a little later, in any order; refuses some messages.

    Attributes:
        most: the most tasks that were submitted and had not ended.

    """

    path = Path("hetd.sock")

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._all: list[Handle] = []
        self._live: list[Handle] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.most = 0
        self._thread = threading.Thread(target=self._end_some, daemon=True)
        self._thread.start()

    def described(self, tasks: Iterable[Task]) -> list[TaskSpec]:
        return [describe(task, "call", Options()) for task in tasks]

    def submit_described(self, specs: Iterable[TaskSpec]) -> list[TaskHandle]:
        time.sleep(self._random.random() * 0.002)
        if self._random.random() < 0.1:
            raise NotAllowedError("too many tasks")
        made: list[Any] = []
        with self._lock:
            for _spec in specs:
                made.append(Handle(len(self._all) + 1))
                self._all.append(made[-1])
            self._live = [each for each in self._live if not each.ended.done()] + made
            self.most = max(self.most, len(self._live))
        return made

    def listed(self, ids: Iterable[int]) -> list[TaskInfo]:
        return [self._all[number - 1].info() for number in ids]

    def cancel(self, *ids: int) -> list[int]:
        for number in ids:
            self._all[number - 1].cancel()
        return list(ids)

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _end_some(self) -> None:
        while not self._over.wait(0.0005):
            with self._lock:
                self._random.shuffle(self._live)
                ended = [
                    self._live.pop()
                    for _ in range(len(self._live) // 2 + 1)
                    if self._live
                ]
            for handle in ended:
                handle.end(self._random.choice(["failed", "cancelled"]))


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[ErraticClient]:
    made = ErraticClient(request.param)
    yield made
    made.close()


def submitted(executor: TaskExecutor, seed: int) -> list[Future[int]]:
    """Submit calls, some with the values of earlier ones, and cancel some."""
    chosen = random.Random(seed)
    futures: list[Any] = []
    for _ in range(CALLS):
        argument = chosen.choice(futures) if futures and chosen.random() < 0.3 else -1
        futures.append(executor.submit(abs, argument))
        if chosen.random() < 0.2:
            chosen.choice(futures).cancel()
        if chosen.random() < 0.1:
            time.sleep(0.001)
    return futures


@pytest.mark.parametrize("client", range(5), indirect=True)
@pytest.mark.parametrize("most", [None, 1, 3])
def test_every_call_ends_and_no_more_than_allowed_are_under_way(
    client: ErraticClient,
    most: int | None,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    executor = TaskExecutor(client, max_workers=most)
    with ThreadPoolExecutor(THREADS) as pool:
        lists = pool.map(lambda seed: submitted(executor, seed), range(THREADS))
        futures = [each for some in lists for each in some]

    assert wait(futures, timeout=30).not_done == set()
    executor.shutdown()
    assert most is None or client.most <= most
    assert client.most > 0
