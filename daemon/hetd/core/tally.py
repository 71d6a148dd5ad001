"""The tally: how many tasks of each type arrived, and how many completed in time.

Kept by the ledger since the scheduler began; what policies that are fair to types go by.
"""

from __future__ import annotations


class Tally:
    """Counts tasks by type."""

    def __init__(self) -> None:
        self.arrived: dict[str, int] = {}
        self.on_time: dict[str, int] = {}
        """Completed by their deadline, or without one."""

    def arrive(self, task_type: str) -> None:
        self.arrived[task_type] = self.arrived.get(task_type, 0) + 1

    def complete(self, task_type: str) -> None:
        self.on_time[task_type] = self.on_time.get(task_type, 0) + 1

    def rates(self) -> dict[str, float]:
        """Tell the share completed in time of those that arrived, by type."""
        return {
            task_type: self.on_time.get(task_type, 0) / arrived
            for task_type, arrived in self.arrived.items()
        }
