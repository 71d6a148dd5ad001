"""NVML: energy of NVIDIA cards, read by a child process.

The driver's library runs in the child (`nvml_child`), so that a crash does not affect
hetd. The child prints a line of JSON ten times a second; hetd reads the available lines
and never waits. When the child ends, the meter is lost.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.devices.meter import MeterError

if TYPE_CHECKING:
    from collections.abc import Sequence

CHILD = (sys.executable, "-m", "hetd.devices.nvml_child")
FIRST_S = 10.0
"""Limit for the first reading: drivers initialise cards."""
PIECE = 1 << 16


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
            self._child = subprocess.Popen(  # noqa: S603  our own interpreter and module
                command,
                stdin=subprocess.PIPE,  # closed with us: then the child ends
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise MeterError(f"NVML: {error}") from error
        self._pipe = self._open_pipe()
        self._rest = b""
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
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()
        self._child.kill()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def _open_pipe(self) -> int:
        if self._child.stdout is None:
            raise MeterError("NVML: the child has no output")
        descriptor = self._child.stdout.fileno()
        os.set_blocking(descriptor, False)
        return descriptor

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
        ready, _, _ = select.select([self._pipe], [], [], max(seconds, 0.0))
        if not ready:
            raise MeterError("NVML: no reading in time")

    def _read(self) -> None:
        """Read the output of the child; the last complete line counts."""
        try:
            piece = os.read(self._pipe, PIECE)
        except BlockingIOError:
            return
        if not piece:
            raise MeterError("NVML: the child that reads it has ended")
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if lines:
            self._take(lines[-1])

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
