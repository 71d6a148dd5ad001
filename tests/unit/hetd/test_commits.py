"""When the loop commits: once for a task that ends at once, and before it answers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from hetd.loop import TICK_AFTER_NS
from hetd.requests.publication import GATHER_NS, HOLD_NS
from libtask import messages as m
from system.private_daemon import eventually
from torture.bodies import USERS, Desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER = USERS[0]
SHORT_S, LONG_S = 1e-4, 1e-2


class Watched:
    """A desk whose commits and answers are noted in order, at a time that stands still."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk(folder)
        self.desk.loop.finish()
        self.now = self.desk.runtime.clock.now()
        self.story: list[str] = []
        self.runs: list[m.Run] = []
        self._submit = self.desk.store.submit
        loop: Any = self.desk.loop
        for part in (loop, loop.requests, loop.publication):
            part._now = lambda: self.now
            part._router = self
        # the recall of a train is due by the runtime's clock
        clock = self.desk.runtime.clock
        self.desk.runtime.clock = dataclasses.replace(clock, now=lambda: self.now)
        store: Any = self.desk.store
        store.submit = self._commit
        self.desk.runtime.pool._send = self.send

    def __getattr__(self, name: str) -> Any:
        return getattr(self.desk.inlet, name)  # it stands before the router

    def send(self, _route: bytes, *messages: m.Message) -> bool:
        for message in messages:
            self.story.append(type(message).__name__)
            if isinstance(message, m.Run):
                self.runs.append(message)
        return True

    def submit(self, tasks: int = 1, *, seconds: float = SHORT_S) -> None:
        self.desk.parts.estimates.learn("app", "cpu", seconds, 1.0)
        self.desk.parts.estimates.learn("app", "gpu0", 1.0, 1.0)
        self.desk.say(USER, m.Submit(1, [m.TaskSpec("app")] * tasks))

    def finish(self) -> None:
        run = self.runs.pop(0)
        for name in ("w1", "w2", "w3"):  # one of them has it
            self.desk.put(USER, name, m.encode(m.Finished(run.task, run.epoch)))
        self.desk.loop.turn([])

    def _commit(self, batch: Any) -> None:
        self.story.append("commit")
        self._submit(batch)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.desk.close()


def test_one_commit_serves_for_a_submit_and_an_end_that_follows_at_once(
    watched: Watched,
) -> None:
    watched.submit()
    assert watched.desk.loop.timeout_ms() == 1  # it sleeps until the end, or so long

    watched.finish()
    watched.desk.loop.finish()

    assert watched.story == ["Run", "commit", "Submitted", "TaskChanged"]


def test_a_task_that_does_not_end_keeps_its_acknowledgement_back_for_a_moment_only(
    watched: Watched,
) -> None:
    watched.submit()

    watched.now += HOLD_NS - 1
    watched.desk.loop.turn([])
    held = list(watched.story)
    watched.now += 1
    watched.desk.loop.turn([])

    assert held == ["Run"]
    assert watched.story == ["Run", "commit"]


def test_nothing_waits_for_a_task_that_takes_long(watched: Watched) -> None:
    watched.submit(seconds=LONG_S)

    assert watched.story == ["Run", "commit"]


def test_nothing_waits_where_more_tasks_wait_than_run(watched: Watched) -> None:
    watched.submit(tasks=40)

    assert watched.story == [*["Run"] * 28, "commit"]


def test_the_next_commit_is_ordered_before_what_the_last_made_durable_is_told(
    watched: Watched,
) -> None:
    watched.submit(seconds=LONG_S)
    outcomes = watched.desk.store._outcomes
    eventually(lambda: not outcomes.empty(), "the end of the commit")

    watched.now += GATHER_NS
    watched.finish()

    assert watched.story == ["Run", "commit", "commit", "Submitted"]


def test_due_work_waits_for_one_turn_after_messages_that_took_long(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def receive(_began: int) -> None:
        watched.now += TICK_AFTER_NS + 1

    watched.desk.loop.turn([])  # the fixture's own turns may have taken long
    ticks: list[int] = []
    monkeypatch.setattr(watched.desk.loop, "_receive", receive)
    monkeypatch.setattr(watched.desk.runtime, "tick", lambda: ticks.append(1))

    counts = []
    for _ in range(4):
        watched.desk.loop.turn([])
        counts.append(len(ticks))

    assert counts == [0, 1, 1, 2]


def test_commits_of_a_stream_are_gathered(watched: Watched) -> None:
    """Only ends are to be published, and tasks wait for the slots."""
    watched.submit(tasks=40, seconds=LONG_S)
    eventually(lambda: not watched.desk.store._outcomes.empty(), "the first commit")
    watched.story.clear()

    watched.finish()
    assert "commit" not in watched.story
    assert watched.desk.loop.timeout_ms() == 1

    watched.now += GATHER_NS
    watched.desk.loop.turn([])
    assert "commit" in watched.story


def test_a_request_in_a_stream_is_answered_with_the_next_commit(
    watched: Watched,
) -> None:
    watched.submit(tasks=40, seconds=LONG_S)
    eventually(lambda: not watched.desk.store._outcomes.empty(), "the first commit")
    watched.story.clear()
    watched.finish()

    watched.submit(seconds=LONG_S)

    assert "commit" in watched.story
