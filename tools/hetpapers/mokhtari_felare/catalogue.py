"""The figures of mokhtari-felare by id."""

from __future__ import annotations

from hetpapers.figures import Catalogue, Recipe
from hetpapers.mokhtari_felare.drawings import (
    draw_ours,
    draw_trade_off,
    draw_types,
    draw_unsuccessful,
    draw_waste,
)
from hetpapers.mokhtari_felare.fairness import (
    figure_eight,
    figure_seven,
    figure_two,
)
from hetpapers.mokhtari_felare.ours import figure_blind, figure_ours
from hetpapers.mokhtari_felare.sensitivity import figure_sensitivity
from hetpapers.mokhtari_felare.trade_off import (
    figure_five,
    figure_four,
    figure_six,
    figure_three,
)

FIGURES = Catalogue(
    recipes={
        "fig2": Recipe(figure_two),
        "fig3": Recipe(figure_three, draw_trade_off),
        "fig4": Recipe(figure_four, draw_waste),
        "fig5": Recipe(figure_five, draw_waste),
        "fig6": Recipe(figure_six, draw_unsuccessful),
        "fig7": Recipe(figure_seven, draw_types),
        "fig8": Recipe(figure_eight, draw_types),
        "fair-deadline": Recipe(figure_ours, draw_ours),
        "blind-spots": Recipe(figure_blind),
        "sensitivity": Recipe(figure_sensitivity),
    },
    # The paper has 30 traces (`--seeds 30`); these take two minutes on two cores.
    seeds=5,
)
