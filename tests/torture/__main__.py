"""`python -m torture NAME …`: torture hetd, and judge it from outside.

    kills      the daemon, at random moments, under load and while it recovers
    workers    workers and launchers, at random moments
    moves      running tasks, from resource to resource, without harm
    pool       agents, daemons and scheduler of a pool, at random moments
    points     every named step of the protocol, the first time and a later time
    calls      the N-th system call of a kind (needs strace)
    soak       mixed load and faults for a long time: memory, descriptors, files
    simulate   the whole daemon without processes: one seed is one run
    powercuts  the machine's power (needs root)
    attacks    what an honest user waits beside the attacks of another (needs root)
    shares     the parts of two users by second; starts of urgent tasks (needs root)
    builds     the scheduler's sources beside its compiled modules: the same decisions?
    turns      the heaviest messages at 100,000 waiting tasks: how long the loop is held

Prints one line a run and its complaints, or one JSON object (`--json`). Exit status 0:
nothing was lost, doubled or left behind; 1: something was.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torture import (
    attacks,
    builds,
    calls,
    heaviest,
    kills,
    moves,
    points,
    pool_kills,
    powercuts,
    shares,
    simulate,
    soak,
)
from torture.failure_report import KEPT
from torture.machine import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RUNS: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
    "kills": kills.run_daemons,
    "workers": kills.run_workers,
    "moves": moves.run,
    "pool": pool_kills.run,
    "points": points.run_all,
    "calls": calls.run,
    "soak": soak.run,
    "attacks": attacks.run,
    "shares": shares.run,
    "builds": builds.run,
    "turns": heaviest.run,
}
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "simulate": simulate.main,
    "powercuts": powercuts.main,
}
"""With options of their own."""


def main() -> int:
    """Run what is named; return the exit status."""
    words = sys.argv[1:]
    if words and words[0] in PROGRAMS:
        return PROGRAMS[words[0]](words[1:])
    chosen = _parse(words)
    rows = RUNS[chosen.name](chosen)
    if chosen.json:
        document = {"format": "torture-1", "name": chosen.name}
        print(json.dumps({**document, "machine": machine(), "rows": rows}, indent=1))
    else:
        print("\n".join(map(_line, rows)))
    return 1 if any(row.get("complaints") for row in rows) else 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="torture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=[*RUNS, *PROGRAMS])
    parser.add_argument("--seeds", type=int, default=3, help="runs, each of its seed")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--count", type=int, default=100, help="kills or moves of each run"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of a soak")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument(
        "--keep", type=Path, default=KEPT, help="where runs that fail are kept"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args(words)


def _line(row: dict[str, Any]) -> str:
    shown = {name: value for name, value in row.items() if name != "complaints"}
    text = "  ".join(f"{name} {value}" for name, value in shown.items())
    return "\n".join([text, *(f"  ! {each}" for each in row.get("complaints", ()))])


if __name__ == "__main__":
    sys.exit(main())
