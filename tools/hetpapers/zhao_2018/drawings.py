"""The pictures: one line a planner, with its confidence interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetpapers.pictures import open_canvas, save_canvas

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hetpapers.figures import Figure, Row

COLOURS = {
    "sct": "#999999",
    "mmi": "#dd8452",
    "sjf": "#dd8452",
    "ljf": "#999999",
    "paper": "#4c72b0",
    "ours": "#55a868",
    "bound": "#000000",
}
"""The same colours in all pictures; what is not here gets the next of matplotlib's."""


def lines(
    across: str, up: str, split: str = "", label: str = ""
) -> Callable[[Figure, Path], None]:
    """Make a function that draws columns against `across`, a panel a value of `split`.

    Args:
        label: of the horizontal axis, with `{panel}` for the panel's value; empty: `across`.

    """

    def draw(figure: Figure, path: Path) -> None:
        panels = list(dict.fromkeys(row.get(split) for row in figure.rows))
        width = max(5, 3.2 * len(panels))
        canvas, axes = open_canvas(figure, width, 3.6, len(panels))
        for axis, panel in zip(axes, panels, strict=True):
            rows = [row for row in figure.rows if row.get(split) == panel]
            _panel(axis, rows, across)
            axis.set_xlabel((label or across).format(panel=panel))
            axis.set_title(str(panel or ""), fontsize=9)
        axes[0].set_ylabel(up)
        names = axes[0].get_legend_handles_labels()[1]
        long = max(map(len, names)) > 10  # noqa: PLR2004  five of them are as wide as a panel
        save_canvas(canvas, path, columns=2 if long else 5)

    return draw


def _panel(axis: Any, rows: list[Row], across: str) -> None:
    names = [name for name in rows[0] if f"{name} ±" in rows[0]]
    points = [row for row in rows if row.get(across) is not None]
    for name in names:
        axis.errorbar(
            [row[across] for row in points],
            [row[name] for row in points],
            [row[f"{name} ±"] or 0.0 for row in points],
            marker="" if name == "bound" else "o",
            markersize=3,
            capsize=2,
            linewidth=1,
            linestyle="--" if name == "bound" else "-",
            color=COLOURS.get(name),
            label=name,
        )
    for row in rows:
        if row not in points:
            _across_all(axis, {row[name] for name in names}, row["plan"])
    axis.set_ylim(0)


def _across_all(axis: Any, values: set[float], name: str) -> None:
    """Draw what does not depend on the horizontal axis."""
    for number, value in enumerate(sorted(values)):
        axis.axhline(
            value, color="black", linestyle=":", linewidth=1,
            label=f"_{name}" if number else name,
        )  # fmt: skip
