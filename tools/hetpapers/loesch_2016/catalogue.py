"""The tables and figures of loesch-2016, by the id that users give."""

from __future__ import annotations

from hetpapers.figures import Catalogue, Recipe
from hetpapers.loesch_2016.drawings import (
    draw_characterisation,
    draw_comparison,
    draw_energy,
    draw_gantt,
)
from hetpapers.loesch_2016.energy import figure_three
from hetpapers.loesch_2016.live import LIVE
from hetpapers.loesch_2016.sample import figure_two_b
from hetpapers.loesch_2016.sensitivity import sensitivity
from hetpapers.loesch_2016.speedups import table_two, table_two_ours
from hetpapers.loesch_2016.table_one import figure_two_a, table_one
from hetpapers.loesch_2016.wrong_estimates import wrong_estimates

FIGURES = Catalogue(
    recipes={
        "table1": Recipe(table_one),
        "fig2a": Recipe(figure_two_a, draw_characterisation),
        "fig2b": Recipe(figure_two_b, draw_gantt),
        "table2": Recipe(table_two),
        "finish-time": Recipe(table_two_ours, draw_comparison),
        "fig3": Recipe(figure_three, draw_energy),
        "sensitivity": Recipe(sensitivity),
        "wrong-estimates": Recipe(wrong_estimates),
    },
    seeds=10,
    live=LIVE,
)
"""The paper repeats every test with ten random orders of arrival."""
