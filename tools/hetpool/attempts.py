"""Attempts at a job, as their output files name them."""

from __future__ import annotations


def mark_of(attempt: str) -> str:
    """Return the part of a file name that says which attempt writes it.

    Args:
        attempt: name of its task in hetd, `pool/JOB.GENERATION`.

    """
    return "." + attempt.rpartition("/")[2]


def final_name(text: str, mark: str) -> str:
    """Return a name, or a text with names, without what says which attempt it is of."""
    return text.replace(mark, "")
