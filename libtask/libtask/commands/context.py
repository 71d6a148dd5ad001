"""The context of a command: the state shared by its worker and its implementation.

A command computes outside of the worker's process, so its strips do not end by
themselves: it waits for its process or for a message from hetd, whichever comes first.
"""

from __future__ import annotations

import select
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_alone(descriptor: int, seconds: float) -> None:
    """Wait until a descriptor is readable, in a program without hetd."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(1000 * seconds)


@dataclass(slots=True)
class CommandContext:
    """State shared by a worker and its running command.

    Attributes:
        task: its id.
        attempt: number of its starts, including this one.
        slot: the slot of its resource; None: any.
        wait: waits for a descriptor, a timeout in seconds, or a message from hetd.
        cores: processor cores that the task needs; 0: it gets those of its slot.
        adopts: whether orphans of the command become children of this process, which has no
            children of its own but the command.
        signals: signals to be sent to it, in order.
        leaving: whether it must stop and leave its resource.
        requeue: whether it restarts afterwards, whatever it has saved.
        left: whether it has left unfinished.

    """

    task: int = 0
    attempt: int = 1
    slot: int | None = None
    wait: Callable[[int, float], None] = wait_alone
    cores: int = 0
    adopts: bool = False
    signals: list[int] = field(default_factory=list)
    leaving: bool = False
    requeue: bool = False
    left: bool = False
