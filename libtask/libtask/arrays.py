"""Implementations that compute with `device.xp`, an array namespace, on several kinds.

`Task.on` declares them; `devices.arrays` opens their devices and moves the task's arrays.
This module imports neither NumPy nor a device, because hetd imports `libtask.task`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from libtask.errors import TaskFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from libtask.checkpoint import Checkpoint
    from libtask.messages import Kind

COMPATIBILITY = "array_api_compat"
"""Package that CuPy and PyTorch need to follow the array API standard."""
NEED_COMPATIBILITY = ("cupy", "torch")

Declared = TypeVar("Declared", bound=Callable[..., Any])


def installed(kind: Kind, names: Sequence[str]) -> str:
    """Return the library that this environment would use for a kind; empty: none.

    Args:
        kind: the kind of device.
        names: the libraries for accelerators, the preferred one first.

    """
    if kind == "cpu":
        return "numpy"
    return next((name for name in names if is_importable(name)), "")


def is_importable(name: str) -> bool:
    """Return whether this environment has a library, with the package that it needs."""
    needed = (name, COMPATIBILITY) if name in NEED_COMPATIBILITY else (name,)
    return all(importlib.util.find_spec(each) is not None for each in needed)


def on_arrays(implementation: Declared) -> Declared:
    """Return an implementation whose task has its arrays on the device while it computes.

    Args:
        implementation: a generator function that computes with `device.xp`.

    """

    @functools.wraps(implementation)
    def run(task: Any, device: Any, checkpoint: Checkpoint) -> Iterator[None]:
        with device.holding(task):
            strips: Any = implementation(task, device, checkpoint)
            if not hasattr(strips, "throw"):
                raise TaskFailedError(
                    f"the implementation {implementation.__qualname__} is not a generator;"
                    " write one `yield` after each strip"
                )
            with contextlib.closing(strips):
                for _ in strips:
                    yield
                    device.continue_on_device()

    return cast("Declared", run)
