"""Standard output that cannot be written, for the command lines."""

from __future__ import annotations

import os
import sys


def discard_unwritten() -> None:
    """Discard what standard output holds and cannot write: Python tries again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
