"""Re-made figures as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from hetpapers.figures import Claim, Figure

MOST_ROWS = 120
"""Longer lists (the blocks of a Gantt chart) are cut: `--json` has them whole."""

PIPED_COLUMNS = 132
"""Columns where the output goes to a file or pipe: enough that no heading is cut."""


def print_figure(figure: Figure) -> None:
    """Print title, rows, claims and note."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPED_COLUMNS)
    console.print(f"\n[bold]{figure.id}[/bold]  {figure.title} ({figure.source})")
    if figure.rows:
        console.print(_rows(figure))
    if len(figure.rows) > MOST_ROWS:
        console.print(f"... and {len(figure.rows) - MOST_ROWS} rows more")
    if figure.claims:
        console.print(_claims(figure.claims))
    if figure.note:
        console.print(figure.note, style="dim")


def _rows(figure: Figure) -> Table:
    keys = [key for row in figure.rows for key in row if row[key] is not None]
    columns = list(dict.fromkeys(keys))
    table = Table(box=None, pad_edge=False)
    for column in columns:
        numbers = isinstance(figure.rows[0].get(column), int | float)
        table.add_column(
            column, justify="right" if numbers else "left", overflow="fold"
        )
    for row in figure.rows[:MOST_ROWS]:
        table.add_row(*(_shown(row.get(column)) for column in columns))
    return table


def _claims(claims: list[Claim]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("claim", "paper", "ours", "unit"):
        table.add_column(column, justify="right" if column != "claim" else "left")
    for claim in claims:
        table.add_row(claim.text, _shown(claim.paper), _shown(claim.ours), claim.unit)
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
