"""The Gantt chart of past tasks, drawn with matplotlib.

Each slot has a row, each application a colour, each task a shade. An arrow is a move from
one resource to another. Paler ends of a bar are copies to and from the device. A frame
with a cross is an attempt that failed before its first strip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.patheffects import withStroke

from hetctl.export.lanes import moves
from hetctl.units import readable_duration
from libtask.apps import short_name
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hetctl.export.lanes import Bar, Lane

COLOURS = (
    "#4477aa",
    "#ee8866",
    "#228833",
    "#aa3377",
    "#ccbb44",
    "#66ccee",
    "#994455",
    "#bbbbbb",
    "#332288",
    "#999933",
    "#cc6677",
    "#44aa99",
)
"""Paul Tol's bright scheme, and more from the muted one; colour-blind readers can distinguish them."""
SHADES = (0.0, 0.13, 0.26)
"""Shares of white in the colours of neighbouring tasks of one application."""
BAR = 0.72
INK = "#222222"
FAILED = "#cc3311"
CROSS: dict[str, Any] = {
    "color": FAILED,
    "marker": "x",
    "markersize": 6,
    "linestyle": "none",
}
"""Marker of a failed attempt."""
LOST = frozenset({"failed", "cancelled", "dropped"})
"""States of tasks whose computing gave no result."""
WASTED = "//"
"""Hatching of such tasks."""
WIDTH = 12.0
SMALLEST_LABEL = 0.011
"""Share of the picture's width below which a bar gets no label."""
COPY = 0.55
"""Share of white in the colour of copies."""
EDGE = 0.8
"""Width of the edge of a bar, points."""
SMALLEST_EDGE = 0.003
"""Share of the picture's width below which a bar gets no edge."""
LONGEST = 50
"""Most characters of a name; longer ones would leave no room for the chart."""

Span: TypeAlias = tuple[float, float, int]
"""Start and finish in seconds since the first start, and the lane."""
Colour: TypeAlias = tuple[float, ...]


class Style(NamedTuple):
    """Style of the bars that are drawn at once."""

    edge: str
    hatch: str | None
    width: float
    """Of the edge, points."""


# a dollar in a name must not start a formula
@mpl.rc_context({"svg.fonttype": "none", "text.parse_math": False})
def draw(lanes: list[Lane], bars: list[Bar], path: Path) -> None:
    """Draw the chart into `path`; the suffix selects the format (png, svg, pdf)."""
    figure = Figure(figsize=(WIDTH, 1.7 + 0.55 * len(lanes)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    origin = min(each.start for each in bars)
    span = max(each.finish for each in bars) - origin or 1.0
    colours = _colours(bars)
    _bars(axes, bars, origin, span, colours)
    _failed_attempts(axes, bars, origin)
    for each in bars:
        _label(axes, each, origin, span, _face(each, colours))
    for before, after in moves(bars):
        _arrow(axes, before, after, origin)
    _finish(axes, lanes, span)
    _title(axes, bars, span)
    _legend(figure, colours, bars)
    figure.savefig(path, dpi=160)


def _colours(bars: list[Bar]) -> dict[str, str]:
    names = dict.fromkeys(
        short_name(each.task.app)
        for each in sorted(bars, key=lambda each: each.task.id)
    )
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}


def _lighter(colour: str, share: float) -> tuple[float, float, float]:
    red, green, blue = (part + (1 - part) * share for part in to_rgb(colour))
    return red, green, blue


def _bars(
    axes: Any, bars: list[Bar], origin: float, span: float, colours: dict[str, str]
) -> None:
    """Draw the bars, all of one style at once: one by one, 10,000 take minutes."""
    styles: dict[Style, list[tuple[Span, Colour]]] = {}
    copies: list[tuple[Span, Colour]] = []
    for each in bars:
        if each.segment.failed_attempt:
            continue
        face = _face(each, colours)
        styles.setdefault(_style(each, span), []).append((_span(each, origin), face))
        pale = _lighter(colours[short_name(each.task.app)], COPY)
        copies += [(copy, pale) for copy in _copies(each, origin)]
    for style, drawn in styles.items():
        _rectangles(axes, drawn, style)
    _rectangles(axes, copies, Style("none", None, 0.0))


def _face(each: Bar, colours: dict[str, str]) -> Colour:
    shade = SHADES[each.task.id % len(SHADES)]
    return _lighter(colours[short_name(each.task.app)], shade)


def _style(each: Bar, span: float) -> Style:
    edge = FAILED if each.task.state == "failed" else "white"
    hatch = WASTED if each.task.state in LOST else None
    # the edges of short bars would cover them
    width = EDGE if each.finish - each.start > SMALLEST_EDGE * span else 0.0
    return Style(edge, hatch, width)


def _span(each: Bar, origin: float) -> Span:
    return each.start - origin, each.finish - origin, each.lane


def _copies(each: Bar, origin: float) -> Iterator[Span]:
    """Yield the spans of the copies to and from the device, where there are any."""
    start, finish, lane = _span(each, origin)
    copied_in = min(each.segment.transfer_in, finish - start)
    copied_out = min(each.segment.transfer_out, finish - start - copied_in)
    if copied_in > 0:
        yield start, start + copied_in, lane
    if copied_out > 0:
        yield finish - copied_out, finish, lane


def _rectangles(axes: Any, drawn: Sequence[tuple[Span, Colour]], style: Style) -> None:
    corners = [
        [(start, low), (start, high), (finish, high), (finish, low)]
        for (start, finish, lane), _ in drawn
        for low, high in [(lane - BAR / 2, lane + BAR / 2)]
    ]
    rectangles = PolyCollection(
        corners,
        facecolors=[face for _, face in drawn],
        edgecolor=style.edge,
        linewidth=style.width,
        hatch=style.hatch,
    )
    axes.add_collection(rectangles, autolim=False)


def _failed_attempts(axes: Any, bars: list[Bar], origin: float) -> None:
    """Draw frames with crosses; these are visible even if the attempts were short."""
    spans = [_span(each, origin) for each in bars if each.segment.failed_attempt]
    if not spans:
        return
    frames = [(span, (0.0, 0.0, 0.0, 0.0)) for span in spans]
    _rectangles(axes, frames, Style(FAILED, None, EDGE))
    middles = [(start + finish) / 2 for start, finish, _ in spans]
    axes.plot(middles, [lane for _, _, lane in spans], **CROSS, zorder=4)


def _label(axes: Any, each: Bar, origin: float, span: float, face: Colour) -> None:
    """Write id and name of the task, if there is room, over the arrows that cross the bar."""
    length = each.finish - each.start
    if each.segment.failed_attempt:
        return
    if length < SMALLEST_LABEL * span * len(str(each.task.id)):
        return
    middle = each.start - origin + length / 2
    name = one_line(each.task.name)[:LONGEST]
    label = f"{each.task.id} {name}" if name else str(each.task.id)
    if length < SMALLEST_LABEL * span * len(label):
        label = str(each.task.id)
    axes.text(
        middle, each.lane, label, ha="center", va="center", fontsize=8, color="white",
        fontweight="bold", clip_on=True, zorder=6,
        bbox={"facecolor": face, "edgecolor": "none", "pad": 1.0},
    )  # fmt: skip


def _arrow(axes: Any, before: Bar, after: Bar, origin: float) -> None:
    down = 1 if after.lane > before.lane else -1
    arrow = FancyArrowPatch(
        (before.finish - origin, before.lane + down * BAR / 2),
        (after.start - origin, after.lane - down * BAR / 2),
        arrowstyle="-|>",
        mutation_scale=9,
        shrinkA=0,
        shrinkB=0,
        color=INK,
        linewidth=1.1,
        zorder=5,
        path_effects=[withStroke(linewidth=3, foreground="white")],
    )
    axes.add_patch(arrow)


def _finish(axes: Any, lanes: list[Lane], span: float) -> None:
    axes.set_yticks(range(len(lanes)), [lane.label for lane in lanes])
    axes.set_ylim(len(lanes) - 0.45, -0.55)
    axes.set_xlim(-0.005 * span, 1.005 * span)
    axes.set_xlabel("seconds since the first start", color=INK)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    for upper, lower in zip(range(len(lanes)), range(1, len(lanes)), strict=False):
        if lanes[upper].resource != lanes[lower].resource:
            axes.axhline(upper + 0.5, color="#dddddd", linewidth=0.7, zorder=0)


def _title(axes: Any, bars: list[Bar], span: float) -> None:
    tasks = len({each.task.id for each in bars})
    count = len(moves(bars))
    title = f"{tasks} task{'s' * (tasks != 1)}, {count} migration{'s' * (count != 1)}, {readable_duration(span)}"
    axes.set_title(title, loc="left", fontsize=11, color=INK)


def _legend(figure: Figure, colours: dict[str, str], bars: list[Bar]) -> None:
    states = {each.task.state for each in bars}
    handles: list[Any] = [
        Patch(facecolor=colour, label=one_line(name)[:LONGEST])
        for name, colour in colours.items()
    ]
    handles.append(
        Line2D([], [], color=INK, marker=">", markersize=5, label="migration")
    )
    if "failed" in states:
        handles.append(
            Patch(
                facecolor="white", edgecolor=FAILED, hatch=WASTED, label="failed task"
            )
        )
    if states & (LOST - {"failed"}):
        handles.append(
            Patch(facecolor="#bbbbbb", hatch=WASTED, label="cancelled or dropped task")
        )
    if any(each.segment.failed_attempt for each in bars):
        handles.append(Line2D([], [], **CROSS, label="failed attempt"))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 6),
        frameon=False,
        fontsize=9,
    )
