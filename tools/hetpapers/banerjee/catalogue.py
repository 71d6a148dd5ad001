"""The figures of Banerjee et al. by id."""

from __future__ import annotations

from hetpapers.banerjee.acceptance import figure_acceptance
from hetpapers.banerjee.gradient import figure_eight
from hetpapers.figures import Catalogue, Recipe

FIGURES = Catalogue(
    recipes={"acceptance": Recipe(figure_acceptance), "fig8": Recipe(figure_eight)},
    # Pairs of means over 60 draws differ by two points by chance.
    seeds=60,
)
