"""The two systems of the paper: Table I's, and the two applications of Figs 5 and 8."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class EdgeSystem:
    """Machines and task types.

    Attributes:
        seconds: type -> machine -> expected execution time (EET).
        busy_watts: dynamic power by machine; `idle_watts`: the same for all.
        deadlines: type -> seconds from arrival to deadline; None: equation 4.
        places: waiting places of a local queue.

    """

    seconds: dict[str, dict[str, float]]
    busy_watts: dict[str, float]
    idle_watts: float
    deadlines: dict[str, float] | None = None
    places: int = 3

    @property
    def machines(self) -> list[str]:
        return list(self.busy_watts)

    def time_allowed(self) -> dict[str, float]:
        """Work out the seconds from arrival to deadline, by type (equation 4)."""
        if self.deadlines is not None:
            return self.deadlines
        means = {
            name: sum(row.values()) / len(row) for name, row in self.seconds.items()
        }
        collective = sum(means.values()) / len(means)
        return {name: mean + collective for name, mean in means.items()}


TABLE_I = EdgeSystem(
    seconds={
        "T1": {"m1": 2.238, "m2": 1.696, "m3": 4.359, "m4": 0.736},
        "T2": {"m1": 2.256, "m2": 1.828, "m3": 4.377, "m4": 0.868},
        "T3": {"m1": 2.076, "m2": 1.531, "m3": 5.096, "m4": 0.865},
        "T4": {"m1": 2.092, "m2": 1.622, "m3": 4.388, "m4": 0.913},
    },
    busy_watts={"m1": 1.6, "m2": 3.0, "m3": 1.8, "m4": 1.5},
    idle_watts=0.05,
)
"""Table I with p = 1 W."""

CODE_DEADLINES = {"T1": 5.0, "T2": 5.1, "T3": 5.2, "T4": 5.0}
"""Seconds from arrival to deadline in the authors' simulator."""

BATTERY_J = 7200.0
"""Initial energy that Fig. 4 is relative to; the paper does not give it."""

TWO_APPLICATIONS = EdgeSystem(
    seconds={
        "gaussian-blur": {"cpu": 0.180, "gpu0": 2.382},
        "markov": {"cpu": 0.324, "gpu0": 2.305},
    },
    busy_watts={"cpu": 120.0, "gpu0": 300.0},
    idle_watts=10.0,
)
"""Two applications on a CPU and a GPU. The paper does not print its execution times: these
are medians measured of two of our own applications, copied from
docs/measurements/felare-two-applications.json; the GPU is *emulated* on the same processor.
The busy powers are the paper's (thermal design power), the idle power is assumed."""

TWO_BATTERY_J = 100_000.0
"""Initial energy that Fig. 5 is relative to; assumed, as the paper does not give it."""

FASTER = 0.5


def with_fast_types(names: set[str]) -> EdgeSystem:
    """Make Table I's system with some types twice as fast, and all deadlines as they are."""
    return replace(
        TABLE_I,
        seconds={
            name: {m: s * (FASTER if name in names else 1.0) for m, s in row.items()}
            for name, row in TABLE_I.seconds.items()
        },
        deadlines=TABLE_I.time_allowed(),
    )


SYSTEMS = {
    "table1": TABLE_I,
    "authors-code": replace(TABLE_I, deadlines=CODE_DEADLINES),
    "two-applications": TWO_APPLICATIONS,
    "one favoured": with_fast_types({"T1"}),
    "two and two": with_fast_types({"T1", "T2"}),
}
