"""Null devices of any kind, without memory or computing.

They replace real devices in tests, and serve the `synthetic` application, which replays
other machines.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from libtask.devices.residents import ResultsOnHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from libtask.messages import DeviceSpec

REMEMBERED_CALLS = 10_000
"""Maximum recorded calls: a worker may use one device for millions of strips."""


class NullDevice(ResultsOnHost):
    """Returns the host arrays themselves, and records the calls.

    Attributes:
        calls: names of the latest calls, oldest first: "resident", "leave resident",
            "inputs", "leave inputs", "scratch", "leave scratch", "refresh", "mark", "wait",
            "close".

    """

    pipelined = False
    copies_out = None

    def __init__(self, spec: DeviceSpec) -> None:
        super().__init__()
        self.spec = spec
        self.transfer_in = 0.0
        self.transfer_out = 0.0
        self.calls: deque[str] = deque(maxlen=REMEMBERED_CALLS)

    @contextmanager
    def resident(self, *arrays: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
        with self._recorded("resident"):
            yield arrays

    @contextmanager
    def inputs(self, *arrays: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
        with self._recorded("inputs"):
            yield arrays

    @contextmanager
    def scratch(self, *arrays: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
        with self._recorded("scratch"):
            yield arrays

    def refresh(self) -> None:
        self.calls.append("refresh")

    def mark(self) -> Callable[[], None]:
        self.calls.append("mark")
        return lambda: self.calls.append("wait")

    def close(self) -> None:
        self.calls.append("close")

    @contextmanager
    def _recorded(self, call: str) -> Iterator[None]:
        self.calls.append(call)
        try:
            yield
        finally:
            self.calls.append(f"leave {call}")
