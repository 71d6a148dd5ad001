"""RequestBudget of the loop's time: alone a user may have all, among others his part."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
import zmq

from hetd.requests.budget import WINDOW_NS, RequestBudget
from hetd.transport import router as module
from libtask import messages as m
from torture.bodies import USERS, Desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GREEDY, MODEST = USERS


def test_a_user_alone_may_have_everything() -> None:
    shares = RequestBudget()
    shares.charge(GREEDY, 10 * WINDOW_NS, now=1)

    assert not shares.is_exhausted(GREEDY, now=2)


def test_among_others_he_has_his_part_and_no_more() -> None:
    shares = RequestBudget()
    shares.charge(GREEDY, WINDOW_NS // 2 + 1, now=1)
    shares.charge(MODEST, 1000, now=2)

    assert shares.is_exhausted(GREEDY, now=3)
    assert not shares.is_exhausted(MODEST, now=3)


def test_each_window_begins_anew_and_knows_who_was_there() -> None:
    shares = RequestBudget()
    for uid in (GREEDY, MODEST):
        shares.charge(uid, WINDOW_NS, now=1)
    after = WINDOW_NS + 1

    assert not shares.is_exhausted(GREEDY, now=after)
    shares.charge(GREEDY, WINDOW_NS, now=after)
    # the other has said nothing yet in this window, but he may
    assert shares.is_exhausted(GREEDY, now=after + 1)


# ---------------------------------------------------------------- in the loop


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def test_who_has_had_his_share_is_put_off_and_the_other_is_served(desk: Desk) -> None:
    now = desk.runtime.clock.now()
    for uid, spent in ((GREEDY, WINDOW_NS), (MODEST, 1)):
        desk.loop.requests.budget.charge(uid, spent, now)
    desk.loop.requests.budget._ends = now + 1000 * WINDOW_NS

    desk.say(GREEDY, m.Policies(1))
    desk.say(MODEST, m.Policies(2))
    desk.loop.finish()

    assert desk.inlet.answers["Error busy"] == 1
    assert desk.inlet.answers["PolicyInfo"] == 1


def _everybody(_: int) -> bool:
    return True


def _nobody(_: int) -> bool:
    return False


def test_large_requests_of_who_is_put_off_are_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def decode(frame: bytes) -> m.Policies:
        read.append(frame)
        return m.Policies(0)

    monkeypatch.setattr(module, "decode_to_daemon", decode)
    large = m.encode(m.Submit(7, [m.TaskSpec("app", {"data": "x" * 100_000})]))
    report = m.encode(m.Finished(1, 1, result="x" * 100_000))
    with closing(module.Router(tmp_path / "s")) as router, zmq.Context() as context:
        peer = context.socket(zmq.DEALER)
        peer.connect(f"ipc://{router.path}")
        heard: list[object] = []
        for refuse, frame in (
            (_nobody, large),
            (_everybody, large),
            (_everybody, report),
        ):
            peer.send(frame)
            assert router.socket.poll(30_000)
            heard += [each.message for each in router.receive(refuse)]
        peer.close(linger=0)

    assert heard == [m.Policies(0), m.Request(7), m.Policies(0)]
    assert read == [large, report]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff" * 100,
        msgpack.packb({"t": ["Submit"], "request": 1}),
        msgpack.packb({"t": "Submit", "request": "1"}),
        msgpack.packb({"t": "Nothing", "request": 1}),
        msgpack.packb({"request": 1, "t": "Submit"}),
        msgpack.packb({"t": "x" * 100, "request": 1}),
        m.encode(m.Finished(1, 1)),
    ],
)
def test_what_is_no_request_is_not_taken_for_one(frame: bytes) -> None:
    assert m.request_in(frame) is None


def test_what_an_answer_takes_to_write_counts_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[tuple[int, int]] = []
    monkeypatch.setattr(
        desk.loop.requests.budget,
        "charge",
        lambda uid, spent, _: charged.append((uid, spent)),
    )
    real = desk.inlet.send

    def slow(*frames: Any) -> bool:
        later = desk.runtime.clock.now() + WINDOW_NS
        while desk.runtime.clock.now() < later:
            pass  # as the encoding of a long list
        return real(*frames)

    monkeypatch.setattr(desk.inlet, "send", slow)
    desk.say(GREEDY, m.Policies(1))
    desk.loop.finish()

    assert max(spent for uid, spent in charged if uid == GREEDY) >= WINDOW_NS
    assert desk.loop.publication._askers == {}


def test_reports_of_workers_are_never_put_off(desk: Desk) -> None:
    desk.say(GREEDY, m.Submit(1, [m.TaskSpec("app")]))
    (page,) = desk.runtime.journal.live.values()
    (role,) = (each for each in ("w1", "w2", "w3") if desk.tasks_of(GREEDY, each))
    now = desk.runtime.clock.now()
    for uid, spent in ((GREEDY, WINDOW_NS), (MODEST, 1)):
        desk.loop.requests.budget.charge(uid, spent, now)
    desk.loop.requests.budget._ends = now + 1000 * WINDOW_NS

    desk.say(GREEDY, m.Finished(page.id, page.runtime.epoch), role)

    assert page.state == "completed"


def test_a_turn_ends_when_it_has_taken_long_and_loses_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetd.loop.TURN_NS", -1)
    frame = m.encode(m.Devices(1))
    for _ in range(3):
        desk.put(MODEST, "client", frame)

    for expected in (1, 2, 3):
        desk.loop.turn([])
        desk.loop.finish()
        assert desk.inlet.answers["DeviceList"] == expected
