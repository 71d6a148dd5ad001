"""Exponential backoff by key: pauses that double each time they are needed again soon.

Times are in the unit of the caller's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of a key.

    Attributes:
        length: how long it is; `until`: its end.

    """

    length: float
    until: float


class Backoff(Generic[Key]):
    """Pauses of keys.

    Args:
        first: length of a key's first pause; `longest`: of any.
        most: keys that are kept, those with a pause most recently.
        forget: time after the end of a pause in which a further one is twice as long; None:
            the length of that pause.

    """

    def __init__(
        self, first: float, longest: float, most: int, forget: float | None = None
    ) -> None:
        self._first = first
        self._longest = longest
        self._most = most
        self._forget = forget
        self._pauses: dict[Key, Pause] = {}

    def lasts(self, key: Key, now: float) -> bool:
        """Return whether a pause of a key lasts; any thread may ask."""
        pause = self._pauses.get(key)
        return pause is not None and now < pause.until

    def begin(self, key: Key, now: float) -> float | None:
        """Begin a pause of a key; return its length, None: one lasts already."""
        if self.lasts(key, now):
            return None
        length = self._next(self._pauses.pop(key, None), now)
        self._pauses[key] = Pause(length, now + length)
        if len(self._pauses) > self._most:
            del self._pauses[next(iter(self._pauses))]
        return length

    def _next(self, before: Pause | None, now: float) -> float:
        if before is None:
            return self._first
        forget = before.length if self._forget is None else self._forget
        if now >= before.until + forget:
            return self._first
        return min(2 * before.length, self._longest)
