"""The lease of a node: without the scheduler it stops the pool's jobs after a while.

A lost node goes on computing. The broker places its jobs elsewhere after a longer time, so
that a job runs on one node at a time. The agent renews the lease of the pool's tasks in
hetd only while it hears the scheduler; hetd holds them when it is not renewed, so that they
stop without an agent, too. Pure: time is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """The rule by which an agent renews.

    Attributes:
        seconds: without the scheduler after which the jobs of the node are held.

    """

    seconds: float

    @property
    def of_tasks_s(self) -> float:
        """The period of the lease in hetd: half, as the agent itself waits the other half."""
        return self.seconds / 2

    @property
    def pause_s(self) -> float:
        """The seconds between two looks."""
        return min(1.0, self.seconds / 8)

    def renews(self, now: float, heard: float, *, joined: bool) -> bool:
        """Return whether to renew now.

        Args:
            now: seconds of a monotonic clock.
            heard: when the scheduler was last heard.
            joined: whether the broker knows the node, so that jobs which it lost have been
                cancelled.

        """
        return joined and now - heard < self.seconds / 2
