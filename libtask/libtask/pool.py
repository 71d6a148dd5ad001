"""The pool's client under libtask's own name: `from libtask.pool import Pool`.

The package `hetpool` is above this one, so it is found by name when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

NAMES = ("Input", "Pool", "PoolTask", "as_completed")
NEEDED = ("distributed", "cryptography")


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        for module in NEEDED:
            import_module(module)
    except ImportError as error:
        text = f"a pool needs the extra `pool` ({error}): pip install 'hetd[pool]'"
        raise ImportError(text) from error
    return getattr(import_module("hetpool"), name)


def __dir__() -> list[str]:
    return list(NAMES)
