"""The heaviest messages of every kind, at 100,000 waiting tasks: how long the loop is held.

In this process, by its processor time; the store lies in memory.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hettorture.heaviest import Load, cases

if TYPE_CHECKING:
    from hettorture.heaviest import Cost

WAITING = 100_000
MEMORY = Path("/dev/shm")  # noqa: S108  a file system in memory: nothing here is to last


def run() -> list[dict[str, Any]]:
    """Measure; return one row a kind of message."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        load = Load(Path(folder), WAITING)
        found: dict[str, list[Cost]] = defaultdict(list)
        for case in cases(load.tasks):
            cost = load.cost(case)
            found[cost.name.partition(" ")[0]].append(cost)
        load.close()
    return [_row(kind, costs) for kind, costs in sorted(found.items())]


def _row(kind: str, costs: list[Cost]) -> dict[str, Any]:
    worst = max(costs, key=lambda cost: cost.turn_s)
    longest = max(costs, key=lambda cost: cost.all_s)
    return {
        "case": kind,
        "messages": len(costs),
        "longest_turn_ms": round(1e3 * worst.turn_s, 2),
        "in": worst.name,
        "longest_in_all_ms": round(1e3 * longest.all_s, 1),
        "turns": longest.turns,
    }
