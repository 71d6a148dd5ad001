"""The situation of a command: what its worker tells it, and what it tells its worker.

A command computes outside of the worker's process, so its strips have no end of their
own: it waits here for its process or for a word of hetd, whatever comes first.
"""

from __future__ import annotations

import select
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_alone(descriptor: int, seconds: float) -> None:
    """Wait until a descriptor is readable, where there is no hetd to hear."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(1000 * seconds)


@dataclass(slots=True)
class CommandContext:
    """What a worker and the command that it runs know of each other.

    Attributes:
        task: its id.
        attempt: how often it is started with this.
        slot: which slot of its resource it has; None: any.
        wait: waits for a descriptor, or so many seconds, or a word of hetd.
        signals: to be sent to it, in order.
        leaving: it is to leave its place.
        requeue: so that it begins anew, whatever it has saved.
        left: it has, and is not done.

    """

    task: int = 0
    attempt: int = 1
    slot: int | None = None
    wait: Callable[[int, float], None] = wait_alone
    signals: list[int] = field(default_factory=list)
    leaving: bool = False
    requeue: bool = False
    left: bool = False
