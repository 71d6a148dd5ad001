"""NVML: energy of NVIDIA cards, read by a child process.

The driver's library runs in the child (`nvml_child`), so that a crash does not affect
hetd. The child prints a line of JSON ten times a second; hetd reads the available lines
and never waits. When the child ends, the meter is lost.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.devices.child_lines import ChildError, ChildLines
from hetd.devices.meter import MeterError

if TYPE_CHECKING:
    from collections.abc import Sequence

CHILD = (sys.executable, "-m", "hetd.devices.nvml_child")
FIRST_S = 10.0
"""Limit for the first reading: drivers initialise cards."""


class NvmlFeed:
    """The child process and its last reading: joules of each card.

    Args:
        command: prints the readings.
        first_s: limit for the first reading, seconds.

    Raises:
        MeterError: no library, no driver or no card, as the child reports.

    """

    def __init__(
        self, command: Sequence[str] = CHILD, first_s: float = FIRST_S
    ) -> None:
        try:
            self.lines = ChildLines(command)
        except ChildError as error:
            raise MeterError(f"NVML: {error}") from error
        self._cards: list[float] = []
        self._users = 0
        self._await_first(first_s)

    def card(self, number: int) -> NvmlCard:
        """Return the meter of a card.

        Raises:
            MeterError: there is no such card.

        """
        if number >= len(self._cards):
            raise MeterError(f"NVML: no card {number} of {len(self._cards)}")
        self._users += 1
        return NvmlCard(self, number)

    def joules(self, number: int) -> float:
        """Return a card's last reading."""
        self._read()
        return self._cards[number]

    def leave(self) -> None:
        """End the child with its last user."""
        self._users -= 1
        if self._users <= 0:
            self.end()

    def end(self) -> None:
        """End the child."""
        self.lines.end()

    def _await_first(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        try:
            while not self._cards:
                self._await_piece(deadline - time.monotonic())
                self._read()
        except MeterError:
            self.end()
            raise

    def _await_piece(self, seconds: float) -> None:
        if not self.lines.wait(seconds):
            raise MeterError("NVML: no reading in time")

    def _read(self) -> None:
        """Read the output of the child; the last complete line counts."""
        try:
            line = self.lines.latest()
        except ChildError as error:
            raise MeterError(f"NVML: {error}") from error
        if line is not None:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            reading: Any = msgspec.json.decode(line, type=_Reading)
        except msgspec.MsgspecError as error:
            raise MeterError(f"NVML: {error}") from error
        if reading.problem:
            raise MeterError(f"NVML: {reading.problem}")
        if self._cards and len(reading.joules) != len(self._cards):
            raise MeterError("NVML: a card came or went")
        self._cards = reading.joules


class _Reading(msgspec.Struct, frozen=True):
    """A line of the child."""

    joules: list[float] = []
    problem: str = ""


class NvmlCard:
    """One card. A `Meter`."""

    def __init__(self, feed: NvmlFeed, number: int) -> None:
        self._feed = feed
        self._number = number
        self._first = feed.joules(number)

    def joules(self) -> float:
        return max(0.0, self._feed.joules(self._number) - self._first)

    def close(self) -> None:
        self._feed.leave()
