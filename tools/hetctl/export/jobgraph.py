"""The picture of a job's graph: SVG, drawn without other libraries.

A column holds the tasks whose longest chain of dependencies has the same length; the lines
are dependencies. Each task has its state and times, in the picture or when pointed at.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hetctl.units import readable_duration
from hetctl.views.jobs import JobSummary, parents_of, took
from libtask.apps import short_name
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.messages import TaskInfo

FILLS = {
    "held": "#eeeeee",
    "waiting": "#eeeeee",
    "queued": "#dddddd",
    "running": "#99bbdd",
    "preempted": "#ccbb44",
    "completed": "#99cc99",
    "failed": "#dd8877",
    "cancelled": "#bbbbbb",
    "dropped": "#bb99bb",
}
"""State -> colour of a task."""
MOST = 5000
"""Most tasks in a picture."""
LABELLED = 300
"""Most tasks whose boxes have labels; smaller boxes show theirs when pointed at."""
LARGE, SMALL = (170, 40, 60, 14), (12, 12, 28, 4)
"""Width, height, and distances of boxes, in pixels."""
MARGIN, HEAD = 20, 50
LONGEST = 24
"""Most characters of a name in a box."""
INK = "#222222"


def write_graph(job: JobSummary, path: Path) -> None:
    """Write the picture; as a page if the file's name ends in .html.

    Raises:
        OSError: it cannot be written.

    """
    picture = svg(job)
    if path.suffix == ".html":
        title = escape(one_line(job.name))
        picture = (
            f'<!doctype html><meta charset="utf-8"><title>{title}</title>'
            f"<body>{picture}</body>\n"
        )
    path.write_text(picture, encoding="utf-8")


def svg(job: JobSummary) -> str:
    """Return the picture of a job with at most `MOST` tasks."""
    width, height, gap, space = LARGE if len(job.tasks) <= LABELLED else SMALL
    places = {
        task: (MARGIN + column * (width + gap), HEAD + row * (height + space))
        for task, (column, row) in _cells(job.tasks).items()
    }
    right = max(x for x, _ in places.values()) + width + MARGIN
    bottom = max(y for _, y in places.values()) + height + MARGIN
    right = max(right, 640)
    size = f'width="{right}" height="{bottom}" viewBox="0 0 {right} {bottom}"'
    font = 'font-family="sans-serif" font-size="11"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        f'<text x="{MARGIN}" y="24" font-size="14" fill="{INK}">{_head(job)}</text>',
        *_edges(job.tasks, places, width, height),
    ]
    for info in job.tasks:
        x, y = places[info.id]
        lines += _box(info, job.now, (x, y, width, height))
    return "\n".join([*lines, "</svg>", ""])


def _cells(tasks: tuple[TaskInfo, ...]) -> dict[int, tuple[int, int]]:
    """Return the column and the row of each task."""
    columns: dict[int, int] = {}
    filled: dict[int, int] = {}
    cells: dict[int, tuple[int, int]] = {}
    for info in tasks:  # dependencies have smaller ids
        before = [columns[task] for task in parents_of(info) if task in columns]
        column = columns[info.id] = max(before, default=-1) + 1
        row = filled.get(column, 0)
        filled[column] = row + 1
        cells[info.id] = (column, row)
    return cells


def _head(job: JobSummary) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in job.counts.items())
    parts = [
        f"{job.name}: {counts}",
        f"{readable_duration(job.elapsed_s)} elapsed",
        f"critical path {readable_duration(job.critical_path_s)}",
    ]
    if job.slowdown is not None:
        parts.append(f"slowdown {job.slowdown:.2f}")
    return escape(one_line("; ".join(parts)))


def _edges(
    tasks: tuple[TaskInfo, ...],
    places: dict[int, tuple[int, int]],
    width: int,
    height: int,
) -> Iterator[str]:
    for info in tasks:
        x, y = places[info.id]
        for task in parents_of(info):
            if task not in places:
                continue
            left, top = places[task]
            x1, y1, y2 = left + width, top + height // 2, y + height // 2
            bend = (x - x1) // 2
            yield (
                f'<path d="M{x1} {y1}C{x1 + bend} {y1} {x - bend} {y2} {x} {y2}" '
                f'fill="none" stroke="#888888"{_dash(info, task)}/>'
            )


def _dash(info: TaskInfo, task: int) -> str:
    """Dash the lines of dependencies that need not complete."""
    loose = task in info.after_any or task in info.after_notok
    return ' stroke-dasharray="4 3"' if loose else ""


def _box(info: TaskInfo, now: float, place: tuple[int, int, int, int]) -> Iterator[str]:
    x, y, width, height = place
    name = one_line(info.name or short_name(info.app))
    time = readable_duration(took(info, now)) if info.started is not None else ""
    where = f" on {info.resource}" if info.resource else ""
    why = f": {info.reason}" if info.reason else ""
    told = one_line(f"{info.id} {name}: {info.state}{where} {time}{why}")
    yield (
        f'<g><title>{escape(told)}</title><rect x="{x}" y="{y}" width="{width}" '
        f'height="{height}" rx="3" fill="{FILLS[info.state]}" stroke="{INK}" '
        'stroke-width="0.5"/>'
    )
    if height == LARGE[1]:
        short = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        yield f'<text x="{x + 6}" y="{y + 16}">{info.id} {escape(short)}</text>'
        state = f"{info.state} {time}".strip()
        yield f'<text x="{x + 6}" y="{y + 32}" fill="#555555">{escape(state)}</text>'
    yield "</g>"
