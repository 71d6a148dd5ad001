"""The canvas of all pictures: its title says where values come from, its legend hides none."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hetpapers.figures import Figure

LEGEND_COLUMNS = 5
PER_INCH = 13
"""Characters of a title in an inch, at least."""


def open_canvas(
    figure: Figure, width: float, height: float, panels: int = 1
) -> tuple[Any, list[Any]]:
    """Return a canvas with the figure's title, and its axes side by side.

    Args:
        width: of the canvas, in inches, as `height`.

    """
    # slow to import, and needed with --plot only; pyplot would look for a display
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(width, height), layout="constrained")
    title = textwrap.fill(f"{figure.title} ({figure.source})", int(PER_INCH * width))
    canvas.suptitle(title, fontsize=9)
    return canvas, list(canvas.subplots(1, panels, squeeze=False)[0])


def save_canvas(
    canvas: Any, path: Path, legend: Sequence[Any] = (), columns: int = LEGEND_COLUMNS
) -> None:
    """Write the picture; one legend for all its axes stands below them.

    Args:
        legend: its entries; none: what the first axes have labelled.

    """
    entries = legend or canvas.axes[0].get_legend_handles_labels()[0]
    canvas.legend(
        handles=list(entries),
        loc="outside lower center",
        ncols=columns,
        fontsize=8,
        frameon=False,
    )
    canvas.savefig(path, dpi=100)
