"""Counters that a child process reads: it may crash, hang or print anything.

The child is started by the first sample, and ended when nobody asks any more. Nothing here
waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hetd.devices.child_lines import ChildError, ChildLines
from hetd.devices.counters.source import CounterError
from hetsched.system import SECOND
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.devices.counters.source import CounterName
    from hetsched.ids import Nanoseconds

FIRST_S = 20.0
"""Limit for the first line: drivers initialise cards."""
SILENT_S = 10.0
"""Limit between two lines."""
LONGEST_REASON = 200


class ChildLine(msgspec.Struct, frozen=True):
    """A line of a child: values by name, and why others are not there."""

    values: dict[str, float] = {}
    problems: dict[str, str] = {}


class CounterChild:
    """A child that reads counters.

    Args:
        command: prints the lines.

    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._lines: ChildLines | None = None
        self._last = ChildLine()
        self._number = 0
        self._heard: Nanoseconds = 0
        self._lost = ""
        self._users = 0

    def join(self) -> None:
        """Count one more value that is read."""
        self._users += 1

    def leave(self) -> None:
        """End the child with its last user."""
        self._users -= 1
        if self._users <= 0:
            self.rest()

    def read(self, value: str, now: Nanoseconds) -> tuple[int, float | None]:
        """Return the number of the last line, 0 before the first, and a value in it.

        Raises:
            CounterError: the child says that it cannot read it, or is lost.

        """
        if not self._lost:
            try:
                self._read(now)
            except (ChildError, msgspec.MsgspecError) as error:
                self._lose(str(error))
        # a child that has nothing to read says why, and ends
        reason = self._last.problems.get(value) or self._lost
        if reason:
            raise CounterError(one_line(reason)[:LONGEST_REASON])
        return self._number, self._last.values.get(value)

    def rest(self) -> None:
        """End the child; the next `read` starts another one."""
        if self._lines is not None:
            self._lines.end()
        self._lines, self._last, self._number = None, ChildLine(), 0

    def _read(self, now: Nanoseconds) -> None:
        if self._lines is None:
            self._lines = ChildLines(self._command)
            self._heard = now
        line = self._lines.latest()
        if line is not None:
            self._last = msgspec.json.decode(line, type=ChildLine)
            self._number += 1
            self._heard = now
        limit = SILENT_S if self._number else FIRST_S
        if now - self._heard > limit * SECOND:
            raise ChildError(f"no reading in {limit:g} s")

    def _lose(self, reason: str) -> None:
        problems = self._last.problems
        self.rest()
        self._last = ChildLine(problems=problems)
        self._lost = reason


class ChildCounter:
    """One value of a child.

    Args:
        child: the child.
        value: its name there; `name`: as a counter.
        capacity: the value at which the resource is fully used.

    """

    def __init__(
        self,
        child: CounterChild,
        value: str,
        name: CounterName,
        capacity: float = 1.0,
    ) -> None:
        self.name = name
        self._child = child
        self._value = value
        self._capacity = capacity
        self._seen = 0
        child.join()

    def sample(self, now: Nanoseconds) -> float | None:
        try:
            number, value = self._child.read(self._value, now)
        except CounterError:
            self._child.leave()
            raise
        if number == self._seen or value is None:
            return None
        self._seen = number
        return value / self._capacity

    def rest(self) -> None:
        self._seen = 0
        self._child.rest()
