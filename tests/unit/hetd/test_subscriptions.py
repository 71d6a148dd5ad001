"""Subscriptions: who is told what, and who lags."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hetd.requests.subscriptions import MOST_WATCHES, Subscriptions
from hetd.transport.router import Peer
from libtask import messages as m
from torture.bodies import USERS, Desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER = USERS[0]


def a_change(task: int = 1) -> tuple[Any, m.TaskChanged]:
    page = SimpleNamespace(owner=USER, submitter=b"")
    return page, m.TaskChanged(task, "running", 1.0)


def addressed(watchers: Subscriptions) -> list[bytes]:
    told = watchers.address([a_change()], lambda _: False)
    return [route for route, _ in told]


def test_who_lags_is_not_told_and_what_he_misses_is_counted() -> None:
    watchers = Subscriptions()
    for route in (b"quick", b"slow"):
        watchers.add(Peer(route, USER, 1), m.Subscribe(1))
    assert addressed(watchers) == [b"quick", b"slow"]

    watchers.lag(b"slow", [a_change()[1], m.Done(1), a_change()[1]])

    assert [addressed(watchers) for _ in range(3)] == [[b"quick"]] * 3
    assert watchers.lagging == {b"slow": 5}


def test_an_answer_that_found_no_room_is_no_change_that_was_missed() -> None:
    watchers = Subscriptions()

    watchers.lag(b"asker", [m.Done(1)])

    assert watchers.lagging == {}


# ---------------------------------------------------------------- in the loop


class Pipes:
    """Stands in for the router's way out: some peers are gone, some do not read."""

    def __init__(self, desk: Desk) -> None:
        self.sent: list[tuple[bytes, m.Message]] = []
        self.stuck: set[bytes] = set()
        self.gone: set[bytes] = set()
        self._full = desk.inlet.full

    def send(self, route: bytes, *messages: m.Message) -> bool:
        if route in self.gone:
            self._full.discard(route)
            return False
        if route in self.stuck:
            self._full.add(route)
            return False
        self.sent += [(route, message) for message in messages]
        return True

    def to(self, route: bytes, kind: type[m.Message]) -> list[m.Message]:
        return [each for to, each in self.sent if to == route and type(each) is kind]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def pipes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Pipes:
    made = Pipes(desk)
    monkeypatch.setattr(desk.inlet, "send", made.send)
    monkeypatch.setattr("hetd.requests.publication.TELLING_NS", 0)
    return made


def _change(desk: Desk) -> None:
    """Change a task: watchers hear the order, and that it was carried out."""
    desk.say(USER, m.Amend(1, [1], priority=1))
    desk.loop.finish()


def _route(role: str) -> bytes:
    return f"{USER}-{role}".encode()


def test_a_watcher_that_reads_again_hears_that_it_lagged(
    desk: Desk, pipes: Pipes
) -> None:
    desk.say(USER, m.Submit(1, [m.TaskSpec("app", hold=True)]))
    desk.say(USER, m.Subscribe(1), "slow")
    pipes.stuck.add(_route("slow"))
    for _ in range(3):
        _change(desk)
    assert desk.loop.timeout_ms() <= 100

    pipes.stuck.clear()
    desk.loop.turn([])
    _change(desk)

    assert pipes.to(_route("slow"), m.Lagged) == [m.Lagged(6)]
    assert len(pipes.to(_route("slow"), m.TaskChanged)) == 2


def test_a_watcher_that_is_gone_is_forgotten(desk: Desk, pipes: Pipes) -> None:
    desk.say(USER, m.Submit(1, [m.TaskSpec("app", hold=True)]))
    desk.say(USER, m.Subscribe(1), "slow")
    pipes.stuck.add(_route("slow"))
    _change(desk)
    assert len(desk.loop.publication._subscriptions) == 1

    pipes.gone.add(_route("slow"))
    desk.loop.turn([])

    assert len(desk.loop.publication._subscriptions) == 0
    assert desk.loop.publication._subscriptions.lagging == {}


def test_a_user_has_so_many_watches_those_of_the_gone_left_out(
    desk: Desk, pipes: Pipes
) -> None:
    for number in range(MOST_WATCHES):
        desk.say(USER, m.Subscribe(number), f"w-{number}")

    desk.say(USER, m.Subscribe(1), "one-more")
    desk.loop.finish()
    (refusal,) = pipes.to(_route("one-more"), m.Error)
    assert isinstance(refusal, m.Error)
    assert refusal.text.startswith(f"a user has {MOST_WATCHES} watches at most")

    pipes.gone.add(_route("w-7"))
    desk.say(USER, m.Subscribe(2), "one-more")
    desk.loop.finish()
    assert pipes.to(_route("one-more"), m.Done) == [m.Done(2)]
