"""Which segments of short tasks are measured: thousands of them end each second.

Whether a segment counts is decided by its task's id and by the segments before it, never by its
own time: a choice by time would make a function that is sometimes slow look always slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.ids import TaskId

SHORT_S = 0.005
"""Parts of a task that are shorter measure the machine's noise more than the task."""

WELL_KNOWN = 31
"""Number of measurements after which one in `SAMPLED` short segments counts: a series keeps
no more."""
SAMPLED = 16

FOLLOWED = 8
"""Segments that all count after one that took long where a short one was expected: enough
for a series to notice a change."""


class Sampling:
    """The sampling of one task type on one resource."""

    __slots__ = ("_followed",)

    def __init__(self) -> None:
        self._followed = 0

    def includes(self, task: TaskId, seconds: float) -> bool:
        """Return whether a segment of a well-known short type counts, of this many seconds."""
        included = self._followed > 0 or _is_sampled(task)
        self._followed = FOLLOWED if seconds >= SHORT_S else max(self._followed - 1, 0)
        return included


def _is_sampled(task: TaskId) -> bool:
    """Choose one task in `SAMPLED` by its id: evenly, whatever order types come in."""
    mixed = task * 0x9E3779B1 & 0xFFFFFFFF  # multiplicative hashing (Knuth, 6.4)
    return mixed < (1 << 32) // SAMPLED
