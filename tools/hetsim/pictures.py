"""Preconditions of `--plot`, checked before runs that take minutes."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from libtask.errors import InputError


def check_pictures() -> None:
    """Refuse to draw where nothing can.

    Raises:
        InputError: matplotlib is not installed.

    """
    if find_spec("matplotlib") is None:
        install = f"{sys.executable} -m pip install matplotlib"
        raise InputError(f"--plot: pictures need matplotlib: {install}")
