"""Subscriptions: who is told what, and who lags."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hetd.requests.publication import STATES_MS
from hetd.requests.subscriptions import MOST_WATCHES, Subscriptions
from hetd.transport.router import Peer
from libtask import messages as m
from torture.bodies import ADMIN, USERS, Desk

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
    # in a moment without a processor a turn would use up its user's share of the time
    made.loop.requests.budget.is_exhausted = lambda *_: False  # type: ignore[method-assign]  # as said
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


# ---------------------------------------------------------------- filters


def a_page(task: int, name: str = "", job: str = "", owner: int = USER) -> Any:
    spec = SimpleNamespace(name=name, job=job)
    return SimpleNamespace(id=task, owner=owner, submitter=b"", spec=spec)


def told(
    watchers: Subscriptions, page: Any, state: Any = "running", admin: int = -1
) -> list[bytes]:
    changes = [(page, m.TaskChanged(page.id, state, 1.0))]
    addressed = watchers.address(changes, lambda uid: uid == admin)
    return [route for route, _ in addressed]


def test_ids_are_added_to_a_subscription() -> None:
    watchers, peer = Subscriptions(), Peer(b"c", USER, 1)
    watchers.add(peer, m.Subscribe(1, ids=[1], progress=False))
    watchers.add(peer, m.Subscribe(2, ids=[2, 3], progress=True, add=True))

    assert [told(watchers, a_page(task)) for task in (1, 2, 3, 4)] == [
        [b"c"],
        [b"c"],
        [b"c"],
        [],
    ]
    assert len(watchers) == 1
    watchers.add(peer, m.Subscribe(3, ids=[4]))
    assert told(watchers, a_page(1)) == []


def test_adding_to_nothing_begins_a_subscription_and_all_stays_all() -> None:
    watchers, peer = Subscriptions(), Peer(b"c", USER, 1)
    watchers.add(peer, m.Subscribe(1, ids=[1], add=True))
    assert told(watchers, a_page(2)) == []
    watchers.add(peer, m.Subscribe(2))
    watchers.add(peer, m.Subscribe(3, ids=[1], add=True))

    assert told(watchers, a_page(2)) == [b"c"]


def test_ended_tasks_do_not_count_as_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetd.requests.subscriptions.MOST_WATCHED", 3)
    watchers, peer = Subscriptions(), Peer(b"c", USER, 1)
    for task in range(1, 50):
        added = m.Subscribe(1, ids=[task, task + 100], add=True)
        assert not watchers.is_full_for(peer, added)
        watchers.add(peer, added)
        assert watchers.is_full_for(peer, added)
        assert watchers.is_full_for(Peer(b"other", USER, 1), added)
        for each in (task, task + 100):
            assert told(watchers, a_page(each), "completed") == [b"c"]


def test_names_and_jobs_choose_tasks() -> None:
    watchers = Subscriptions()
    watchers.add(Peer(b"names", USER, 1), m.Subscribe(1, name="pool/*"))
    watchers.add(Peer(b"job", USER, 1), m.Subscribe(1, job="night"))

    assert told(watchers, a_page(1, "pool/17")) == [b"names"]
    assert told(watchers, a_page(1, "pools/17")) == []
    assert told(watchers, a_page(1, "pool/17\nx", "night")) == [b"names", b"job"]
    assert told(watchers, a_page(1, job="nights")) == []


def test_an_administrator_may_watch_only_their_own() -> None:
    watchers = Subscriptions()
    watchers.add(Peer(b"all", 0, 1), m.Subscribe(1))
    watchers.add(Peer(b"own", 0, 1), m.Subscribe(1, mine=True))

    assert told(watchers, a_page(1), admin=0) == [b"all"]
    assert told(watchers, a_page(1, owner=0), admin=0) == [b"all", b"own"]


# ---------------------------------------------------------------- resources


def states_told(desk: Desk, pipes: Pipes, role: str) -> list[tuple[str, str, int]]:
    """Return what a watcher was told of resources since the last look."""
    desk.loop.turn([])
    desk.loop.finish()
    route = _route(role)
    found = [each for to, each in pipes.sent if to == route]
    pipes.sent.clear()
    return [
        (each.name, each.state, each.slots)
        for each in found
        if isinstance(each, m.ResourceChanged)
    ]


def test_states_of_resources_are_pushed_once(
    desk: Desk, pipes: Pipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetd.requests.publication.STATES_NS", 0)
    desk.say(USER, m.Subscribe(1, ids=[], resources=True), "watcher")
    first = states_told(desk, pipes, "watcher")
    assert [name for name, _, _ in first] == list(desk.parts.devices.infos)
    assert states_told(desk, pipes, "watcher") == []

    desk.say(ADMIN, m.Drain(2, "cpu", on=True))
    assert states_told(desk, pipes, "watcher") == [("cpu", "draining", 0)]
    desk.say(ADMIN, m.Drain(3, "cpu", on=False))
    assert states_told(desk, pipes, "watcher") == [first[0]]
    desk.say(USER, m.Submit(1, [m.TaskSpec("app", hold=True)]))
    assert pipes.to(_route("watcher"), m.TaskChanged) == []


def test_a_change_between_two_looks_is_not_forgotten(desk: Desk, pipes: Pipes) -> None:
    desk.say(USER, m.Subscribe(1, ids=[], resources=True), "watcher")
    assert desk.loop.timeout_ms() <= STATES_MS
    desk.loop.finish()
    assert desk.loop.timeout_ms() <= STATES_MS


def test_who_lags_is_told_of_all_resources_when_it_asks_again(
    desk: Desk, pipes: Pipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetd.requests.publication.STATES_NS", 0)
    watch = m.Subscribe(1, ids=[], resources=True)
    desk.say(USER, watch, "watcher")
    first = states_told(desk, pipes, "watcher")
    pipes.stuck.add(_route("watcher"))
    desk.say(ADMIN, m.Drain(2, "cpu", on=True))
    states_told(desk, pipes, "watcher")
    pipes.stuck.clear()
    states_told(desk, pipes, "watcher")

    desk.say(USER, watch, "watcher")

    again = states_told(desk, pipes, "watcher")
    assert again == [("cpu", "draining", 0), *first[1:]]
