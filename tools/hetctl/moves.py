"""Moves: where a task left one resource and went on another, in pictures and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.messages import migrations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetctl.lanes import Stretch


def moves(stretches: Iterable[Stretch]) -> list[tuple[Stretch, Stretch]]:
    """Return the two stretches of each migration, of tasks that are there in whole."""
    found = {(each.task.id, each.number): each for each in stretches}
    tasks = {each.task.id: each.task for each in found.values()}
    return [
        (found[number, before], found[number, after])
        for number, info in sorted(tasks.items())
        for before, after in migrations(info.segments)
    ]
