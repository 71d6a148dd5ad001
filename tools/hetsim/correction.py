"""Expectations that strips correct while they run, as in the daemon.

The same `EstimateTable` takes in what modelled workers report as takes in what real
ones report; only the first expectations come from the scenario.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hetsched import events as e
from hetsched.estimates.table import EstimateTable
from hetsched.system import SECOND

if TYPE_CHECKING:
    from hetsched.system import Resource, System
    from hetsched.tasks import Row
    from hetsim.workload import Job


class CorrectedExpectations:
    """An `Estimates` that begins with a table of seconds and learns.

    Args:
        seconds: type -> resource -> expected seconds of a whole task.
        under_load: strips take as long as other programs let them, and the policy does not
            ask what these programs take: they count as they are.

    """

    def __init__(
        self, seconds: dict[str, dict[str, float]], *, under_load: bool = False
    ) -> None:
        self._told = seconds
        self._under_load = under_load
        self._table = EstimateTable()
        for kind, row in seconds.items():
            for resource, expected in row.items():
                self._table.learn(kind, resource, expected, work=1.0)

    @property
    def version(self) -> int:
        """Grows with each expectation that changes."""
        return self._table.version

    def seconds(self, row: Row, resource: Resource) -> float:
        """Return the expected seconds of a whole task; infinite: cannot run there."""
        if resource.name not in self._told[row.type]:
            return math.inf
        return self._table.seconds(row, resource)

    def spread(self, row: Row, resource: Resource) -> float:
        """Return the relative standard deviation of that expectation."""
        return self._table.spread(row, resource)

    def is_untried(self, row: Row, resource: Resource) -> bool:
        """Return whether the time is a guess to be tried: never, as all are known from the start."""
        return self._table.is_untried(row, resource)

    def take_in(
        self, job: Job, event: e.StripsDone | e.TaskFinished, system: System
    ) -> None:
        """Learn from strips that are reported, before the scheduler hears of them.

        A task's strips are equal, or else taken to be. The last ones under load tell
        nothing: their times are not in the event.
        """
        record = system.tasks.get(job.id)
        if record is None or record.resource is None or record.preempting:
            return
        resource = system.resources[record.resource]
        whole = job.actual[resource.name] / SECOND
        if isinstance(event, e.StripsDone):
            if (job.ends or self._under_load) and event.share > 0:
                whole = event.seconds / event.share
        elif self._under_load:
            return
        self._table.observe(record.row, resource, whole)


TELLING = e.StripsDone | e.TaskFinished
"""Events that tell how long strips took."""
