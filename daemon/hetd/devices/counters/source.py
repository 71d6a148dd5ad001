"""Counters: what a source of them offers, and why one is not read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds

PROC, SYS = Path("/proc"), Path("/sys")


class CounterError(Exception):
    """A counter cannot be read: absent, forbidden or of an unknown form."""


@dataclass(frozen=True, slots=True)
class CounterName:
    """The identity of a counter, and the source that it is read from.

    Attributes:
        source: file or interface that it is read from, as users know it.
        shared: the shared resource that it describes; empty: there is none.
        counter: name in `hetsched.belief.COUNTERS`, or of a figure that is only shown.

    """

    source: str
    shared: str
    counter: str


class CounterSource(Protocol):
    """One counter of a shared resource."""

    name: CounterName

    def sample(self, now: Nanoseconds) -> float | None:
        """Return the value now; None: there is no new one yet.

        Raises:
            CounterError: it cannot be read; it is not asked again.

        """
        ...

    def rest(self) -> None:
        """Give back what it holds: nobody asks until the next sample."""
        ...


@dataclass(frozen=True, slots=True)
class MissingCounter:
    """A counter that is not read, and the reason."""

    name: CounterName
    reason: str


def text_of(file: Path) -> str:
    """Return the text of a small file.

    Raises:
        CounterError: it cannot be read.

    """
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise CounterError(f"{file}: {error.strerror}") from error


def number_of(text: str) -> int:
    """Return the whole number that a text is.

    Raises:
        CounterError: it is none.

    """
    try:
        return int(text, 0)
    except ValueError as error:
        raise CounterError(f"expected a number, got {text[:20]!r}") from error
