"""Time that Numba spends compiling: it is part of setting up, wherever it falls.

Functions are compiled at their first call, which is in the first strip. Counted as
computing, a short first run would make the application look thousands of times as slow.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_listener: Any = None


def compiled_ns() -> int:
    """Return the time of all compilations in this process since the first call, nanoseconds.

    0 while the process has not imported Numba.
    """
    global _listener  # noqa: PLW0603  Numba calls one listener for the whole process
    if _listener is None:
        if "numba" not in sys.modules:
            return 0
        event: Any = import_module("numba.core.event")
        _listener = event.TimingListener()
        # held from the lookup of a compiled version on disk to its storing there
        event.register("numba:compiler_lock", _listener)
    return int(1e9 * _listener.duration) if _listener.done else 0
