"""Timers: the daemon's clock, and actions at instants, in one heap for the whole daemon."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from hetd.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds

    Action: TypeAlias = Callable[[Nanoseconds], Sequence[Event]]
    """Called with the present instant; returns the events that follow."""

FEW = 64
"""Replaced timers that may stay in the heap, however few others there are."""


@dataclass(order=True, slots=True)
class Timer:
    """An action and its instant; `number` keeps those of one instant in order.

    Attributes:
        action: None: the timer was replaced or removed.
        name: empty: it has none.

    """

    due: Nanoseconds
    number: int
    action: Action | None = field(compare=False)
    name: str = field(compare=False, default="")


class Timers:
    """The timers that have not fired.

    Attributes:
        clock: tells their instants.

    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._heap: list[Timer] = []
        self._numbers = count()
        self._named: dict[str, Timer] = {}
        self._replaced = 0

    def at(self, due: Nanoseconds, action: Action) -> None:
        """Set a timer; it fires once."""
        heappush(self._heap, Timer(due, next(self._numbers), action))

    def set(self, name: str, due: Nanoseconds | None, action: Action) -> None:
        """Set the one timer of a name, in place of an earlier one; None: remove it."""
        known = self._named.get(name)
        if (None if known is None else known.due) == due:
            return
        self.remove(name)
        if due is not None:
            timer = Timer(due, next(self._numbers), action, name)
            heappush(self._heap, timer)
            self._named[name] = timer

    def remove(self, name: str) -> None:
        """Remove the timer of a name, if there is one."""
        known = self._named.pop(name, None)
        if known is not None:
            known.action = None
            self._replaced += 1
            self._drop_replaced()

    def has(self, name: str) -> bool:
        """Whether the timer of a name is set."""
        return name in self._named

    def next(self) -> Nanoseconds | None:
        """Return the instant of the next timer; None: there is none."""
        while self._heap and self._heap[0].action is None:
            self._pop()
        return self._heap[0].due if self._heap else None

    def due(self, now: Nanoseconds) -> Iterator[Action]:
        """Remove the timers whose instants have come; yield their actions in order.

        A timer that is set by one of these actions fires in the next call at the earliest.
        """
        newest = next(self._numbers)
        while self._heap and self._heap[0].due <= now:
            if self._heap[0].number > newest:
                return
            timer = self._pop()
            if timer.action is not None:
                self._named.pop(timer.name, None)
                yield timer.action

    def _pop(self) -> Timer:
        timer = heappop(self._heap)
        self._replaced -= timer.action is None
        return timer

    def _drop_replaced(self) -> None:
        """Remove replaced timers once they are most of the heap: some are far in the future."""
        if self._replaced > max(FEW, len(self._heap) // 2):
            self._heap = [timer for timer in self._heap if timer.action is not None]
            heapify(self._heap)
            self._replaced = 0
