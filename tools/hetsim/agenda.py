"""The agenda: what will happen, ordered by (time, order, sequence)."""

from __future__ import annotations

from enum import IntEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds

Ticket: TypeAlias = int
"""Number of an entry. A newer entry for the same thing outdates the older one."""


class Order(IntEnum):
    """The order of events at the same instant."""

    RESOURCE = 0
    WORKER = 1
    ARRIVAL = 2
    DEADLINE = 3
    """A task that finishes at its deadline is in time."""
    TIMER = 4


class Occurrence(Protocol):
    """Something that will happen."""

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        """Apply the entry; return the event for the scheduler, if any."""
        ...


Entry: TypeAlias = tuple[Any, ...]
"""(instant, order, ticket, occurrence). Of any length: compiled, one of four would be copied."""

NEVER: Final = 1 << 62
"""An instant after all others."""
END: Entry = (NEVER, 0, 0, None)
"""The last entry of each list, so that none is ever empty."""


class Agenda:
    """Future events. Entries are never removed; their owners mark them as outdated.

    A simulation begins with the arrival of each of its tasks. These are sorted once, and only
    what is entered later goes through a heap, which stays small.

    Attributes:
        handled: entries taken off so far: the simulator's events.

    """

    def __init__(self) -> None:
        self.handled = 0
        self._sequence = 0
        self._planned: list[Entry] = [END]
        """Entries known at the start, the next one last."""
        self._entered: list[Entry] = [END]
        """A heap of the others."""

    def add(self, at: Nanoseconds, order: Order, occurrence: Occurrence) -> Ticket:
        """Enter an occurrence; return the number of the entry."""
        self._sequence += 1
        heappush(self._entered, (at, order, self._sequence, occurrence))
        return self._sequence

    def begin(self) -> None:
        """Sort the entries that are there at the start; called once."""
        self._planned = sorted(self._entered, reverse=True)
        self._entered = [END]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return bool(self._planned[-1][0] == self._entered[0][0] == NEVER)

    def next_instant(self) -> tuple[Nanoseconds, list[Event]]:
        """Apply all entries of the next instant; return it and the events."""
        planned, entered = self._planned, self._entered
        now: Nanoseconds
        events: list[Event] = []
        while True:
            if planned[-1] < entered[0]:
                now, _, ticket, occurrence = planned.pop()
            else:
                now, _, ticket, occurrence = heappop(entered)
            self.handled += 1
            event = occurrence.happen(now, ticket)
            if event is not None:
                events.append(event)
            if planned[-1][0] != now and entered[0][0] != now:
                return now, events
