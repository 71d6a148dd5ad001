"""The pictures: one line a planner, with its confidence interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hetpapers.figures import Figure

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


def lines(across: str, up: str, split: str = "") -> Callable[[Figure, Path], None]:
    """Make a function that draws columns against `across`, a panel a value of `split`."""

    def draw(figure: Figure, path: Path) -> None:
        panels = list(dict.fromkeys(row.get(split) for row in figure.rows))
        canvas, axes = _open(len(panels))
        for axis, panel in zip(axes, panels, strict=True):
            rows = [row for row in figure.rows if row.get(split) == panel]
            _panel(axis, rows, across)
            axis.set_title(str(panel or ""), fontsize=9)
        axes[0].set_ylabel(up)
        axes[-1].legend(fontsize=7)
        _save(canvas, path)

    return draw


def _panel(axis: Any, rows: list[dict[str, Any]], across: str) -> None:
    rows = [row for row in rows if row.get(across) is not None]
    names = [name for name in rows[0] if f"{name} ±" in rows[0]]
    places = [row[across] for row in rows]
    for name in names:
        axis.errorbar(
            places,
            [row[name] for row in rows],
            [row[f"{name} ±"] for row in rows],
            marker="o",
            markersize=3,
            capsize=2,
            linewidth=1,
            linestyle="--" if name == "bound" else "-",
            color=COLOURS.get(name),
            label=name,
        )
    axis.set_xlabel(across)
    axis.set_ylim(0)


def _open(panels: int) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    canvas, axes = plt.subplots(
        1, panels, figsize=(max(5, 3.2 * panels), 3.2), squeeze=False
    )
    return canvas, axes[0]


def _save(canvas: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    canvas.tight_layout()
    canvas.savefig(path, dpi=80)
    plt.close(canvas)
