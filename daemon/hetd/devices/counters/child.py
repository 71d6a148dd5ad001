"""The common part of the children that read counters: they print values until the end.

A line of JSON each time: `{"values": {"resctrl": 1.2e9}, "problems": {"perf": "…"}}`. A
child ends when its standard input is closed, that is with its parent, or when nothing is
left that it could read.
"""

from __future__ import annotations

import json
import select
import sys
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Opener = Callable[[], "ValueReader"]

LONGEST_PROBLEM = 200


class ValueReader(Protocol):
    """Something that is read for one or several values."""

    def values(self, now: float) -> dict[str, float]:
        """Return the values at an instant in seconds; rates are those since the last call.

        Raises:
            Exception: it cannot be read any more.

        """
        ...


class Readers:
    """The readers of a child, and why others are not there.

    Args:
        openers: names of the values of a reader -> opens it, or raises.

    """

    def __init__(self, openers: Mapping[tuple[str, ...], Opener]) -> None:
        self._readers: list[tuple[tuple[str, ...], ValueReader]] = []
        self.problems: dict[str, str] = {}
        for names, opener in openers.items():
            try:
                self._readers.append((names, opener()))
            except Exception as error:  # noqa: BLE001  whatever a driver raises is shown
                self._refuse(names, error)

    def __bool__(self) -> bool:
        """Whether anything is left to read."""
        return bool(self._readers)

    @property
    def names(self) -> list[str]:
        """The values that are read."""
        return [name for names, _ in self._readers for name in names]

    def values(self, now: float) -> dict[str, float]:
        """Return all values; a reader that fails is given up."""
        found: dict[str, float] = {}
        for names, reader in tuple(self._readers):
            try:
                found |= reader.values(now)
            except Exception as error:  # noqa: BLE001  whatever a driver raises is shown
                self._readers.remove((names, reader))
                self._refuse(names, error)
        return found

    def _refuse(self, names: tuple[str, ...], error: Exception) -> None:
        text = " ".join(str(error).split()) or type(error).__name__
        self.problems |= dict.fromkeys(names, text[:LONGEST_PROBLEM])


def print_values(
    readers: Readers, every_s: float, prefer: tuple[str, ...] = ()
) -> None:
    """Print the values again and again.

    Args:
        readers: what is read.
        every_s: seconds between two lines.
        prefer: values for the same thing, the best first: only one of them is printed.

    """
    while True:
        values = readers.values(time.monotonic())
        useful = [name for name in prefer if name in readers.names]
        problems = dict(readers.problems)
        for name in useful[1:]:
            values.pop(name, None)
            problems[name] = f"not needed: {useful[0]} shows the same"
        _say({"values": values, "problems": problems})
        if not readers:
            return
        closed, _, _ = select.select([sys.stdin], [], [], every_s)
        if closed:
            return


def _say(document: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


class GrowthRate:
    """The growth of a counter per second; None at first, and where it went backwards."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def of(self, total: float, now: float) -> float | None:
        """Return the growth per second since the last call."""
        last, self._last = self._last, (now, total)
        if last is None or now <= last[0] or total < last[1]:
            return None
        return (total - last[1]) / (now - last[0])
