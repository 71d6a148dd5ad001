"""Preconditions of `--plot`, checked before runs that take minutes."""

from __future__ import annotations

from importlib.util import find_spec

from libtask.errors import InputError
from libtask.extras import how_to_install


def check_pictures() -> None:
    """Refuse to draw where nothing can.

    Raises:
        InputError: matplotlib is not installed.

    """
    if find_spec("matplotlib") is None:
        raise InputError(f"--plot: pictures need matplotlib: {how_to_install('plots')}")
