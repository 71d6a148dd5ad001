"""The papers' pictures: labelled, nothing hidden, and each says where its values come from."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from hetpapers import figures_of
from hetpapers.figures import Claim, Figure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hetpapers.figures import Row


def _planners(names: str, **given: object) -> Row:
    row: Row = dict(given)
    for number, name in enumerate(names.split()):
        row |= {name: 1.0 + number, f"{name} ±": 0.5}
    return row


def _groups(count: int | None) -> Row:
    names = ("paper: makespan", "paper: average", "ours: makespan", "ours: average")
    row: Row = {"groups": count, "plan": str(count or "SJF")}
    for number, name in enumerate(names):
        row |= {name: 1.0 + number, f"{name} ±": 0.5}
    return row


def _planning(count: int) -> Row:
    row: Row = {"requesters": count}
    for case in ("computation", "network", "both"):
        for planner in ("paper", "ours"):
            row |= {f"{case}, {planner}": 40.0, f"{case}, {planner} ±": None}
    return row


HEURISTICS = ("mm", "msd", "mmu", "elare", "felare")
OURS = ("felare", "fair-deadline", "fair-deadline, preemptive")
NETWORKS = ("learned", "contention-aware", "heft", "graphene", "paragon", "sparrow")
RATES = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0)
ICC = "sct mmi paper ours bound"
TPDS = "sjf ljf paper ours bound"
LOSSES = ("to 5 %", "to 20 %", "to 50 %", "to 100 %", "more")

ROWS: dict[tuple[str, str], list[Row]] = {
    ("zhao-2018-icc", "fig2"): [_planners(ICC, jobs=n) for n in (200, 1200)],
    ("zhao-2018-icc", "fig3"): [_planners(ICC, responders=n) for n in (20, 100)],
    ("zhao-2018-icc", "fig4"): [_planners(ICC, interval=n) for n in (0.0, 5.0)],
    ("zhao-2018-icc", "fig5"): [_planners(ICC, error=n) for n in (0.0, 50.0)],
    ("zhao-2018-tpds", "fig3a"): [
        _planners(TPDS, by=by, hosts=n)
        for by in ("responders", "requesters")
        for n in (50, 350)
    ],
    ("zhao-2018-tpds", "fig4"): [
        _planners(TPDS, case=case, jobs=n)
        for case in ("computation", "network", "both")
        for n in (1500, 3000)
    ],
    ("zhao-2018-tpds", "fig7"): [_groups(n) for n in (1, 8, None)],
    ("zhao-2018-tpds", "fig9"): [_planning(n) for n in (50, 350)],
    ("mokhtari-felare", "fig3"): [
        {"policy": p, "rate": r, "energy J": 100 * r, "miss %": r}
        for p in HEURISTICS
        for r in RATES
    ],
    ("mokhtari-felare", "fig4"): [
        {"policy": p, "rate": r, "wasted %": r, "±": None}
        for p in HEURISTICS
        for r in RATES
    ],
    ("mokhtari-felare", "fig6"): [
        {"policy": p, "rate": r, "missed %": r, "cancelled %": r / 2}
        for p in ("mm", "elare")
        for r in RATES
    ],
    ("mokhtari-felare", "fig7"): [
        _planners("T1 T2 T3 T4 all", policy=p) for p in HEURISTICS
    ],
    ("mokhtari-felare", "fig8"): [
        _planners("gaussian-blur markov all", policy=p)
        for p in (*HEURISTICS, "felare, f = 0.5", "fair-deadline")
    ],
    ("mokhtari-felare", "fair-deadline"): [
        {"policy": p, "rate": r, "on time %": r, "energy J": r}
        for p in OURS
        for r in RATES
    ],
    ("loesch-2016", "fig2a"): [
        {"n": n, "cpu": n / 10, "gpu0": n / 100, "fpga0": n / 50 if n < 8192 else None}
        for n in (256, 512, 1024, 4096, 8192, 16384)
    ],
    ("loesch-2016", "fig2b"): [
        {
            "task": number,
            "fits": resource,
            "resource": resource,
            "start": 2.0 * number,
            "finish": 2.0 * number + 1.5,
        }
        for number, resource in enumerate(("cpu", "gpu0", "fpga0"))
    ],
    ("loesch-2016", "fig3"): [
        {"policy": p, "delay": d}
        | {f"{w} {x}": 100.0 for w in ("makespan", "energy") for x in ("mean", "min")}
        | {"makespan max": 120.0, "energy max": 110.0}
        for p in ("affinity", "migration", "finish-time")
        for d in (0.0, 0.25)
    ],
    ("loesch-2016", "finish-time"): [
        {
            "set": f"Set {n}",
            "delay": d,
            "migration": 1.1,
            "finish-time": 1.2,
            "at best": 1.25,
        }
        for n in (1, 2, 3)
        for d in (0.0, 0.25, 0.5, 0.75, 1.0)
    ],
    ("loesch-2016", "live-set1"): [
        {"policy": p, "delay": d, "paper x": 1.1, "sim x": 1.2, "live x": 1.3}
        for p in ("affinity", "work-conserving")
        for d in (0.0, 0.5)
    ],
    ("banerjee", "fig5"): [
        {"policy": p, "median": 1.1, "P90": 2.0, "P99": 9.0} for p in NETWORKS
    ],
    ("banerjee", "fig6"): [
        {"policy": p, "mean loss": 0.1} | dict.fromkeys(LOSSES, 0.2) for p in NETWORKS
    ],
    ("banerjee", "fig7"): [
        {"network": n, "episodes": e, "held-out slowdown": 1.7}
        for n in ("all parts", "without the belief")
        for e in (160, 1920)
    ],
}
"""Rows as the figures have them, with the longest names that occur."""

CLAIMS = [
    Claim("", None, None),
    Claim("held-out slowdown of contention-aware", None, 1.7),
    Claim("held-out slowdown of paragon", None, 2.0),
]
TITLE = "A title that is as long as the longest of all the figures' own titles are"


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Canvases in the order in which they are written to files."""
    canvas = pytest.importorskip("matplotlib.figure").Figure
    found: list[Any] = []
    write = canvas.savefig

    def savefig(self: Any, *where: Any, **how: Any) -> None:
        write(self, *where, **how)
        found.append(self)

    monkeypatch.setattr(canvas, "savefig", savefig)
    return found


def _drawing(paper: str, id_: str) -> Callable[[Figure, Path], None]:
    catalogue = figures_of(paper)
    recipe = catalogue.recipes.get(id_)
    if recipe is None:
        assert catalogue.live is not None
        return catalogue.live.draw
    draw = recipe.draw
    assert draw is not None
    return draw


@pytest.mark.parametrize(("paper", "id_"), ROWS)
def test_a_picture_is_labelled_and_hides_nothing(
    paper: str, id_: str, tmp_path: Path, saved: list[Any]
) -> None:
    figure = Figure(id_, ROWS[paper, id_], CLAIMS, TITLE, source="on a made-up machine")

    _drawing(paper, id_)(figure, tmp_path / "picture.png")

    [canvas] = saved
    assert canvas.get_suptitle().replace("\n", " ") == f"{TITLE} (on a made-up machine)"
    assert _inside(canvas._suptitle, canvas)
    assert canvas.axes[0].get_ylabel() or _names(canvas.axes[0].yaxis)
    for axes in canvas.axes:
        assert axes.get_xlabel() or _names(axes.xaxis)
        assert _apart(axes.xaxis.get_ticklabels())
    [legend] = canvas.legends
    assert not any(axes.get_legend() for axes in canvas.axes)
    assert _inside(legend, canvas)
    area = legend.get_window_extent()
    assert not any(area.overlaps(axes.bbox) for axes in canvas.axes)


@pytest.mark.parametrize("id_", ["live-set1", "finish-time"])
def test_bars_of_schedules_that_ended_late_are_seen(
    id_: str, tmp_path: Path, saved: list[Any]
) -> None:
    late = {"live x": 0.7, "migration": 0.7}
    rows = [row | {n: x for n, x in late.items() if n in row} for row in _rows(id_)]
    figure = Figure(id_, rows, [], TITLE, source="on a made-up machine")

    _drawing("loesch-2016", id_)(figure, tmp_path / "picture.png")

    [canvas] = saved
    for axes in canvas.axes:
        bottom = axes.get_ylim()[0]
        assert all(bar.get_height() > bottom for bar in axes.patches)


def _rows(id_: str) -> list[Row]:
    return ROWS["loesch-2016", id_]


def _names(axis: Any) -> bool:
    """Whether the ticks of an axis are words, which say what they are."""
    texts = [label.get_text() for label in axis.get_ticklabels()]
    return any(text[:1].isalpha() for text in texts)


def _apart(labels: list[Any]) -> bool:
    areas = [label.get_window_extent() for label in labels if label.get_text()]
    return all(one.x1 < other.x0 for one, other in pairwise(areas))


def _inside(part: Any, canvas: Any) -> bool:
    area = part.get_window_extent()
    return bool(area.x0 >= 0 and area.x1 <= canvas.bbox.x1)
