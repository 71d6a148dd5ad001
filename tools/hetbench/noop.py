"""A task that does nothing: what is left is the cost of running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.checkpoint import Checkpoint


@dataclass
class Noop(Task):
    """One empty strip."""

    def size(self) -> Size:
        return Size("0", work=1e-6)


@Noop.on("cpu")
def noop_cpu(task: Noop, device: Any, checkpoint: Checkpoint) -> Iterator[None]:
    """Draw the strip and do nothing in it."""
    for _ in checkpoint.strips():
        yield


def nothing(_: int) -> None:
    """Do nothing, for the systems that run functions."""
