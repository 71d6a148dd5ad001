"""The files that a node pulls from other nodes, and the parts that it gives to them.

The agent of a node has one `FileIntake` and one `FileOffer`, both over its `ContentStore`. How
bytes come from a peer is a seam (`Peers`), which the engine fills (`EnginePeers`); what is
asked for next is decided by `TransferQueue`. Chunks go straight from a peer into the file:
memory holds those on their way, and nothing else. Time is the event loop's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from hetpool.errors import InputLostError
from hetpool.files.content import CHUNK, ContentId, DamagedError, content_id, digest_of
from hetpool.files.transfers import Cap, Curve, Goodput, Transfer, TransferQueue
from libtask.errors import BusyError, HetError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from hetpool.files.content import ContentStore, Partial
    from hetpool.files.transfers import Fetch

Returned = TypeVar("Returned")

READ = "read"
"""Name of the message that asks a node for a part of a file."""

PATIENCE_S = 30.0
"""A source that answers nothing for this long is lost."""
INLINE = 1 << 18
"""Bytes up to which writing and digesting are not worth a thread of their own."""
MOST_TRANSFERS = 10_000
"""Under way at a time; a node's agent asks for what is placed on it."""
MOST_READERS = 1024
"""Parts that wait for a sender's cap at a time: 1 GiB in memory at most."""


class ReadPart(msgspec.Struct, frozen=True, array_like=True):
    """The message of the name `READ`; its answer is the bytes."""

    content: str
    offset: int
    count: int


class Peers(Protocol):
    """The way to other nodes; raises `OSError` or `HetError` if a node does not answer."""

    async def read(self, fetch: Fetch) -> bytes: ...


class Asking(Protocol):
    """The part of `seam.WorkerEngine` that transfers use."""

    async def ask(self, name: str, message: bytes, node: str = "") -> bytes: ...


@dataclass(frozen=True, slots=True)
class EnginePeers:
    """Asks other nodes through the engine."""

    engine: Asking

    async def read(self, fetch: Fetch) -> bytes:
        part = ReadPart(fetch.content, fetch.offset, fetch.count)
        return await self.engine.ask(READ, msgspec.msgpack.encode(part), fetch.source)


@dataclass(slots=True, eq=False)
class _Arrival:
    """A transfer of which somebody waits for the end."""

    transfer: Transfer
    partial: Partial
    done: asyncio.Future[None]
    reason: str = ""
    waiting: int = 0
    asking: set[asyncio.Task[None]] = field(default_factory=set)


class FileIntake:
    """Pulls files into the store of this node, in order, within the cap.

    Args:
        store: where they go.
        peers: the way to other nodes.
        cap: bytes a second of all transfers together; infinite = no limit.
        chunk: bytes asked for at once.
        patience_s: a source that answers nothing for this long is lost.

    """

    def __init__(
        self,
        store: ContentStore,
        peers: Peers,
        cap: float = float("inf"),
        *,
        chunk: int = CHUNK,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._store = store
        self._peers = peers
        self._cap = Cap(cap)
        self._chunk = chunk
        self._patience_s = patience_s
        self._queue = TransferQueue(self._cap, chunk)
        self._goodput = Goodput()
        self._arrivals: dict[ContentId, _Arrival] = {}
        self._timer: asyncio.TimerHandle | None = None

    def goodput(self) -> float | None:
        """Return what the link into this node carries, bytes a second, if it is known."""
        return self._goodput.rate()

    def set_cap(self, rate: float) -> None:
        """Limit all transfers together to a rate, bytes a second."""
        self._cap.rate = rate
        self._go_on()

    async def fetch(
        self,
        content: str,
        size: int,
        sources: Sequence[str],
        order: int,
        cap: float | None = None,
    ) -> Path:
        """Pull a file as `pull` does.

        Args:
            content: its content id.
            size: its bytes.
            sources: addresses of nodes that have it, the preferred one first.
            order: files of a lower one go first.
            cap: of this file alone, bytes a second.

        Raises:
            InputError: not a content id.

        """
        curve = Curve.constant(cap, size) if cap else None
        name = content_id(content)
        return await self.pull(Transfer(name, size, tuple(sources), order, curve))

    def release(self, content: str) -> None:
        """Allow that a file goes when room is needed: its task has ended."""
        self._store.release(content_id(content))

    async def pull(self, transfer: Transfer) -> Path:
        """Return the path of a file, which is pulled if it is not on this node.

        The file is held: it stays until `ContentStore.release`. Several callers may wait
        for one file; it is pulled once, in the lowest of their orders. A caller that is
        cancelled leaves it to the others; what arrived stays for the next attempt.

        Raises:
            InputLostError: no source is left; the reason of the last one is in its text.
            NoRoomError: the quota of the folder is used up.
            BusyError: too many are under way.

        """
        content = transfer.content
        # it may have gone again before this caller is woken
        while content not in self._store:
            await self._arrived(transfer)
        self._store.hold(content)
        return self._store.path(content)

    async def close(self) -> None:
        """End all transfers; those who wait are cancelled."""
        for arrival in list(self._arrivals.values()):
            await self._end(arrival, None)

    # ---------------------------------------------------------------- one transfer

    async def _arrived(self, transfer: Transfer) -> None:
        arrival = self._arrivals.get(transfer.content)
        if arrival is None:
            arrival = self._begin(transfer)
        elif transfer.content in self._queue:
            self._queue.hasten(transfer.content, transfer.order)
        arrival.waiting += 1
        try:
            self._go_on()
            await asyncio.shield(arrival.done)
        finally:
            arrival.waiting -= 1
            if not arrival.waiting and not arrival.done.done():
                await self._end(arrival, None)

    def _begin(self, transfer: Transfer) -> _Arrival:
        if not transfer.sources:
            raise InputLostError(f"content {transfer.content[:12]}: no node has it")
        if len(self._arrivals) >= MOST_TRANSFERS:
            raise BusyError(f"{MOST_TRANSFERS} transfers are under way on this node")
        partial = self._store.begin(transfer.content, transfer.size, self._chunk)
        loop = asyncio.get_running_loop()
        arrival = _Arrival(transfer, partial, loop.create_future())
        self._arrivals[transfer.content] = arrival
        if self._queue.add(transfer, loop.time(), partial.present()):
            self._start(arrival, self._finish(arrival))
        return arrival

    async def _finish(self, arrival: _Arrival) -> None:
        """Check a complete file; ask another source if it is damaged."""
        content, partial = arrival.transfer.content, arrival.partial
        try:
            digest = await _by_size(partial.size, lambda: digest_of(partial.descriptor))
            partial.finish(digest)
        except DamagedError as error:
            arrival.reason = str(error)
            if not self._again(content, arrival.transfer):
                await self._end(arrival, _lost(arrival))
            self._go_on()
        except OSError as error:
            await self._end(arrival, _unwritable(arrival, error))
        else:
            await self._end(arrival, None, complete=True)

    def _again(self, content: ContentId, transfer: Transfer) -> bool:
        """Pull from the beginning; return whether a source is left."""
        if content in self._queue:
            return self._queue.damaged(content)
        # an earlier attempt had left all of it
        now = asyncio.get_running_loop().time()
        self._queue.add(transfer, now)
        return bool(transfer.sources)

    async def _end(
        self, arrival: _Arrival, error: HetError | None, *, complete: bool = False
    ) -> None:
        """Forget a transfer and wake those who wait for it."""
        if self._arrivals.pop(arrival.transfer.content, None) is None:
            return
        self._queue.drop(arrival.transfer.content)
        for task in arrival.asking - {asyncio.current_task()}:
            task.cancel()
        await asyncio.gather(
            *(arrival.asking - {asyncio.current_task()}), return_exceptions=True
        )
        arrival.partial.close()
        if error is not None:
            arrival.done.set_exception(error)
            arrival.done.exception()  # nobody may be left to read it
        elif complete:
            arrival.done.set_result(None)
        else:
            arrival.done.cancel()
        self._go_on()

    # --------------------------------------------------------------------- chunks

    def _go_on(self) -> None:
        """Ask for all chunks that may be asked for now; come back when more may."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for fetch in self._queue.fetches(now):
            arrival = self._arrivals[fetch.content]
            self._goodput.busy(now)
            self._start(arrival, self._ask(arrival, fetch))
        if not self._queue.in_flight:
            self._goodput.idle()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake = self._queue.wake(now)
        if wake is not None:
            self._timer = loop.call_at(wake, self._go_on)

    def _start(self, arrival: _Arrival, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        arrival.asking.add(task)
        task.add_done_callback(arrival.asking.discard)

    async def _ask(self, arrival: _Arrival, fetch: Fetch) -> None:
        """Get one chunk into its file."""
        try:
            async with asyncio.timeout(self._patience_s):
                block = await self._peers.read(fetch)
        except TimeoutError:
            silent = f"no answer in {self._patience_s:g} s"
            await self._source_lost(arrival, fetch, silent)
        except Exception as error:  # noqa: BLE001  whatever a peer causes, another one is asked
            await self._source_lost(arrival, fetch, str(error) or repr(error))
        else:
            if len(block) == fetch.count:
                await self._write(arrival, fetch, block)
            else:
                wrong = f"{len(block)} bytes instead of {fetch.count}"
                await self._source_lost(arrival, fetch, wrong)

    async def _write(self, arrival: _Arrival, fetch: Fetch, block: bytes) -> None:
        try:
            write = arrival.partial.write
            await _by_size(len(block), lambda: write(fetch.offset, block))
        except OSError as error:  # the disk is full
            await self._end(arrival, _unwritable(arrival, error))
            return
        now = asyncio.get_running_loop().time()
        self._goodput.arrived(fetch.count, now, self._cap)
        complete = self._queue.received(fetch)
        self._go_on()
        if complete:
            await self._finish(arrival)

    async def _source_lost(self, arrival: _Arrival, fetch: Fetch, why: str) -> None:
        arrival.reason = f"{fetch.source}: {why}"
        if self._queue.lost(fetch):
            self._go_on()
        else:
            await self._end(arrival, _lost(arrival))


class FileOffer:
    """Gives parts of the store's files to other nodes, within a cap.

    Args:
        store: where the files are.
        cap: bytes a second to all nodes together; infinite = no limit.

    """

    def __init__(self, store: ContentStore, cap: float = float("inf")) -> None:
        self._store = store
        self._cap = Cap(cap)
        self._waiting = 0

    async def answer(self, message: bytes) -> bytes:
        """Answer a `READ` message.

        Raises:
            InputError: malformed; and as `read`.

        """
        try:
            part = msgspec.msgpack.decode(message, type=ReadPart)
        except msgspec.DecodeError as error:
            raise InputError(f"read: {error}") from error
        return await self.read(part.content, part.offset, part.count)

    async def read(self, content: str, offset: int, count: int) -> bytes:
        """Return a part of a file when the cap allows it.

        Raises:
            NotFoundError: there is no such content here.
            InputError: not a content id, or the part is not in the file.
            BusyError: too many wait already.

        """
        if self._waiting >= MOST_READERS:
            raise BusyError(f"{MOST_READERS} parts of files wait to be sent")
        block = self._store.read(content_id(content), offset, count)
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._cap.begin(loop.time())
        delay = self._cap.take(count, loop.time()) - loop.time()
        self._waiting += 1
        try:
            await asyncio.sleep(max(0.0, delay))
        finally:
            self._waiting -= 1
        return block


async def _by_size(size: int, work: Callable[[], Returned]) -> Returned:
    """Do a piece of work on a file: in a thread, unless it is small."""
    if size <= INLINE:
        return work()
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(working)
    finally:
        # a thread cannot be cancelled, and the file must stay open for it
        await asyncio.wait([working])


def _lost(arrival: _Arrival) -> InputLostError:
    return InputLostError(
        f"content {arrival.transfer.content[:12]}: no source is left; {arrival.reason}"
    )


def _unwritable(arrival: _Arrival, error: OSError) -> InputLostError:
    return InputLostError(
        f"content {arrival.transfer.content[:12]}: {error.strerror or error}"
    )
