"""Moves: where a task left one resource and went on another, in pictures and traces."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetctl.lanes import Stretch


def moves(stretches: Iterable[Stretch]) -> list[tuple[Stretch, Stretch]]:
    """Return each pair of following stretches of a task on different resources."""
    ordered = sorted(stretches, key=lambda each: (each.task.id, each.number))
    return [
        (before, after)
        for before, after in pairwise(ordered)
        if before.task.id == after.task.id
        and before.segment.resource != after.segment.resource
    ]
