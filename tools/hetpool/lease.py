"""The lease of a node: without the scheduler it holds the pool's jobs after a while.

A lost node goes on computing. The broker places its jobs elsewhere after a longer time, so
that a job runs on one node at a time. Pure: time is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class LeaseStep(Enum):
    """A change that a node has to make to its jobs."""

    NOTHING = "nothing"
    HOLD = "hold"
    RELEASE = "release"


@dataclass(slots=True)
class Lease:
    """The state of a node's lease.

    Attributes:
        seconds: without the scheduler after which the node holds its jobs.
        held: whether it does.

    """

    seconds: float
    held: bool = field(default=False, init=False)

    def step(self, now: float, heard: float, *, joined: bool) -> LeaseStep:
        """Return what to do now.

        Args:
            now: seconds of a monotonic clock.
            heard: when the scheduler was last heard.
            joined: whether the broker knows the node, so that jobs which it lost are gone.

        """
        silent = now - heard > self.seconds
        if silent and not self.held:
            self.held = True
            return LeaseStep.HOLD
        if not silent and joined and self.held:
            self.held = False
            return LeaseStep.RELEASE
        return LeaseStep.NOTHING

    def next_look(self) -> float:
        """Return the seconds until the next call of `step`."""
        return min(1.0, self.seconds / 4)
