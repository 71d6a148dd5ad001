"""An application that takes microseconds, and notes each time that it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.checkpoint import Checkpoint


@dataclass
class Noting(Task):
    """Appends its number to a file.

    Attributes:
        number: what it notes.
        file: where.
        kills_at: the number that kills its worker, each time; -1: none does.

    """

    number: int
    file: str
    kills_at: int = -1

    def size(self) -> Size:
        return Size("0", work=1e-6)


@Noting.on("cpu")
def noting_cpu(task: Noting, device: Any, checkpoint: Checkpoint) -> Iterator[None]:
    """Note it in the one strip."""
    for _ in checkpoint.strips():
        descriptor = os.open(task.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{task.number} {os.getpid()}\n".encode())
        os.close(descriptor)
        if task.number == task.kills_at:
            os.abort()
        yield
