"""The whole daemon in a simulation: no seed breaks the promise; one seed is one run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torture import environment
from torture.simulate import in_processes
from torture.simulation.run import Run

pytestmark = pytest.mark.timeout(900)
"""Half a minute of processor time each at most, on a machine that may be busy."""

SEEDS = 60
"""`make torture` has 100,000."""
EVENTS = 1000
REPLAYED = range(3)

PRINT_DIGESTS = f"""
import logging
from torture.simulation.run import Run
logging.disable(logging.CRITICAL)
for seed in reversed(range({len(REPLAYED)})):
    print(seed, Run(seed, {EVENTS}).go().digest)
"""


def test_no_seed_breaks_the_promise() -> None:
    failing: dict[int, list[str]] = {}
    for tally in in_processes(range(SEEDS), EVENTS, jobs=os.cpu_count() or 1):
        failing |= tally.failing

    assert failing == {}, "python -m torture simulate --trace --seed N"


def test_a_seed_is_one_run_in_every_process() -> None:
    outcomes = {seed: Run(seed, EVENTS).go() for seed in REPLAYED}
    here = {f"{seed} {outcome.digest}" for seed, outcome in outcomes.items()}

    there = subprocess.run(
        [sys.executable, "-c", PRINT_DIGESTS],
        env={**environment(), "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert set(there.stdout.split("\n")) - {""} == here
    assert len({outcome.digest for outcome in outcomes.values()}) == len(REPLAYED)
