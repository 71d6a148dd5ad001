"""The timers: one heap, in the order of the instants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.timers import Action
    from hetsched.events import Event


class Fired:
    """Timers whose actions note that they fired."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.names: list[tuple[str, int]] = []

    def action(self, name: str) -> Action:
        def note(now: int) -> Sequence[Event]:
            self.names.append((name, now))
            return ()

        return note

    def run(self, now: int) -> list[tuple[str, int]]:
        """Do what is due; return what fired, and the instant that it was given."""
        for action in self.timers.due(now):
            action(now)
        names, self.names = self.names, []
        return names


@pytest.fixture
def fired() -> Fired:
    return Fired()


def test_timers_fire_once_in_the_order_of_their_instants(fired: Fired) -> None:
    for name, due in (("c", 30), ("a", 10), ("b", 10)):
        fired.timers.at(due, fired.action(name))

    assert fired.timers.next() == 10
    assert fired.run(9) == []
    assert fired.run(29) == [("a", 29), ("b", 29)]
    assert fired.run(30) == [("c", 30)]
    assert fired.timers.next() is None


def test_a_name_has_one_timer(fired: Fired) -> None:
    fired.timers.set("a", 10, fired.action("first"))
    fired.timers.set("a", 20, fired.action("second"))
    assert fired.timers.next() == 20

    assert fired.run(20) == [("second", 20)]
    fired.timers.set("a", 20, fired.action("third"))
    assert fired.run(20) == [("third", 20)]


def test_a_timer_of_a_name_is_removed(fired: Fired) -> None:
    fired.timers.set("a", 10, fired.action("a"))
    fired.timers.set("a", None, fired.action("a"))

    assert fired.timers.next() is None
    assert fired.run(10) == []


def test_a_timer_that_an_action_sets_waits_for_the_next_call(fired: Fired) -> None:
    def again(now: int) -> Sequence[Event]:
        fired.timers.at(now, fired.action("again"))
        return ()

    fired.timers.at(5, again)

    assert fired.run(5) == []
    assert fired.run(5) == [("again", 5)]


def test_replaced_timers_do_not_fill_the_heap(fired: Fired) -> None:
    fired.timers.at(5, fired.action("soon"))
    for due in range(10_000, 20_000):
        fired.timers.set("wake", due, fired.action(str(due)))

    assert len(fired.timers._heap) < 200
    assert fired.run(30_000) == [("soon", 30_000), ("19999", 30_000)]
    assert fired.timers.next() is None


def test_a_timer_is_removed_by_its_name(fired: Fired) -> None:
    fired.timers.set("a", 10, fired.action("a"))
    fired.timers.remove("a")
    fired.timers.remove("a")

    assert fired.timers.next() is None
    assert fired.run(10) == []


def test_a_name_may_be_set_again_when_its_timer_has_fired(fired: Fired) -> None:
    fired.timers.set("a", 10, fired.action("first"))
    assert fired.run(10) == [("first", 10)]
    fired.timers.set("a", 10, fired.action("again"))

    assert fired.run(11) == [("again", 11)]
