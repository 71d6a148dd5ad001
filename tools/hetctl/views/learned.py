"""Learned loads as rows and documents: `models` and `characterize --together` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetctl.documents.node import LearnedLoadPart
    from libtask.messages import LearnedLoad

HEADINGS = ("app", "on", "shared", "demand", "bound", "slowdowns")


def load_document(each: LearnedLoad) -> LearnedLoadPart:
    """Return a load as the documents show it."""
    return {
        "app": each.app,
        "resource": each.resource,
        "shared": each.shared,
        "demand": each.demand,
        "bound": each.bound,
        "slowdowns": each.slowdowns,
    }


def load_row(each: LearnedLoad) -> tuple[str, ...]:
    """Return a load as a row of a table, under `HEADINGS`."""
    beside = (f"{factor:.2f} beside {app}" for app, factor in each.slowdowns.items())
    return (
        each.app,
        each.resource,
        each.shared,
        f"{each.demand:.0%}",
        f"{each.bound:.0%}",
        ", ".join(beside),
    )
