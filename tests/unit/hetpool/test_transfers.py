"""Which chunk is asked for next, of whom and when."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetpool.files.content import ContentId
from hetpool.files.transfers import (
    IN_FLIGHT,
    IN_FLIGHT_IN_ALL,
    Cap,
    Curve,
    Fetch,
    Goodput,
    Transfer,
    TransferQueue,
)

CHUNK = 100


def a_transfer(
    name: str = "a",
    chunks: float = 3,
    *,
    sources: tuple[str, ...] = ("s1",),
    order: float = 0.0,
    curve: Curve | None = None,
) -> Transfer:
    return Transfer(ContentId(name), int(chunks * CHUNK), sources, order, curve)


def a_queue(*transfers: Transfer, cap: float = math.inf) -> TransferQueue:
    queue = TransferQueue(Cap(cap), CHUNK)
    for transfer in transfers:
        queue.add(transfer, 0.0)
    return queue


def asked(queue: TransferQueue, now: float = 0.0) -> list[tuple[str, int]]:
    return [(f.content, f.offset // CHUNK) for f in queue.fetches(now)]


# -------------------------------------------------------------------------- order


def test_the_first_in_order_gets_every_chunk_that_it_can_take() -> None:
    queue = a_queue(a_transfer("late", 3, order=2), a_transfer("soon", 3, order=1))

    assert asked(queue) == [("soon", 0), ("soon", 1), ("soon", 2), ("late", 0)]


def test_of_one_order_the_first_that_came_goes_first() -> None:
    queue = a_queue(a_transfer("x", 1), a_transfer("y", 1))

    assert asked(queue) == [("x", 0), ("y", 0)]


def test_a_source_has_four_chunks_to_send_at_most() -> None:
    queue = a_queue(a_transfer(chunks=9))

    assert len(asked(queue)) == IN_FLIGHT
    assert asked(queue) == []


def test_a_slow_source_leaves_the_link_to_the_next_transfer() -> None:
    queue = a_queue(
        *(a_transfer(f"{n}", 9, sources=(f"s{n}",), order=n) for n in range(4))
    )

    assert asked(queue) == [(name, index) for name in "01" for index in range(4)]
    assert queue.in_flight == IN_FLIGHT_IN_ALL


def test_the_last_chunk_is_as_long_as_what_is_left() -> None:
    queue = a_queue(a_transfer(chunks=1.25))

    assert [(f.offset, f.count) for f in queue.fetches(0.0)] == [(0, 100), (100, 25)]


def test_a_transfer_that_somebody_else_needs_sooner_goes_before_others() -> None:
    queue = a_queue(a_transfer("x", 1, order=1), a_transfer("y", 1, order=5))

    queue.hasten(ContentId("y"), 0)

    assert asked(queue) == [("y", 0), ("x", 0)]


# --------------------------------------------------------------------------- pace


def test_a_curve_gives_the_time_of_each_byte() -> None:
    curve = Curve(((1.0, 3.0, 100.0), (5.0, 6.0, 50.0)))

    assert [curve.when(a) for a in (0, 100, 200, 225, 999)] == [1, 2, 3, 5.5, 6]


def test_a_transfer_goes_on_when_its_curve_says_so() -> None:
    queue = a_queue(a_transfer(chunks=3, curve=Curve.constant(10.0, 300)))

    assert asked(queue, 0.0) == [("a", 0)]
    assert queue.wake(0.0) == 10.0
    assert asked(queue, 9.9) == []
    assert asked(queue, 10.0) == [("a", 1)]


def test_a_late_transfer_catches_up_before_those_behind_it() -> None:
    curve = Curve.constant(10.0, 300)
    queue = a_queue(a_transfer("slow", 3, curve=curve), a_transfer("next", 3, order=1))
    asked(queue, 0.0)  # slow 0 and three of the next one

    assert asked(queue, 20.0) == []  # the source has enough to do
    for fetch in [Fetch(ContentId("next"), "s1", n * CHUNK, CHUNK) for n in range(2)]:
        queue.received(fetch)

    assert asked(queue, 20.0) == [("slow", 1), ("slow", 2)]


def test_while_one_waits_for_its_curve_the_next_one_goes_on() -> None:
    curve = Curve(((50.0, 60.0, 30.0),))
    queue = a_queue(a_transfer("later", 3, curve=curve), a_transfer("b", 1, order=1))

    assert asked(queue, 0.0) == [("b", 0)]
    assert queue.wake(0.0) == 50.0


def test_after_the_end_of_its_plan_a_transfer_takes_what_it_needs() -> None:
    queue = a_queue(a_transfer(chunks=3, curve=Curve(((0.0, 1.0, 1.0),))))

    assert len(asked(queue, 2.0)) == 3


# ---------------------------------------------------------------------------- cap


def _driven(cap: float, link: float, seconds: float, chunks: int = 10_000) -> float:
    """Carry chunks over a link for some time; return the bytes that arrived."""
    queue = a_queue(a_transfer(chunks=chunks), cap=cap)
    now, free, arrived, flying = 0.0, 0.0, 0, list[tuple[float, Fetch]]()
    while now < seconds:
        for fetch in queue.fetches(now):
            free = max(free, now) + fetch.count / link
            flying.append((free, fetch))
        wake = queue.wake(now)
        times = [at for at, _ in flying] + ([wake] if wake is not None else [])
        now = max(min(times), now)
        for at, fetch in [each for each in flying if each[0] <= now]:
            flying.remove((at, fetch))
            queue.received(fetch)
            arrived += fetch.count
    return arrived


@given(st.floats(0.05, 0.8))
def test_a_cap_below_four_fifths_of_the_link_holds_within_five_percent(
    share: float,
) -> None:
    seconds = 60 * CHUNK / (share * 1000)

    got = _driven(share * 1000, 1000, seconds) / seconds

    assert 0.95 <= got / (share * 1000) <= 1.05


def test_without_a_cap_the_link_is_the_limit() -> None:
    assert _driven(math.inf, 1000, 50) == pytest.approx(50_000, rel=0.03)


def test_what_nobody_wanted_is_not_caught_up() -> None:
    cap = Cap(100.0)
    cap.begin(1000.0)

    assert [cap.take(100, 1000.0) for _ in range(3)] == [1000.0, 1001.0, 1002.0]


def test_what_the_link_did_not_carry_is_caught_up_for_a_second() -> None:
    cap = Cap(100.0)
    cap.begin(0.0)
    cap.take(100, 0.0)

    assert [cap.take(50, 10.0) for _ in range(4)] == [10.0, 10.0, 10.0, 10.5]


# ------------------------------------------------------------------------ sources


def test_a_lost_source_gives_way_to_the_next_one() -> None:
    queue = a_queue(a_transfer(chunks=2, sources=("s1", "s2")))
    first, second = queue.fetches(0.0)

    left = [queue.lost(first), queue.lost(second)]

    assert left == [True, True]
    assert [(f.source, f.offset) for f in queue.fetches(0.0)] == [
        ("s2", 0),
        ("s2", 100),
    ]


def test_the_last_source_lost_ends_the_transfer() -> None:
    queue = a_queue(a_transfer(chunks=1))
    (fetch,) = queue.fetches(0.0)

    assert not queue.lost(fetch)


def test_others_ask_a_lost_source_last() -> None:
    queue = a_queue(
        a_transfer("x", 1, sources=("s1", "s2")),
        a_transfer("y", 6, sources=("s1", "s2"), order=1),
    )
    fetches = list(queue.fetches(0.0))

    queue.lost(fetches[0])

    assert {f.source for f in queue.fetches(0.0)} == {"s2"}


def test_damage_by_one_source_leaves_the_other_to_give_all() -> None:
    queue = a_queue(a_transfer(chunks=2, sources=("liar", "s2")))
    complete = [queue.received(fetch) for fetch in list(queue.fetches(0.0))]

    left = queue.damaged(ContentId("a"))

    assert complete == [False, True]
    assert left
    assert [(f.source, f.offset) for f in queue.fetches(0.0)] == [
        ("s2", 0),
        ("s2", 100),
    ]


def test_damage_of_a_resumed_file_may_be_the_disks_so_its_source_is_asked_again() -> (
    None
):
    queue = TransferQueue(Cap(), CHUNK)
    queue.add(a_transfer(chunks=2), 0.0, present=frozenset({0}))
    (fetch,) = queue.fetches(0.0)
    queue.received(fetch)

    assert queue.damaged(ContentId("a"))
    assert asked(queue) == [("a", 0), ("a", 1)]

    for fetch in [Fetch(ContentId("a"), "s1", n * CHUNK, CHUNK) for n in range(2)]:
        queue.received(fetch)
    assert not queue.damaged(ContentId("a"))


def test_what_arrives_for_a_forgotten_transfer_is_ignored() -> None:
    queue = a_queue(a_transfer(chunks=1))
    (fetch,) = queue.fetches(0.0)
    queue.drop(ContentId("a"))

    assert not queue.received(fetch)
    assert queue.lost(fetch)
    assert queue.in_flight == 0


def test_what_an_earlier_attempt_left_is_not_asked_for() -> None:
    queue = TransferQueue(Cap(), CHUNK)

    assert queue.add(a_transfer("whole", 2), 0.0, frozenset({0, 1}))
    assert not queue.add(a_transfer(chunks=4), 0.0, frozenset({0, 2}))
    assert asked(queue) == [("a", 1), ("a", 3)]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=6),
    st.data(),
)
def test_every_chunk_arrives_once_whatever_is_lost(
    sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    sources = ("s1", "s2", "s3")
    queue = a_queue(
        *(
            a_transfer(f"{n}", chunks, sources=sources, order=order)
            for n, (chunks, order) in enumerate(sizes)
        )
    )
    got: list[tuple[str, int]] = []
    flying: list[Fetch] = []
    losses = 2
    while True:
        flying += queue.fetches(0.0)
        if not flying:
            break
        fetch = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
        if losses and data.draw(st.booleans()):
            losses -= 1
            assert queue.lost(fetch)
        else:
            got.append((fetch.content, fetch.offset // CHUNK))
            queue.received(fetch)

    assert sorted(got) == [
        (f"{n}", index)
        for n, (chunks, _) in enumerate(sizes)
        for index in range(chunks)
    ]


# ------------------------------------------------------------------------ goodput


def test_goodput_is_the_best_second_in_which_the_link_was_busy() -> None:
    goodput = Goodput()
    for now, count in [(0.5, 50), (1.0, 50), (1.5, 10), (2.0, 10)]:
        goodput.busy(0.0)
        goodput.arrived(count, now, Cap())

    assert goodput.rate() == 100.0


def test_a_pause_says_nothing_about_the_link() -> None:
    goodput = Goodput()
    goodput.busy(0.0)
    goodput.arrived(10, 0.5, Cap())
    goodput.idle()
    goodput.arrived(10, 5.0, Cap())

    assert goodput.rate() is None


def test_a_cap_below_the_link_does_not_lower_what_the_link_carries() -> None:
    goodput = Goodput()
    for second in range(100):
        goodput.busy(0.0)
        goodput.arrived(100 if second == 0 else 95, second + 1.0, Cap(95.0))

    assert goodput.rate() == 100.0
