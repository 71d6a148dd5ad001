"""Checks before a run that ends with a picture."""

from __future__ import annotations

from importlib.util import find_spec

from libtask.errors import InputError
from libtask.wording import lacking


def require_matplotlib() -> None:
    """Refuse to run for minutes where the result cannot be drawn.

    Raises:
        InputError: matplotlib is not installed.

    """
    if find_spec("matplotlib") is None:
        raise InputError(lacking("pictures need", "matplotlib"))
