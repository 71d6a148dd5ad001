"""Rich display in notebooks: a task as a table, a schedule as a picture.

Called by IPython through `_repr_html_`; everything is HTML and SVG without scripts.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from libtask.messages import ENDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from libtask.messages import Segment, TaskInfo

WIDTH, LEFT, LANE = 760, 110, 26
"""Pixels of the picture, of its labels, and of a lane's height."""
COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")

FAILED = "#cc3311"


def task_html(info: TaskInfo) -> str:
    """Return a table with a task's place, progress and final output."""
    share = 100 * info.progress
    bar = (
        '<div style="width:160px;border:1px solid #888;border-radius:3px">'
        f'<div style="width:{share:.1f}%;height:10px;background:#4477aa"></div></div>'
    )
    rows = [
        ("state", escape(info.state)),
        ("where", escape(info.resource or "-")),
        ("progress", f"{bar} {share:.0f} %"),
        ("migrations", str(info.migrations)),
        ("reason", escape(info.reason or "")),
        ("result", "" if info.result is None else escape(repr(info.result)[:200])),
    ]
    cells = "".join(f"<tr><th>{k}</th><td>{v}</td></tr>" for k, v in rows if v)
    return (
        f"<table><caption>task {info.id}: {escape(info.type)}</caption>{cells}</table>"
    )


@dataclass(frozen=True)
class Schedule:
    """A schedule for display; created by `Client.schedule`.

    Attributes:
        tasks: full records.
        now: time of the request, epoch seconds, at which running segments are cut off.

    """

    tasks: Sequence[TaskInfo]
    now: float

    def __repr__(self) -> str:
        ended = sum(info.state in ENDED for info in self.tasks)
        return f"<Schedule of {len(self.tasks)} tasks, {ended} ended>"

    def _repr_html_(self) -> str:
        """Draw the segments of each task, with a lane for each concurrent task."""
        bars = self._bars()
        if not bars:
            return "<p>none of these tasks has run yet</p>"
        begin = min(bar.segment.start for bar in bars)
        end = max(self._end(bar.segment) for bar in bars)
        scale = (WIDTH - LEFT - 10) / max(end - begin, 1e-9)
        lanes = sorted({(bar.segment.resource, bar.lane) for bar in bars})
        apps = sorted({bar.info.app for bar in bars})
        drawn = [_label(number, lane) for number, lane in enumerate(lanes)]
        for bar in bars:
            row = lanes.index((bar.segment.resource, bar.lane))
            at = LEFT + scale * (bar.segment.start - begin)
            length = max(1.0, scale * (self._end(bar.segment) - bar.segment.start))
            drawn.append(
                _bar(bar, (at, length, row), COLORS[apps.index(bar.info.app) % 7])
            )
        height = LANE * len(lanes) + 4
        size = f'width="{WIDTH}" height="{height}"'
        told = f"<p>{escape(repr(self)[1:-1])}, {end - begin:.3g} s</p>"
        return f'{told}<svg {size} xmlns="http://www.w3.org/2000/svg">{"".join(drawn)}</svg>'

    def _bars(self) -> list[Bar]:
        """Assign each segment to the first free lane of its resource."""
        pieces = [(s, info) for info in self.tasks for s in info.segments]
        pieces.sort(key=lambda piece: piece[0].start)
        free: dict[str, list[float]] = {}
        bars = []
        for segment, info in pieces:
            ends = free.setdefault(segment.resource, [])
            idle = [n for n, end in enumerate(ends) if end <= segment.start]
            lane = idle[0] if idle else len(ends)
            ends[lane : lane + 1] = [self._end(segment)]
            bars.append(Bar(info, segment, lane))
        return bars

    def _end(self, segment: Segment) -> float:
        return self.now if segment.finish is None else segment.finish


@dataclass(frozen=True, slots=True)
class Bar:
    """A segment in its lane."""

    info: TaskInfo
    segment: Segment
    lane: int


def _label(row: int, lane: tuple[str, int]) -> str:
    number = f" #{lane[1] + 1}" if lane[1] else ""
    y = LANE * row + LANE * 0.65
    return (
        f'<text x="{LEFT - 8}" y="{y}" text-anchor="end" font-size="12"'
        f' fill="currentColor">{escape(lane[0])}{number}</text>'
    )


def _bar(bar: Bar, place: tuple[float, float, int], color: str) -> str:
    at, length, row = place
    info = bar.info
    told = f"task {info.id}, {info.type}, {info.state}, on {bar.segment.resource}"
    paint = f'fill="{color}"'
    if bar.segment.failed_attempt:
        told = f"{told}: failed attempt: {bar.segment.error}"
        paint = f'fill="none" stroke="{FAILED}" stroke-dasharray="3"'
    return (
        f'<rect x="{at:.1f}" y="{LANE * row + 3}" width="{length:.1f}"'
        f' height="{LANE - 6}" {paint}><title>{escape(told)}</title></rect>'
    )
