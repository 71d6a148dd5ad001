"""Calibration: turn measured strips into samples of the estimates.

`WorkerReports` calls it. Complete strips count, whatever happens to their task later;
segments that were interrupted or failed do not.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hetd.reports.profiles import ProfileLearner
from hetsched.estimates.sampling import SHORT_S
from hetsched.ids import TaskId
from hetsched.policy import uses_belief
from hetsched.system import SECOND
from libtask.messages import counted

if TYPE_CHECKING:
    from hetd.clock import Clock
    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetsched.estimates.table import EstimateTable, News
    from hetsched.scheduler import Scheduler
    from hetsched.system import Resource
    from hetsched.tasks import TaskRecord
    from libtask import messages as m

log = logging.getLogger("hetd")


class Calibration:
    """Corrects the estimates by what workers report."""

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        estimates: EstimateTable,
        journal: Journal,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._system = scheduler.system
        self._estimates = estimates
        self._journal = journal
        self._profiles = estimates.profiles
        self._runs = ProfileLearner(estimates.profiles, journal)

    def work_done(self, page: TaskPage, progress: float) -> float:
        """Return the share of a task's work in this share of its iterations."""
        record = self._system.tasks.get(TaskId(page.id))
        if record is None or record.submitted.parallel:
            return progress  # limits of parts are shares of the iterations
        return self._profiles.done(record.row.type, progress)

    def part_done(self, page: TaskPage, message: m.Progress) -> float:
        """Return the share of reported strips in a task's work.

        Returns:
            0 if the time of these strips says little about the whole: the first ones may
            hold a compilation.

        """
        record = self._system.tasks.get(TaskId(page.id))
        if record is None or message.started is not None:
            return 0.0
        done, total = message.checkpoint.done, message.checkpoint.total
        if not total:
            return 1.0 if message.iterations else 0.0
        return self._part(record, min(done / total, 1.0), message.iterations / total)

    def _part(self, record: TaskRecord, end: float, share: float) -> float:
        """Return the share in a task's work of a share of its iterations before `end`."""
        if record.submitted.parallel:
            return share
        return self._profiles.part(record.row.type, max(end - share, 0.0), end)

    def progressed(self, page: TaskPage, message: m.Progress) -> None:
        """Learn from strips on the way, but for the first: it may hold a compilation."""
        found = self._running(page)
        if found is None:
            return
        record, resource = found
        slowdown = self._slowdown_of(record, resource)
        if not record.submitted.parallel:
            self._runs.progressed(message, message.seconds / slowdown)
        if message.seconds < SHORT_S:
            return
        cut_short = record.preempting or record.cancelling is not None
        if cut_short or not message.checkpoint.total:
            return
        part = self.part_done(page, message)
        if part > 0:
            self._observe(record, resource, message.seconds / part / slowdown, None)

    def finished(self, page: TaskPage, message: m.Finished) -> None:
        """Record the last segment of a task, before the scheduler forgets it."""
        found = self._running(page)
        if found is None:
            return
        record, resource = found
        whole = len(counted(page.segments)) == 1 and not page.spec.parallel
        if not whole and message.seconds < SHORT_S:
            return
        if not self._estimates.should_observe(
            record.id, record.row, resource, message.seconds
        ):
            return
        share = _share(page, message, whole=whole)
        if not share:
            return
        part = 1.0 if whole else self._part(record, 1.0, share)
        if not part:
            return
        computing = message.seconds / part
        slowdown = self._slowdown_of(record, resource)
        setup = max(
            message.set_up - message.compiling, 0.0
        )  # later runs compile nothing
        setup += message.transfer_in + message.transfer_out
        changed = False
        if not record.submitted.parallel:
            kind = record.row.type
            changed = self._runs.finished(message, kind, slowdown, whole=whole)
        self._observe(record, resource, computing / slowdown, setup, replace=changed)

    def _tell_probe(
        self, record: TaskRecord, resource: Resource, computing: float
    ) -> None:
        """Log the cost of an application's first measurement on a resource."""
        estimates = self._estimates
        if estimates.knows_app(record.row, resource):
            return
        text = (
            "probed %s on %s: takes %.3g s, expected were %.3g s; the try took %.3g s"
        )
        expected = estimates.seconds(record.row, resource)
        took = (self._clock.now() - record.since) / SECOND
        log.info(text, record.row.type, resource.name, computing, expected, took)

    def _sharing(self, resource: Resource) -> int:
        """Return the present factor by which sharing prolongs strips there."""
        if not resource.shared:
            return 1
        running = self._system.states[resource.name].running
        return max(1, len(running))

    def _slowdown_of(self, record: TaskRecord, resource: Resource) -> float:
        """Return by how much a task's strips take longer at present than alone."""
        return self._sharing(resource) * self._slowdown(record)

    def _slowdown(self, record: TaskRecord) -> float:
        """Return by how much others slow a task down at present, as counters show.

        Otherwise the times expected alone would follow the load of other programs. What
        is concluded from the task's own progress rests on these times, and is left out.
        """
        crowding = self._system.crowding
        if crowding is None or not uses_belief(self._scheduler.policy):
            return 1.0
        return crowding.slowdown_by_counters(record.id, self._clock.now())

    def _running(self, page: TaskPage) -> tuple[TaskRecord, Resource] | None:
        system = self._system
        record = system.tasks.get(TaskId(page.id))
        if record is None or record.resource is None:
            return None
        return record, system.resources[record.resource]

    def _observe(
        self,
        record: TaskRecord,
        resource: Resource,
        alone: float,
        setup: float | None,
        *,
        replace: bool = False,
    ) -> None:
        """Enter the computing time of a whole task alone, or replace earlier ones by it."""
        if self._estimates.curiosity < 1:
            self._tell_probe(record, resource, alone)
        if replace:
            self._estimates.forget_row(record.row, resource)
        news = self._estimates.observe(record.row, resource, alone, setup)
        if news.keep is not None:
            self._journal.batch.keep(news.keep)
            self._journal.forget_samples(self._estimates)
        if self._estimates.has_type(record.row.type):
            self._journal.measured(record.row.type, record.submitted.owner)
        # on the way through the first run of a type, unequal strips look like a change
        sure = setup is not None or self._profiles.knows(record.row.type)
        if news.drift is not None and sure and alone > SHORT_S:
            _tell_drift(record, resource, news)


def _share(page: TaskPage, message: m.Finished, *, whole: bool) -> float:
    """Return the share of the last segment in the whole task; 0 if unknown.

    Args:
        page: the task's.
        message: the report of the end.
        whole: whether the last segment is the only one.

    """
    total = page.checkpoint.total
    if message.iterations == 0:
        return 0.0
    if whole:
        return 1.0
    return min(1.0, message.iterations / total) if total else 0.0


def _tell_drift(record: TaskRecord, resource: Resource, news: News) -> None:
    log.warning(
        "%s: %s now takes %.2f times as long as before",
        resource.name,
        record.row.type,
        news.drift,
    )
