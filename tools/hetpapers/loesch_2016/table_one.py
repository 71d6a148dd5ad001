"""Table I and Fig. 2a: the task types, and their times under the central reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetpapers.figures import Claim, Figure
from hetpapers.loesch_2016.reading import RESOURCES, Reading
from hetpapers.loesch_2016.task_sets import (
    BINS,
    COUNTS,
    NO_FPGA,
    PER_RESOURCE,
    best_resource,
)

if TYPE_CHECKING:
    from hetpapers.figures import Row

KINDS = {"cpu": "CPU", "gpu0": "GPU", "fpga0": "FPGA"}


def table_one(seeds: int) -> Figure:
    """Re-make Table I; `seeds` does not matter."""
    reading = Reading()
    return Figure(
        id="table1",
        title="Task sets: counts as printed, times of the central reading in seconds",
        rows=[_row(name, reading) for name in BINS],
        claims=[
            Claim(
                f"{task_set}: tasks that {KINDS[resource]} runs fastest", wanted, ours
            )
            for task_set, printed in PER_RESOURCE.items()
            for resource, wanted, ours in zip(
                RESOURCES, printed, _per_resource(task_set, reading), strict=True
            )
        ],
        note="Printed are the counts, the bins and the colours; the times are ours.",
        source="modelled",
    )


def _row(name: str, reading: Reading) -> Row:
    low, high = BINS[name]
    return {
        "type": name + ("*" if name in NO_FPGA else ""),
        "bin": f"{low:g}-{high:g} s",
        **{task_set: counts.get(name, 0) for task_set, counts in COUNTS.items()},
        "fastest": best_resource(name),
        **{r: reading.seconds(name).get(r) for r in RESOURCES},
        "strips": reading.strips(name),
    }


def _per_resource(task_set: str, reading: Reading) -> list[int]:
    """Count the tasks by the resource that is fastest under the reading."""
    counts = dict.fromkeys(RESOURCES, 0)
    for name, count in COUNTS[task_set].items():
        times = reading.seconds(name)
        counts[min(times, key=times.__getitem__)] += count
    return list(counts.values())


def figure_two_a(seeds: int) -> Figure:
    """Re-make Fig. 2a: times of the correlation matrix by input size."""
    reading = Reading()
    names = [name for name in BINS if name.startswith("C/")]
    return Figure(
        id="fig2a",
        title="Correlation matrix: seconds by input size",
        rows=[
            {"n": int(name[2:]), **{r: reading.seconds(name).get(r) for r in RESOURCES}}
            for name in sorted(names, key=lambda name: int(name[2:]))
        ],
        note="The picture's values are not in the text: the shape is to be compared.",
        source="modelled",
    )
