"""Fig. 2b: one schedule of Set 1, a task every 0.25 s, as a Gantt chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetpapers.figures import Claim, Figure
from hetpapers.loesch_2016.reading import Reading
from hetpapers.loesch_2016.scenarios import make_scenario
from hetpapers.loesch_2016.task_sets import Case, best_resource, releases
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from hetpapers.figures import Row

SAMPLE = Case("Set 1", 0.25, 6)
"""An order in which each resource helps out another; the paper's own is not printed."""


def figure_two_b(seeds: int) -> Figure:
    """Re-make Fig. 2b; `seeds` does not matter."""
    result = simulate(make_scenario(SAMPLE, Reading()), "migration")
    types = [release.type for release in releases(SAMPLE)]
    rows: list[Row] = [
        {
            "task": task.id,
            "type": name,
            "fits": best_resource(name),
            "resource": segment.resource,
            "start": segment.start,
            "finish": segment.finish,
        }
        for task, name in zip(result.tasks, types, strict=True)
        for segment in task.segments
    ]
    own = [r["finish"] for r in rows if r["fits"] == r["resource"] == "fpga0"]
    return Figure(
        id="fig2b",
        title=f"Schedule of {SAMPLE.task_set}, delay {SAMPLE.delay} s, order {SAMPLE.order}",
        rows=sorted(rows, key=lambda row: (row["start"], row["task"])),
        claims=[
            Claim("FPGA finishes the last task of its own", 44.0, max(own), "s"),
            Claim("makespan", None, result.makespan, "s"),
            Claim(
                "tasks that moved while they ran",
                None,
                sum(task.migrations > 0 for task in result.tasks),
            ),
        ],
        note="The paper's order of arrival is unknown: compare what happens, not when.",
    )
