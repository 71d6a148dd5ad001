"""The world of a simulation: time, chance, what is to happen, and what has happened.

Everything else in this package acts through a `World`. Nothing here or there may look
at the machine's clock, draw from another generator, or depend on the order of a set:
one seed is one run, event for event.
"""

from __future__ import annotations

import hashlib
import random
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeAlias

from hetd.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MILLISECOND = 1_000_000
SECOND = 1_000_000_000

EPOCH = 1_000_000_000.0
"""Time of day at which every simulation begins, seconds since 1970."""

Note: TypeAlias = "tuple[int, str, str, tuple[Any, ...]]"
"""When (nanoseconds), who, what, and details that print alike in every process."""


class World:
    """Time, chance and the agenda.

    Args:
        seed: decides everything that happens.

    Attributes:
        now: nanoseconds since the simulation began; monotonic.
        chance: the one source of randomness.
        clock: what the simulated daemon reads.
        events: how many things have happened.

    """

    def __init__(self, seed: int) -> None:
        self.now = 0
        self.chance = random.Random(seed)
        self.clock = Clock(lambda: self.now, self.wall)
        self.events = 0
        self.trace: list[Note] = []
        self._offset = 0.0
        self._sequence = 0
        self._agenda: list[tuple[int, int, Callable[..., None], Sequence[Any]]] = []

    def wall(self) -> float:
        """Return the time of day, seconds since 1970."""
        return EPOCH + self._offset + self.now / SECOND

    def jump(self, seconds: float) -> None:
        """Let the time of day jump; the monotonic clock does not notice."""
        self._offset += seconds
        self.note("world", "wall clock jumps", round(seconds))

    def put_right(self) -> None:
        """Set the time of day to the true one."""
        self._offset = 0.0

    def after(self, delay: int, call: Callable[..., None], *given: Any) -> None:
        """Let something happen in `delay` nanoseconds; at one instant, in this order."""
        self._sequence += 1
        heappush(self._agenda, (self.now + delay, self._sequence, call, given))

    def step(self) -> bool:
        """Let the next thing happen; False: nothing is left to happen."""
        if not self._agenda:
            return False
        self.now, _, call, given = heappop(self._agenda)
        self.events += 1
        call(*given)
        return True

    # ------------------------------------------------------------ chance

    def some(self, least: float, most: float) -> int:
        """Draw nanoseconds from seconds in a range, short ones as often as long ones."""
        low, high = max(least, 1e-6), max(most, 1e-6)
        return int(low * (high / low) ** self.chance.random() * SECOND)

    def happens(self, probability: float) -> bool:
        return self.chance.random() < probability

    # ------------------------------------------------------------ trace

    def note(self, who: str, what: str, *details: Any) -> None:
        """Write down what happened."""
        self.trace.append((self.now, who, what, details))

    def digest(self) -> str:
        """Return a hash of all that has happened."""
        found = hashlib.blake2b(digest_size=16)
        for note in self.trace:
            found.update(repr(note).encode())
        return found.hexdigest()


def tell(note: Note) -> str:
    """Return a line of the trace."""
    now, who, what, details = note
    told = " ".join(str(detail) for detail in details)
    return f"{now / SECOND:12.6f}  {who:<16} {what:<18} {told}".rstrip()
