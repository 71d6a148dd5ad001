"""The interactive Gantt chart: one HTML file without external resources."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from hetctl.export.lanes import moves
from hetctl.units import readable_duration
from libtask.apps import short_name

if TYPE_CHECKING:
    from pathlib import Path

    from hetctl.export.lanes import Bar, Lane

PLACE = "DOCUMENT"
"""Placeholder for the data in the page."""


def write_page(lanes: list[Lane], bars: list[Bar], output: Path) -> None:
    """Write the page; there must be at least one bar."""
    template = files("hetctl.export").joinpath("gantt.html").read_text(encoding="utf-8")
    text = msgspec.json.encode(_document(lanes, bars)).decode()
    # a user's text must not end the element that contains it
    output.write_text(template.replace(PLACE, text.replace("<", "\\u003c"), 1), "utf-8")


def _document(lanes: list[Lane], bars: list[Bar]) -> dict[str, Any]:
    origin = min(each.task.submitted for each in bars)
    index = {id(each): number for number, each in enumerate(bars)}
    span = max(each.finish for each in bars) - origin
    moved = moves(bars)
    groups, has_legend = _groups(bars)
    return {
        "title": _title(bars, len(moved), span),
        "span": max(span, 1e-3),
        "lanes": [lane.label.replace("\n", " ") for lane in lanes],
        "groups": list(dict.fromkeys(groups)),
        "legend": has_legend,
        "bars": [
            _bar(each, origin) | {"group": group}
            for each, group in zip(bars, groups, strict=True)
        ],
        "moves": [[index[id(one)], index[id(other)]] for one, other in moved],
    }


def _groups(bars: list[Bar]) -> tuple[list[str], bool]:
    """Return the colour group of each bar, and whether a legend is useful.

    Bars are grouped by application if there are several, else by type, else by task.
    """
    for names in (
        [short_name(each.task.app) for each in bars],
        [each.task.type for each in bars],
    ):
        if len(set(names)) > 1:
            return names, True
    return [str(each.task.id) for each in bars], False


def _title(bars: list[Bar], moved: int, span: float) -> str:
    count = len({each.task.id for each in bars})
    tasks = f"{count} task{'s' * (count != 1)}"
    return f"{tasks}, {moved} migration{'s' * (moved != 1)}, {readable_duration(span)}"


def _bar(each: Bar, origin: float) -> dict[str, Any]:
    """Return the data of a bar; times are seconds since the first submission."""
    asked = each.segment.stop_ordered
    return {
        "task": each.task.id,
        "type": each.task.type,
        "name": each.task.name,
        "state": each.task.state,
        "lane": each.lane,
        "resource": each.segment.resource,
        "start": each.start - origin,
        "finish": max(each.start, each.finish) - origin,
        "strips": each.segment.strips,
        "computing": each.segment.seconds,
        "rule": each.segment.rule,
        "asked": None if asked is None else asked - origin,
        "why": each.segment.stop_rule,
        "failed": each.segment.failed_attempt,
        "error": each.segment.error,
    }
