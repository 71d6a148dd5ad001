"""A batch: the changes that one commit makes durable, and the replies sent then."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetsched.estimates.point import Figures, key_of

if TYPE_CHECKING:
    from hetsched.estimates.point import Key


@dataclass(slots=True)
class Batch:
    """The changes that one commit makes durable, and the replies sent then."""

    tasks: list[tuple[int, int, bytes, int]] = field(default_factory=list)
    """(id, ended, entry, owner) of new and changed tasks; ended: whole seconds since the
    epoch, 0 where it has not."""
    marked: set[int] = field(default_factory=set)
    """Those of these tasks that have a name or a job, or ended without completing: listings
    of these few need not read all."""
    keys: list[tuple[int, str, bytes, bytes, int]] = field(default_factory=list)
    """(owner, key, digest of the request, encoded answer, seconds since the epoch)."""
    grown: dict[int, int] = field(default_factory=dict)
    """Task -> bytes by which its page is larger than the one it replaces."""
    measurers: set[tuple[str, int]] = field(default_factory=set)
    """(task type, uid) of users whose tasks of a type were measured for the first time."""
    samples: dict[Key, Figures | None] = field(default_factory=dict)
    """Measured execution times; None: deleted."""
    settings: dict[tuple[str, str], bytes | None] = field(default_factory=dict)
    """(what, subject) -> setting of an operator; None: withdrawn."""
    circuits: dict[tuple[int, str, str], bytes | None] = field(default_factory=dict)
    """(owner, application, resource) -> its known failures; None: none."""
    notes: list[tuple[float, str, str | None, str]] = field(default_factory=list)
    """(seconds since the epoch, what, resource, text) of events of the node."""
    removed: list[int] = field(default_factory=list)
    """Ended tasks that their owners delete."""
    freed: Counter[int] = field(default_factory=Counter)
    """Owner -> bytes of these; set when they are removed."""
    replies: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        rows = self.tasks or self.keys or self.samples or self.settings
        others = self.circuits or self.measurers or self.notes or self.removed
        return bool(rows or others or self.replies)

    def owners(self) -> set[int]:
        """Return the users whose tasks, or answers to changes, it writes."""
        return {row[3] for row in self.tasks} | {key[0] for key in self.keys}

    def keep(self, known: Figures) -> None:
        """Store a measured execution time in place of the earlier one."""
        self.samples[key_of(known)] = known

    def forget(self, key: Key) -> None:
        """Delete a measured execution time."""
        self.samples[key] = None
