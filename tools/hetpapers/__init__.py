"""The papers whose tables and figures `hetsim paper` re-makes.

`PAPERS` is the table: a paper is a module (or package) with `FIGURES`, and a line here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from libtask.errors import NotFoundError

if TYPE_CHECKING:
    from hetpapers.figures import Catalogue

PAPERS = {
    "banerjee": "hetpapers.banerjee.catalogue",
    "loesch-2016": "hetpapers.loesch_2016.catalogue",
    "mokhtari-felare": "hetpapers.mokhtari_felare.catalogue",
    "zhao-2018-icc": "hetpapers.zhao_2018.icc",
    "zhao-2018-tpds": "hetpapers.zhao_2018.tpds",
}
"""Name of each paper and of the module with its figures."""


def figures_of(paper: str) -> Catalogue:
    """Load the figures of a paper.

    Raises:
        NotFoundError: no such paper.

    """
    module = PAPERS.get(paper)
    if module is None:
        raise NotFoundError(f"no paper {paper!r}; there are: {', '.join(PAPERS)}")
    catalogue: Catalogue = importlib.import_module(module).FIGURES
    return catalogue
