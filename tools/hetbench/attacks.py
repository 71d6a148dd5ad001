"""One user attacks, an honest one waits: how long, for each attack (root only)."""

from __future__ import annotations

import os
from typing import Any

from hettorture.attacks import ATTACKS, arena

SECONDS = 10.0


def run() -> list[dict[str, Any]]:
    """Measure; return one row an attack."""
    if os.getuid() != 0:
        return [{"case": "attacks", "skipped": "only root can become other users"}]
    with arena() as daemon:
        return [_row(daemon.attack(name, SECONDS), name) for name in ATTACKS]


def _row(outcome: Any, name: str) -> dict[str, Any]:
    return {
        "case": name,
        "attacker_requests": outcome.asked,
        "honest_requests": len(outcome.waits),
        "p50_ms": round(1e3 * outcome.cut(50), 2),
        "p99_ms": round(1e3 * outcome.cut(99), 2),
        "longest_ms": round(1e3 * max(outcome.waits), 2),
        "same_process": outcome.same_process,
        "grown_mib": round(outcome.grown / 2**20, 1),
    }
