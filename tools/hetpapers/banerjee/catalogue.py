"""The figures of Banerjee et al. by id."""

from __future__ import annotations

from hetpapers.banerjee.acceptance import figure_acceptance
from hetpapers.banerjee.gradient import figure_eight
from hetpapers.banerjee.kernels import draw_five, draw_six, figure_five, figure_six
from hetpapers.banerjee.learning import (
    draw_seven,
    figure_ablation,
    figure_robustness,
    figure_seven,
)
from hetpapers.figures import Catalogue, Recipe

FIGURES = Catalogue(
    recipes={
        "acceptance": Recipe(figure_acceptance),
        "fig5": Recipe(figure_five, draw_five),
        "fig6": Recipe(figure_six, draw_six),
        "fig7": Recipe(figure_seven, draw_seven),
        "fig8": Recipe(figure_eight),
        "robustness": Recipe(figure_robustness),
        "ablation": Recipe(figure_ablation),
    },
    # Pairs of means over 60 draws differ by two points by chance.
    seeds=60,
)
