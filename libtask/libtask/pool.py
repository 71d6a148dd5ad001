"""The pool's client under libtask's own name: `from libtask.pool import Pool`.

The package `hetpool` is above this one, so it is found by name when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

NAMES = ("Input", "Pool", "PoolTask", "as_completed")


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("hetpool"), name)


def __dir__() -> list[str]:
    return list(NAMES)
