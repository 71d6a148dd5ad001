"""What a re-made figure or table is: rows of values and claims beside the paper's.

A paper's module holds a `Catalogue`: how each of its figures is made and drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from hetsim.papers.live import LiveRecipe

Row: TypeAlias = dict[str, Any]


class Claim(Struct, frozen=True):
    """One statement of the paper. `paper`: its value, `ours`: that found here."""

    text: str
    paper: float | None
    ours: float | None
    unit: str = ""


class Figure(Struct, frozen=True):
    """A figure or table, re-made. `note` says what one should know about it."""

    id: str
    rows: list[Row]
    claims: list[Claim] = []
    title: str = ""
    note: str = ""


class PaperResult(Struct, frozen=True):
    """What `hetsim paper NAME --json` prints."""

    paper: str
    figures: list[Figure]
    format: str = "hetsim/paper-1"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a figure is made and drawn.

    Attributes:
        make: number of seeds -> the figure.
        draw: draws it into a PNG file; None: it is a table only.

    """

    make: Callable[[int], Figure]
    draw: Callable[[Figure, Path], None] | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The figures of a paper, by id, and how many seeds the paper itself used.

    Attributes:
        live: makes the figures of `--live`, on a real daemon; None: there are none.

    """

    recipes: dict[str, Recipe]
    seeds: int
    live: LiveRecipe | None = None
