"""The seams of the pool: what it asks of the engine, and of the intake of files.

The engine carries messages, jobs, inputs and results between machines and knows which
machines are there. `hetpool.engine` does so with Dask; tests have one without processes.
Every message is bytes, encoded by `hetpool.messages`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from hetpool.jobs import InputFile

Answer: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""A handler of one kind of message."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A coroutine function and its argument, which the engine carries to a node and runs.

    Attributes:
        key: of the errand; the same errand has the same key for ever.
        function: a coroutine function that the node can import.
        argument: its argument.
        inputs: files that the engine itself carries to the node first; the function gets
            them as a map from content id to bytes.
        node: address of the only node that may run it; empty: none, until it is pinned.
        order: errands of a lower order go first, their inputs too.

    """

    key: str
    function: Callable[..., Any]
    argument: bytes
    node: str
    order: int
    inputs: tuple[InputFile, ...] = ()


class EngineGoneError(Exception):
    """The engine lost the scheduler, and with it the errand: start it again."""


class ErrandCancelledError(Exception):
    """The broker cancelled the errand before any node had it; gives the reason."""


class StartedErrand(Protocol):
    """An errand that was started."""

    async def outcome(self) -> Any:
        """Wait for the end; return the result or raise the function's error.

        Raises:
            EngineGoneError: the scheduler was lost.
            ErrandCancelledError: it was cancelled before any node had it.

        """
        ...

    def drop(self) -> None:
        """Let the engine forget the errand and its result."""
        ...


class ClientEngine(Protocol):
    """The engine in a client's process; all methods are called in its event loop."""

    async def ask(self, name: str, message: bytes) -> bytes:
        """Send a message to the broker and wait for the answer.

        Raises:
            PoolUnreachableError: the scheduler does not answer.

        """
        ...

    async def start(self, errands: Sequence[Errand]) -> Sequence[StartedErrand]:
        """Start errands, in few messages."""
        ...

    async def close(self) -> None: ...


class SchedulerEngine(Protocol):
    """The engine in the scheduler's process, for the broker."""

    def answer(self, name: str, handler: Answer) -> None:
        """Answer messages of clients and nodes with a handler."""
        ...

    async def ask(self, node: str, name: str, message: bytes) -> bytes:
        """Send a message to the agent at an address and wait for the answer."""
        ...

    def pin(self, key: str, node: str) -> None:
        """Let an errand run at another address from now on.

        One whose node is lost starts there at once, another one when its function puts it
        back (`WorkerEngine.put_back`) or `take_back` is called.
        """
        ...

    def take_back(self, key: str) -> None:
        """Take an errand from a node that has not begun it, to where it is pinned."""
        ...

    def cancel(self, key: str, reason: str) -> None:
        """End an errand that no node has: those who wait for it get `ErrandCancelledError`.

        One whose inputs are on their way cannot be ended yet.
        """
        ...

    def give_back(self, key: str) -> None:
        """Remove an errand; those who wait for it get `EngineGoneError`, and start it again."""
        ...

    def knows(self, key: str) -> bool:
        """Return whether an errand was started and somebody waits for its end."""
        ...


class ErrandState(Enum):
    """The states of errands that the broker distinguishes."""

    OPEN = "open"
    ENDED = "ended"
    FORGOTTEN = "forgotten"


class SchedulerAudience(Protocol):
    """The broker, as the engine sees it: called in the scheduler's event loop."""

    def node_went(self, name: str, address: str) -> None: ...
    def errand_changed(self, key: str, state: ErrandState) -> None: ...


class WorkerEngine(Protocol):
    """The engine in a node's process, for the agent."""

    def answer(self, name: str, handler: Answer) -> None:
        """Answer messages of the broker and of other nodes with a handler."""
        ...

    async def ask(self, name: str, message: bytes, node: str = "") -> bytes:
        """Send a message to an address (empty: to the broker), wait for the answer."""
        ...

    def put_back(self) -> Exception:
        """Return the error that a function raises to be run again, where it is pinned then."""
        ...

    def rate(self) -> float | None:
        """Return bytes a second of the inputs that it carried here lately, if any."""
        ...

    def heard(self) -> float:
        """Return when the scheduler was last heard, in seconds of the monotonic clock."""
        ...

    def part(self) -> None:
        """Leave the scheduler now, and join again when that is possible."""
        ...


class Intake(Protocol):
    """The intake of a node: pulls files of other nodes, in order and within a rate."""

    async def fetch(
        self,
        content: str,
        size: int,
        sources: Sequence[str],
        order: int,
        cap: float | None = None,
    ) -> Path:
        """Return the local path of a file, once all of it is here and its digest is right.

        Transfers of a lower order go first; one that is here already takes no time.

        Args:
            content: the file's content id; its name in the store.
            size: its length in bytes.
            sources: addresses of nodes that have it, the best one first.
            order: position among the transfers of this node.
            cap: bytes a second; None: as fast as the link allows.

        Raises:
            InputLostError: no source has it, or all of them were lost.
            NoRoomError: files in use leave no room within the quota.

        """
        ...

    def release(self, content: str) -> None:
        """Allow that a fetched file goes when room is needed; once for each `fetch`."""
        ...
