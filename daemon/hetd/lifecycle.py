"""Whether the daemon is to stop, and whether it waits for tasks before that.

Signals, requests and the connection guard set it; the process looks at it after each turn.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Lifecycle:
    """Whether the daemon stops, and how.

    Attributes:
        stop_requested: whether the loop ends after its present turn.
        draining: whether it refuses requests, and waits for running tasks.

    """

    stop_requested: bool = False
    draining: bool = False
