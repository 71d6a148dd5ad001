"""A batch: what one commit makes durable, and what is told then."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetsched.estimates.point import Figures, key_of

if TYPE_CHECKING:
    from hetsched.estimates.point import Key


@dataclass(slots=True)
class Batch:
    """What one commit makes durable, and what is told then."""

    tasks: list[tuple[int, int, bytes, int]] = field(default_factory=list)
    """(id, ended, entry, owner) of new and changed tasks; ended: whole seconds since the
    epoch, 0 where it has not."""
    keys: list[tuple[int, str, bytes, bytes, int]] = field(default_factory=list)
    """(owner, key, digest of the request, encoded answer, seconds since the epoch)."""
    grown: dict[int, int] = field(default_factory=dict)
    """Task -> bytes by which its page is larger than the one it replaces."""
    measurers: set[tuple[str, int]] = field(default_factory=set)
    """(task type, uid) of users whose tasks of a type were measured for the first time."""
    samples: dict[Key, Figures | None] = field(default_factory=dict)
    """What is known of execution times; None: forgotten."""
    settings: dict[tuple[str, str], bytes | None] = field(default_factory=dict)
    """(what, subject) -> what an operator has set; None: he has taken it back."""
    circuits: dict[tuple[int, str, str], bytes | None] = field(default_factory=dict)
    """(owner, application, resource) -> what is known against it; None: nothing."""
    notes: list[tuple[float, str, str | None, str]] = field(default_factory=list)
    """(seconds since the epoch, what, resource, text) of what happened to the node."""
    removed: list[int] = field(default_factory=list)
    """Ended tasks that their owners want to be forgotten."""
    freed: Counter[int] = field(default_factory=Counter)
    """Owner -> bytes of these; known when they are removed."""
    replies: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        rows = self.tasks or self.keys or self.samples or self.settings
        others = self.circuits or self.measurers or self.notes or self.removed
        return bool(rows or others or self.replies)

    def keep(self, known: Figures) -> None:
        """Store what is known of an execution time, in place of what was."""
        self.samples[key_of(known)] = known

    def forget(self, key: Key) -> None:
        """Remove what is known of an execution time."""
        self.samples[key] = None
