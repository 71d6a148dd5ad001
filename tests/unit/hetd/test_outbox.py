"""What is told leaves in order for each peer, by turns of the peers."""

from __future__ import annotations

from hetd.requests.publication import ALONE, AT_ONCE, FULL, Outbox
from libtask import messages as m


def told(route: bytes, count: int) -> list[tuple[bytes, m.Message]]:
    return [(route, m.Done(number)) for number in range(count)]


def test_a_peer_with_much_to_hear_does_not_keep_another_waiting() -> None:
    outbox = Outbox()
    outbox.put(told(b"watcher", 1000))
    outbox.put(told(b"asker", 1))

    taken = outbox.take()
    first = [next(taken) for _ in range(2)]

    assert [(route, len(some)) for route, some in first] == [
        (b"watcher", AT_ONCE),
        (b"asker", 1),
    ]
    assert outbox.count == 1000 - AT_ONCE


def test_everything_is_told_once_and_in_order() -> None:
    outbox = Outbox()
    outbox.put(told(b"one", 100))
    outbox.put(told(b"two", 30))

    heard: dict[bytes, list[m.Message]] = {b"one": [], b"two": []}
    for route, some in outbox.take():
        assert len(some) <= ALONE
        heard[route] += some

    assert heard == {
        b"one": [message for _, message in told(b"one", 100)],
        b"two": [message for _, message in told(b"two", 30)],
    }
    assert not outbox.count


def test_it_is_full_when_there_is_too_much_to_tell() -> None:
    outbox = Outbox()
    outbox.put(told(b"one", FULL - 1))
    assert not outbox.full

    outbox.put(told(b"two", 1))

    assert outbox.full
