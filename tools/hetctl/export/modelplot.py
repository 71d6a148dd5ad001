"""A plot of an application's execution times, like Fig. 2a of loesch-2016.

It shows time over work for each resource, both logarithmic, and marks the best resource
for each size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hetctl.export.chart import COLOURS, INK, LONGEST
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import Sample

MARKERS = "osD^v<>p"
LABELLED = 8
"""Most sizes labelled on the axis; more labels would overlap."""


def draw(app: str, samples: list[Sample], emulated: frozenset[str], path: Path) -> None:
    """Draw into `path`; the suffix selects the format (png, svg, pdf)."""
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, resource in enumerate(dict.fromkeys(each.resource for each in samples)):
        mark = " (emulated)" if resource in emulated else ""
        _line(axes, [s for s in samples if s.resource == resource], mark, place)
    _mark_best(axes, samples)
    _finish(axes, app, samples)
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(path, dpi=160)


def best_of(samples: list[Sample]) -> list[Sample]:
    """Return the fastest sample of each type and work."""
    best: dict[tuple[str, float], Sample] = {}
    for each in samples:
        key = (each.type, each.work)
        if key not in best or each.seconds < best[key].seconds:
            best[key] = each
    return list(best.values())


def _line(axes: Any, samples: list[Sample], mark: str, place: int) -> None:
    ordered = sorted(samples, key=lambda each: each.work)
    colour = COLOURS[place % len(COLOURS)]
    axes.errorbar(
        [each.work for each in ordered],
        [each.seconds for each in ordered],
        yerr=[min(each.spread, 0.9) * each.seconds for each in ordered],
        color=colour,
        marker=MARKERS[place % len(MARKERS)],
        markersize=5,
        capsize=2,
        linewidth=1.4,
        label=_as_written(ordered[0].resource) + mark,
    )


def _mark_best(axes: Any, samples: list[Sample]) -> None:
    best = best_of(samples)
    axes.plot(
        [each.work for each in best],
        [each.seconds for each in best],
        linestyle="none",
        marker="o",
        markersize=12,
        markerfacecolor="none",
        markeredgecolor=INK,
        label="best",
    )


def _finish(axes: Any, app: str, samples: list[Sample]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("work, in the application's own units", color=INK)
    axes.set_ylabel("execution time in seconds", color=INK)
    title = f"{_as_written(app)}: execution time by size and resource"
    axes.set_title(title, loc="left")
    axes.grid(which="major", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=9)
    sizes = {each.work: _as_written(each.type.partition("/")[2]) for each in samples}
    if len(sizes) <= LABELLED:
        above = axes.secondary_xaxis("top")
        above.set_xticks(list(sizes), list(sizes.values()), fontsize=7, rotation=20)
        above.minorticks_off()
        axes.set_title("")
        axes.figure.suptitle(title, x=0.5)


def _as_written(name: str) -> str:
    """Escape dollars in a user's text, so that they do not start a formula."""
    return one_line(name)[:LONGEST].replace("$", r"\$")
