"""Table I: the three task sets, counts and affinities exactly as printed.

The counts per resource (24+20+19, 24+26+22, 16+9+7), the asterisks and "only below 1 s
the CPU is the fastest" leave one assignment of types to resources that is monotone in
size for each application.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypeAlias

TypeName: TypeAlias = str
"""`M/1024`: the application (Gaussian, Heat, Markov, Correlation) and the input size."""

COUNTS: dict[str, dict[TypeName, int]] = {
    "Set 1": {
        "M/128": 12, "C/256": 4, "C/512": 4, "C/1024": 4, "G/256": 4, "G/512": 4,
        "M/1024": 8, "G/1024": 8,
        "H/2048": 2, "C/4096": 2, "G/2048": 4,
        "M/2048": 2, "G/4096": 2,
        "H/4096": 1, "C/8192": 1,
        "G/8192": 1,
    },
    "Set 2": {
        "M/128": 12, "C/256": 4, "C/512": 4, "C/1024": 4, "G/256": 4, "G/512": 4,
        "M/1024": 8, "G/1024": 8,
        "H/2048": 2, "C/4096": 2, "G/2048": 4,
        "M/2048": 3, "G/4096": 3,
        "H/4096": 2, "C/8192": 2,
        "G/8192": 3,
        "H/8192": 1, "M/4096": 1,
        "C/16384": 1,
    },
    "Set 3": {
        "M/128": 4, "C/256": 4, "C/512": 4, "C/1024": 4, "G/256": 4, "G/512": 4,
        "M/2048": 1, "G/4096": 1,
        "H/4096": 1, "C/8192": 1,
        "G/8192": 2,
        "H/8192": 1, "M/4096": 1,
    },
}  # fmt: skip
"""One line a bin of execution times, as in the table."""

BINS: dict[TypeName, tuple[float, float]] = {
    **dict.fromkeys(
        ["M/128", "C/256", "C/512", "C/1024", "G/256", "G/512"], (0.0, 1.0)
    ),
    **dict.fromkeys(["M/1024", "G/1024"], (1.0, 2.0)),
    **dict.fromkeys(["H/2048", "C/4096", "G/2048"], (2.0, 4.0)),
    **dict.fromkeys(["M/2048", "G/4096"], (4.0, 8.0)),
    **dict.fromkeys(["H/4096", "C/8192"], (8.0, 16.0)),
    "G/8192": (16.0, 32.0),
    **dict.fromkeys(["H/8192", "M/4096"], (32.0, 64.0)),
    "C/16384": (64.0, 128.0),
}
"""Bounds of the execution time on the best resource, in seconds."""

NO_FPGA = frozenset({"M/2048", "C/8192", "M/4096", "C/16384"})
"""The asterisked types: their FPGA implementations were disabled."""

ON_CPU = frozenset({"M/128", "C/256", "C/512", "G/256"})
"""Types that the CPU runs fastest."""

PER_RESOURCE = {"Set 1": (24, 20, 19), "Set 2": (24, 26, 22), "Set 3": (16, 9, 7)}
"""Tasks with the highest affinity to CPU, GPU and FPGA, as printed."""

DELAYS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Seconds between two arrivals; 0: the static scenario."""


@dataclass(frozen=True, slots=True)
class Case:
    """One of the paper's runs.

    Attributes:
        task_set: "Set 1" to "Set 3".
        delay: seconds between two arrivals; 0: all at once.
        order: number of the random order of arrival.

    """

    task_set: str
    delay: float
    order: int


@dataclass(frozen=True, slots=True)
class Release:
    """A task of a set: its type and when it arrives, in seconds."""

    type: TypeName
    arrival: float


def best_resource(name: TypeName) -> str:
    """Name the resource that the table's colour gives a type."""
    if name in ON_CPU:
        return "cpu"
    return "fpga0" if name.startswith("G/") else "gpu0"


def cases(task_set: str, delay: float, orders: int) -> list[Case]:
    """List the runs of one cell of Table II: the paper made ten of each."""
    return [Case(task_set, delay, order) for order in range(orders)]


def releases(case: Case) -> list[Release]:
    """Deal the tasks of a set in one random order, the same for every delay."""
    counts = COUNTS[case.task_set]
    names = [name for name, count in counts.items() for _ in range(count)]
    random.Random(f"{case.task_set}/{case.order}").shuffle(names)
    return [Release(name, index * case.delay) for index, name in enumerate(names)]
