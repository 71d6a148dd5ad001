"""What a paper offers for `hetsim paper NAME --live`: runs on a real daemon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hetsim.papers.figures import Figure


@dataclass(frozen=True, slots=True)
class LivePlan:
    """How much is to be run.

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
