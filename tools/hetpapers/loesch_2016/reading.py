"""The details that the paper leaves open, as named parameters of our reproduction.

Execution times are printed as bins only. They are reconstructed as
seconds = setup + slope * (n / 1024)^p for each application and resource, with p = 2 for
Gaussian and Heat and 3 for Markov and Correlation. On the best resource the bins leave
narrow ranges; elsewhere the time is that of the best resource at the same size, without
its set-up, times a speed ratio, plus a set-up.

The constants on the best resource are in the middle of what the bins allow. Those of the
others come from `search.py` (300 candidates, seed 1): of the readings closest to Table II,
the closest with 2 CPU slots, rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hetpapers.loesch_2016.task_sets import BINS, NO_FPGA, best_resource

if TYPE_CHECKING:
    from hetpapers.loesch_2016.task_sets import TypeName

RESOURCES = ("cpu", "gpu0", "fpga0")

POWER = {"G": 2, "H": 2, "M": 3, "C": 3}
"""Exponent of the input size in the time."""

BEST = {"G": "fpga0", "H": "gpu0", "M": "gpu0", "C": "gpu0"}
"""The accelerator that leads for the large sizes of each application."""

STATE_BYTES = {"G": 4, "H": 8, "M": 8, "C": 4}
"""Bytes for each of n^2 elements that a move copies: an image and a data matrix of 4-byte
floats, two grids of 4-byte floats, a matrix of 8-byte floats. A guess: not in the paper."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Constants of one application on one resource.

    Attributes:
        setup: seconds that do not depend on the size.
        slope: additional seconds at n = 1024.

    """

    setup: float
    slope: float

    def seconds(self, app: str, n: int) -> float:
        return self.setup + self.slope * (n / 1024) ** POWER[app]


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of what the paper leaves open.

    Attributes:
        lead: cost on the accelerator that leads for each application.
        ratios: slope on another resource, as a multiple of that of the leading one.
        setups: set-up seconds there.
        strip_s: length of a strip on the best resource: where checkpoints lie.
        migration_s: time of a move without copying; `link_scale`: scales the links.
        cpu_slots: tasks that the CPU takes at once; they share it.

    """

    lead: dict[str, Cost] = field(
        default_factory=lambda: {
            "G": Cost(0.60, 0.42),
            "H": Cost(0.15, 0.62),
            "M": Cost(0.15, 0.90),
            "C": Cost(0.15, 0.0297),
        }
    )
    ratios: dict[str, dict[str, float]] = field(
        default_factory=lambda: {
            "G": {"cpu": 10.0, "gpu0": 1.3},
            "H": {"cpu": 10.0, "fpga0": 6.0},
            "M": {"cpu": 8.0, "fpga0": 4.0},
            "C": {"cpu": 14.0, "fpga0": 6.0},
        }
    )
    setups: dict[str, float] = field(
        default_factory=lambda: {"cpu": 0.01, "gpu0": 0.85, "fpga0": 0.7}
    )
    strip_s: float = 0.5
    migration_s: float = 0.3
    link_scale: float = 1.0
    cpu_slots: int = 2

    def seconds(self, name: TypeName) -> dict[str, float]:
        """Execution time of a type on every resource that has an implementation."""
        app, n = name.split("/")
        lead = BEST[app]
        times = {lead: self.lead[app].seconds(app, int(n))}
        for resource, ratio in self.ratios[app].items():
            if resource == "fpga0" and name in NO_FPGA:
                continue
            cost = Cost(self.setups[resource], self.lead[app].slope * ratio)
            times[resource] = cost.seconds(app, int(n))
        return {r: times[r] for r in RESOURCES if r in times}

    def state_bytes(self, name: TypeName) -> int:
        app, n = name.split("/")
        return STATE_BYTES[app] * int(n) ** 2

    def strips(self, name: TypeName) -> int:
        return max(1, round(min(self.seconds(name).values()) / self.strip_s))


def faults(reading: Reading) -> list[str]:
    """List the types that leave their bin or their best resource."""
    found = []
    for name, (low, high) in BINS.items():
        times = reading.seconds(name)
        fastest = min(times, key=times.__getitem__)
        if fastest != best_resource(name):
            found.append(f"{name} is fastest on {fastest}")
        elif not low <= times[fastest] < high:
            found.append(f"{name} takes {times[fastest]:.2f} s, outside its bin")
    return found
