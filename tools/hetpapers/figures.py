"""A reproduced figure or table: rows of values and claims beside those of the paper.

A paper's module holds a `Catalogue`: how each of its figures is made and drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


Row: TypeAlias = dict[str, Any]


class Claim(Struct, frozen=True):
    """One statement of the paper. `paper`: its value, `ours`: that found here."""

    text: str
    paper: float | None
    ours: float | None
    unit: str = ""


class Figure(Struct, frozen=True):
    """A figure or table, re-made.

    Attributes:
        note: what one should know about it.
        source: where its values come from.

    """

    id: str
    rows: list[Row]
    claims: list[Claim] = []
    title: str = ""
    note: str = ""
    source: str = "simulated"


class PaperResult(Struct, frozen=True):
    """The output of `hetsim paper NAME --json`."""

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


@dataclass(frozen=True, slots=True)
class LivePlan:
    """The extent of a live run.

    Attributes:
        wanted: ids of the figures.
        orders: repetitions of each run.
        scale: times are divided by this.
        delays: seconds between two arrivals, as in the paper.

    """

    wanted: Sequence[str]
    orders: int
    scale: float
    delays: Sequence[float]


@dataclass(frozen=True, slots=True)
class LiveRecipe:
    """How the figures are made and drawn.

    Attributes:
        ids: of the figures.
        make: (plan, called with each line of news) -> the figures that are wanted.
        draw: draws one into a PNG file.
        delays: those there are; `usual`: those that are run if none are named.
        orders: repetitions if no number is given.

    """

    ids: Sequence[str]
    make: Callable[[LivePlan, Callable[[str], None]], list[Figure]]
    draw: Callable[[Figure, Path], None]
    delays: Sequence[float]
    usual: Sequence[float]
    orders: int = 1
