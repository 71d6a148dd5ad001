"""The intake of a node over nodes and links that are modelled, in jumping time."""

from __future__ import annotations

import asyncio
import hashlib
import math
from typing import TYPE_CHECKING

import msgspec
import pytest

from hetpool.errors import InputLostError
from hetpool.files.content import ContentId, ContentStore, NoRoomError
from hetpool.files.intake import EnginePeers, FileIntake, FileOffer, ReadPart
from hetpool.files.transfers import Curve, Fetch, Transfer
from libtask.errors import InputError, NotFoundError
from unit.hetpool.jumping_loop import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK = 1000
RATE = 10_000.0


def bytes_of(size: int, seed: int = 0) -> bytes:
    return hashlib.shake_128(f"{seed}".encode()).digest(size)


def id_of(data: bytes) -> ContentId:
    return ContentId(hashlib.blake2b(data, digest_size=32).hexdigest())


class FakePeers:
    """Nodes with files behind one link, which carries one chunk after the other.

    Attributes:
        files: content of each node.
        lost: nodes that are gone; `silent`: that never answer; `after`: chunks that a node
            gives before it is lost.
        log: (time of arrival, content, offset, node) of each chunk.

    """

    def __init__(self, rate: float = RATE) -> None:
        self.rate = rate
        self.files: dict[str, dict[ContentId, bytes]] = {}
        self.lost: set[str] = set()
        self.silent: set[str] = set()
        self.after: dict[str, int] = {}
        self.log: list[tuple[float, ContentId, int, str]] = []
        self._free = 0.0

    def give(self, node: str, *contents: bytes) -> list[ContentId]:
        held = self.files.setdefault(node, {})
        held.update({id_of(data): data for data in contents})
        return [id_of(data) for data in contents]

    async def read(self, fetch: Fetch) -> bytes:
        node = fetch.source
        left = self.after.get(node)
        if left is not None:
            self.after[node] = left - 1
            if not left:
                self.lost.add(node)
        if node in self.lost:
            raise ConnectionResetError(f"{node} is gone")
        if node in self.silent:
            await asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        self._free = max(self._free, loop.time()) + fetch.count / self.rate
        await asyncio.sleep(self._free - loop.time())
        self.log.append((loop.time(), fetch.content, fetch.offset, node))
        return self.files[node][fetch.content][fetch.offset :][: fetch.count]


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "store", 1_000_000)


@pytest.fixture
def peers() -> FakePeers:
    return FakePeers()


@pytest.fixture
def an_intake(store: ContentStore, peers: FakePeers) -> Callable[..., FileIntake]:
    def make(cap: float = math.inf, patience_s: float = 30.0) -> FileIntake:
        return FileIntake(store, peers, cap, chunk=CHUNK, patience_s=patience_s)

    return make


def test_a_file_is_here_once_its_digest_is_right(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    data = bytes_of(4500)
    (name,) = peers.give("n1", data)

    path = run(an_intake().fetch(name, len(data), ["n1"], 0))

    assert path.read_bytes() == data
    assert len(peers.log) == 5


def test_the_order_is_kept_over_many_files(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    files = [bytes_of(3000, seed) for seed in range(10)]
    names = peers.give("n1", *files)
    ended: list[int] = []

    async def all_at_once() -> None:
        intake = an_intake()

        async def one(order: int) -> None:
            await intake.fetch(names[order], 3000, ["n1"], order)
            ended.append(order)

        # the last one is asked for first
        await asyncio.gather(*(one(order) for order in reversed(range(10))))

    run(all_at_once())

    assert ended[1:] == [*range(9)] or ended == [*range(10)]
    assert peers.log[-1][0] == pytest.approx(3.0)  # the link was never idle


def test_the_cap_holds_and_the_order_with_it(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    files = [bytes_of(20_000, seed) for seed in range(3)]
    names = peers.give("n1", *files)

    async def all_at_once() -> None:
        intake = an_intake(cap=0.7 * RATE)
        await asyncio.gather(
            *(intake.fetch(name, 20_000, ["n1"], n) for n, name in enumerate(names))
        )

    run(all_at_once())

    assert 60_000 / peers.log[-1][0] == pytest.approx(0.7 * RATE, rel=0.05)
    assert [names.index(name) for _, name, _, _ in peers.log] == sorted([0, 1, 2] * 20)


def test_a_file_with_a_cap_of_its_own_leaves_the_rest_to_others(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    slow, quick = peers.give("n1", bytes_of(20_000, 1), bytes_of(20_000, 2))

    async def both() -> None:
        intake = an_intake()
        await asyncio.gather(
            intake.fetch(slow, 20_000, ["n1"], 0, cap=2000.0),
            intake.fetch(quick, 20_000, ["n1"], 1),
        )

    run(both())

    ends = {name: at for at, name, _, _ in peers.log}
    assert ends[quick] == pytest.approx(2.6, abs=0.3)
    assert ends[slow] == pytest.approx(10.0, rel=0.06)


def test_a_transfer_that_a_source_delayed_catches_up(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    (name,) = peers.give("n2", bytes_of(20_000))
    peers.silent.add("n1")
    curve = Curve.constant(4000.0, 20_000)

    run(
        an_intake(patience_s=3.0).pull(
            Transfer(name, 20_000, ("n1", "n2"), curve=curve)
        )
    )

    # 3 s of the planned 5 s were lost, and the link has 2.5 times the planned rate
    assert peers.log[-1][0] == pytest.approx(5.0, abs=0.2)


def test_a_source_lost_in_the_middle_costs_no_chunk_twice(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    data = bytes_of(10_000)
    (name,) = peers.give("n1", data)
    peers.give("n2", data)
    peers.after["n1"] = 4

    path = run(an_intake().fetch(name, len(data), ["n1", "n2"], 0))

    assert path.read_bytes() == data
    assert sorted(offset for _, _, offset, _ in peers.log) == [*range(0, 10_000, CHUNK)]
    assert [node for *_, node in peers.log].count("n1") == 4


def test_without_a_source_the_reason_is_in_the_error(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    (name,) = peers.give("n1", bytes_of(5000))
    peers.lost.add("n1")

    with pytest.raises(InputLostError, match="no source is left; n1: n1 is gone"):
        run(an_intake().fetch(name, 5000, ["n1"], 0))


def test_what_arrived_before_all_sources_were_lost_is_not_pulled_again(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    data = bytes_of(10_000)
    (name,) = peers.give("n1", data)
    peers.after["n1"] = 6
    with pytest.raises(InputLostError):
        run(an_intake().fetch(name, len(data), ["n1"], 0))
    before = {offset for _, _, offset, _ in peers.log}
    peers.lost.clear()
    peers.after.clear()
    peers.log.clear()

    path = run(an_intake().fetch(name, len(data), ["n1"], 0))

    assert path.read_bytes() == data
    assert len(before) >= 3
    assert before.isdisjoint(offset for _, _, offset, _ in peers.log)


def test_a_liar_is_found_and_the_next_source_gives_all(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    data = bytes_of(5000)
    name = id_of(data)
    peers.files = {"liar": {name: bytes(5000)}, "n2": {name: data}}

    path = run(an_intake().fetch(name, 5000, ["liar", "n2"], 0))

    assert path.read_bytes() == data


def test_only_liars_means_no_file(
    peers: FakePeers, an_intake: Callable[..., FileIntake], store: ContentStore
) -> None:
    name = id_of(b"something else")
    peers.files = {"liar": {name: bytes(5000)}}

    with pytest.raises(InputLostError, match="other bytes than its id"):
        run(an_intake().fetch(name, 5000, ["liar"], 0))
    assert name not in store


def test_a_short_answer_is_a_lost_source(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    (name,) = peers.give("n1", bytes_of(1500))

    with pytest.raises(InputLostError, match="500 bytes instead of 1000"):
        run(an_intake().fetch(name, 5000, ["n1"], 0))


def test_a_silent_source_is_lost_after_the_patience(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    (name,) = peers.give("n1", bytes_of(1500))
    peers.silent.add("n1")

    with pytest.raises(InputLostError, match="no answer in 30 s"):
        run(an_intake().fetch(name, 1500, ["n1"], 0))


def test_two_who_need_a_file_pull_it_once_in_the_better_order(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    shared, other = peers.give("n1", bytes_of(9000, 1), bytes_of(9000, 2))

    async def three() -> None:
        intake = an_intake()
        await asyncio.gather(
            intake.fetch(other, 9000, ["n1"], 5),
            intake.fetch(shared, 9000, ["n1"], 9),
            intake.fetch(shared, 9000, ["n1"], 1),
        )

    run(three())

    assert len(peers.log) == 18
    ends = {name: at for at, name, _, _ in peers.log}
    assert ends[shared] < ends[other]


def test_one_of_two_may_leave_and_the_other_gets_the_file(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    (name,) = peers.give("n1", bytes_of(9000))

    async def two() -> Path:
        intake = an_intake()
        leaving = asyncio.ensure_future(intake.fetch(name, 9000, ["n1"], 0))
        staying = asyncio.ensure_future(intake.fetch(name, 9000, ["n1"], 0))
        await asyncio.sleep(0.35)
        leaving.cancel()
        return await staying

    assert run(two()).stat().st_size == 9000


def test_a_cancelled_transfer_leaves_the_link_to_others_and_its_part_on_disk(
    peers: FakePeers, an_intake: Callable[..., FileIntake], store: ContentStore
) -> None:
    name, other = peers.give("n1", bytes_of(9000, 1), bytes_of(2000, 2))

    async def cancelled() -> None:
        intake = an_intake()
        task = asyncio.ensure_future(intake.fetch(name, 9000, ["n1"], 0))
        await asyncio.sleep(0.35)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await intake.fetch(other, 2000, ["n1"], 0)

    run(cancelled())

    with store.begin(name, 9000, CHUNK) as left:
        assert len(left.present()) == 3


def test_the_quota_refuses_what_does_not_fit_beside_files_in_use(
    peers: FakePeers, an_intake: Callable[..., FileIntake], store: ContentStore
) -> None:
    store.quota = 5000
    first, second = peers.give("n1", bytes_of(3000, 1), bytes_of(3000, 2))

    async def both() -> None:
        intake = an_intake()
        await intake.fetch(first, 3000, ["n1"], 0)
        with pytest.raises(NoRoomError, match="3000 of the quota of 5000"):
            await intake.fetch(second, 3000, ["n1"], 0)
        intake.release(first)
        await intake.fetch(second, 3000, ["n1"], 0)

    run(both())

    assert first not in store
    assert second in store


def test_an_empty_file_needs_no_transfer(an_intake: Callable[..., FileIntake]) -> None:
    assert run(an_intake().fetch(id_of(b""), 0, ["n1"], 0)).read_bytes() == b""


def test_goodput_is_measured_on_the_way(
    peers: FakePeers, an_intake: Callable[..., FileIntake]
) -> None:
    (name,) = peers.give("n1", bytes_of(40_000))
    intake = an_intake()

    run(intake.fetch(name, 40_000, ["n1"], 0))

    assert intake.goodput() == pytest.approx(RATE, rel=0.15)


# ------------------------------------------------------------------------- offers


def _offered(store: ContentStore, tmp_path: Path, data: bytes) -> ContentId:
    source = tmp_path / "source"
    source.write_bytes(data)
    return store.add(source)


def test_an_offer_answers_the_message_of_an_intake(
    store: ContentStore, tmp_path: Path
) -> None:
    data = bytes_of(3000)
    name = _offered(store, tmp_path, data)

    class Engine:
        async def ask(self, name: str, message: bytes, node: str = "") -> bytes:
            assert (name, node) == ("read", "n1")
            return await FileOffer(store).answer(message)

    got = run(EnginePeers(Engine()).read(Fetch(name, "n1", 1000, 500)))

    assert got == data[1000:1500]


def test_a_sender_keeps_its_own_cap(store: ContentStore, tmp_path: Path) -> None:
    name = _offered(store, tmp_path, bytes_of(30_000))

    async def all_at_once() -> float:
        offer = FileOffer(store, cap=10_000.0)
        parts = (offer.read(name, n * 1000, 1000) for n in range(30))
        await asyncio.gather(*parts)
        return asyncio.get_running_loop().time()

    assert run(all_at_once()) == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (ReadPart("../../etc/passwd", 0, 10), InputError),
        (ReadPart("a" * 63, 0, 10), InputError),
        (ReadPart("A" * 64, 0, 10), InputError),
        (ReadPart("a" * 64, 0, 10), NotFoundError),
        (ReadPart("", 0, 0), InputError),
    ],
)
def test_what_peers_may_not_ask(
    store: ContentStore, part: ReadPart, error: type[Exception]
) -> None:
    with pytest.raises(error):
        run(FileOffer(store).answer(msgspec.msgpack.encode(part)))


@pytest.mark.parametrize("message", [b"", b"\xff" * 10, b"\x93\x01\x02\x03", b"\x90"])
def test_a_message_that_is_none_is_refused(store: ContentStore, message: bytes) -> None:
    with pytest.raises(InputError, match="read: "):
        run(FileOffer(store).answer(message))


@pytest.mark.parametrize(
    ("offset", "count"), [(-1, 10), (0, 0), (0, 101), (100, 1), (0, 1 << 40), (0, -5)]
)
def test_parts_that_are_not_in_the_file(
    store: ContentStore, tmp_path: Path, offset: int, count: int
) -> None:
    name = _offered(store, tmp_path, bytes_of(100))

    with pytest.raises(InputError, match="no bytes"):
        run(FileOffer(store).read(name, offset, count))
