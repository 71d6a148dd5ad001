"""Kills, faults, fuzzers and a simulation of the whole daemon.

The tests import parts of it; `python -m torture` runs the long ones. It lies beside the
tests, not among what is installed: a process that it starts needs `TESTS` on its path.
"""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]


def environment() -> dict[str, str]:
    """Return this process's environment, with this package importable."""
    others = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(TESTS), *([others] if others else [])])
    return {**os.environ, "PYTHONPATH": path}
