"""Chances: how likely a task is to meet its deadline, given the spread of its estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.planning.outlook import CHECKPOINT_S, Outlook
from hetsched.queues import NEVER
from hetsched.system import SECOND

if TYPE_CHECKING:
    from hetsched.ids import Nanoseconds
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

ROOT_2 = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class Chances:
    """Estimates the probability that tasks meet their deadlines.

    Attributes:
        spread: standard deviation of an execution time, as a share of its expectation.
        margin: standard deviations that must be left for a task to count as safe.

    """

    spread: float = 0.1
    margin: float = 2.0

    def safe_time(self, expected: Nanoseconds) -> Nanoseconds:
        """Return the time within which a task is done with near certainty."""
        return round(expected * (1.0 + self.margin * self.spread))

    def within(self, slack: Nanoseconds, expected: Nanoseconds) -> float:
        """Estimate the chance that a task which starts now is done within `slack`."""
        return self._normal(slack - expected, expected)

    def of_running(self, task: TaskRecord, system: System) -> float:
        """Estimate the chance that a running task meets its deadline where it is."""
        deadline = due(task)
        if deadline == NEVER:
            return 1.0
        whole = system.fit(task.row).expected.get(task.resource or "")
        if whole is None:
            return 0.0
        paced = _pace(task, whole)
        left = round(paced * (1.0 - task.progress))
        end = max(task.progress_at + left, system.now)
        return self._normal(deadline - end, max(left, 1))

    def _normal(self, spare: Nanoseconds, uncertain: Nanoseconds) -> float:
        deviation = max(self.spread * uncertain, 1.0)
        return 0.5 * (1.0 + math.erf(spare / deviation / ROOT_2))


def due(task: TaskRecord) -> Nanoseconds:
    """Return the deadline of a task; `NEVER` where it has none."""
    deadline = task.submitted.deadline
    return NEVER if deadline is None else deadline


def time_elsewhere(task: TaskRecord, system: System, resource: str) -> Nanoseconds:
    """Return the time until a running task is done if it moves to an idle resource now."""
    expected = system.fit(task.row).expected[resource]
    here = task.resource or ""
    costs = Outlook(system, 1.0, 1.0).transfer(task, here, resource)
    costs += until_checkpoint(task, system)
    return round(expected * (1.0 - system.progress(task)) + costs * SECOND)


def until_checkpoint(task: TaskRecord, system: System) -> float:
    """Return the seconds until a running task comes to a checkpoint, at most."""
    strips = task.submitted.strips
    if strips is None:
        return CHECKPOINT_S
    return system.seconds(task.row, task.resource or "") / strips


def _pace(task: TaskRecord, expected: Nanoseconds) -> float:
    """Return the time of the whole task at its pace since it came here."""
    seen = task.progress_at - task.since
    done = task.progress - task.progress_then
    return seen / done if seen > 0 and done > 0.0 else expected
