"""Threads of one loop meet after each round, also where they share a processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from hetkernels.barrier import arrive, counters, release
from hetkernels.parts import share

PARTS, ROUNDS = 3, 200


@njit(nogil=True)
def _count_together(barrier: Any, seen: Any, rounds: Any, part: int) -> None:
    """Each part counts in its own place; the last of a round looks at all of them."""
    for number in range(rounds.shape[0]):
        seen[part] += 1
        if arrive(barrier, len(seen)):
            rounds[number, 0] += 1
            rounds[number, 1] = seen.min()
            rounds[number, 2] = seen.max()
            release(barrier)


def count_rounds() -> None:
    barrier = counters()
    seen, rounds = np.zeros(PARTS, np.int64), np.zeros((ROUNDS, 3), np.int64)

    share(lambda part: _count_together(barrier, seen, rounds, part), PARTS)

    # one part concluded each round, and all had counted exactly as often then
    assert (rounds[:, 0] == 1).all()
    assert (rounds[:, 1] == np.arange(1, ROUNDS + 1)).all()
    assert (rounds[:, 2] == rounds[:, 1]).all()


def test_no_part_begins_a_round_before_all_have_ended_the_last() -> None:
    count_rounds()


def test_parts_meet_on_one_processor() -> None:
    # in a process of its own: its threads keep the processor
    pin = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    run = "from unit.hetkernels.test_barrier import count_rounds; count_rounds()"
    tests = Path(__file__).parents[2]

    command = [sys.executable, "-c", f"{pin}; {run}"]
    subprocess.run(command, check=True, timeout=120, cwd=tests)
