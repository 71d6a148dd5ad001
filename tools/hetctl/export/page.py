"""The interactive Gantt chart: one HTML file that needs nothing else to be looked at."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from hetctl.export.lanes import moves
from hetctl.units import readable_duration

if TYPE_CHECKING:
    from pathlib import Path

    from hetctl.export.lanes import Lane, Stretch

PLACE = "DOCUMENT"
"""Where the page wants its data."""


def write_page(lanes: list[Lane], stretches: list[Stretch], output: Path) -> None:
    """Write the page; at least one stretch."""
    template = files("hetctl.export").joinpath("gantt.html").read_text(encoding="utf-8")
    text = msgspec.json.encode(_document(lanes, stretches)).decode()
    # no text of a user may end the element that holds it
    output.write_text(template.replace(PLACE, text.replace("<", "\\u003c"), 1), "utf-8")


def _document(lanes: list[Lane], stretches: list[Stretch]) -> dict[str, Any]:
    origin = min(each.task.submitted for each in stretches)
    index = {id(each): number for number, each in enumerate(stretches)}
    span = max(each.finish for each in stretches) - origin
    moved = moves(stretches)
    groups, told = _groups(stretches)
    return {
        "title": _title(stretches, len(moved), span),
        "span": max(span, 1e-3),
        "lanes": [lane.label.replace("\n", " ") for lane in lanes],
        "groups": list(dict.fromkeys(groups)),
        "legend": told,
        "bars": [
            _bar(each, origin) | {"group": group}
            for each, group in zip(stretches, groups, strict=True)
        ],
        "moves": [[index[id(one)], index[id(other)]] for one, other in moved],
    }


def _groups(stretches: list[Stretch]) -> tuple[list[str], bool]:
    """Tell what each stretch is coloured by, and whether a legend is of use.

    Applications where there are several, else types, else each task its own colour.
    """
    for names in (
        [each.task.app for each in stretches],
        [each.task.type for each in stretches],
    ):
        if len(set(names)) > 1:
            return names, True
    return [str(each.task.id) for each in stretches], False


def _title(stretches: list[Stretch], moved: int, span: float) -> str:
    count = len({each.task.id for each in stretches})
    tasks = f"{count} task{'s' * (count != 1)}"
    return f"{tasks}, {moved} migration{'s' * (moved != 1)}, {readable_duration(span)}"


def _bar(each: Stretch, origin: float) -> dict[str, Any]:
    """Describe a stretch; times in seconds since the first submission."""
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
