"""The agenda: a heap of what will happen, ordered by (time, order, sequence)."""

from __future__ import annotations

from enum import IntEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol, TypeAlias

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


class Agenda:
    """Future events. Entries are never removed; their owners mark them as outdated.

    Attributes:
        heap: (instant, order, ticket, occurrence); read only.

    """

    def __init__(self) -> None:
        self.heap: list[tuple[Nanoseconds, int, Ticket, Occurrence]] = []
        self._sequence = 0
        self.handled = 0
        """Entries taken off so far: the simulator's events."""

    def add(self, at: Nanoseconds, order: Order, occurrence: Occurrence) -> Ticket:
        """Enter an occurrence; return the number of the entry."""
        self._sequence += 1
        heappush(self.heap, (at, order, self._sequence, occurrence))
        return self._sequence

    def next_instant(self) -> tuple[Nanoseconds, list[Event]]:
        """Apply all entries of the next instant; return it and the events."""
        heap = self.heap
        now, _, ticket, occurrence = heappop(heap)
        self.handled += 1
        event = occurrence.happen(now, ticket)
        events = [] if event is None else [event]
        while heap and heap[0][0] == now:
            _, _, ticket, occurrence = heappop(heap)
            self.handled += 1
            event = occurrence.happen(now, ticket)
            if event is not None:
                events.append(event)
        return now, events
