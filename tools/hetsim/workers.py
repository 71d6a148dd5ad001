"""Modelled workers: how long tasks take on a resource, and where their checkpoints lie.

No strip is an event of its own: the next checkpoint is computed when somebody wants it.
Strips of a task are equal unless its type says otherwise. A checkpoint that falls on this very instant counts.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

from hetsched import events as e
from hetsched.estimates.table import application
from hetsched.system import SECOND
from hetsim.agenda import Order
from hetsim.workload import nanoseconds

if TYPE_CHECKING:
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.system import Resource
    from hetsim.agenda import Agenda, Ticket
    from hetsim.workload import Job, Run

REPORTS_PER_RUN = 100
"""A worker reports only where the scheduler's own extrapolation goes wrong."""


class Workers(Protocol):
    """The workers of one resource."""

    def start(self, job: Job, epoch: int, now: Nanoseconds) -> Run:
        """Set a task going or let it go on."""
        ...


class Preparation:
    """Time in which a slot is taken and nothing computed: copying state, loading programs.

    As in the daemon a task that yields copies its state out before its slot is free, and
    copies it in where it goes on, even if that is where it was. Inputs are copied from
    the resources that computed them before a task starts.

    Args:
        resources: by name.
        contended: names of those whose inputs cross shared links, as part of tasks' time.

    """

    def __init__(self, resources: dict[str, Resource], contended: set[str]) -> None:
        self._resources = resources
        self._contended = contended
        self._programs = {r.name: "" for r in resources.values() if r.reconfigure_s}
        """Resource -> application of the program that it has loaded."""

    def begin(self, job: Job, name: str, now: Nanoseconds) -> Nanoseconds:
        """Return when the task starts to compute; it now lives on this resource."""
        at = now + self._loading(job, name) if name in self._programs else now
        if job.home is not None:
            at += self.copying(job, name)
            if job.home != name:
                job.migrations += 1
                at += nanoseconds(job.kind.migration_s or 0.0)
        else:
            at += job.set_up
            if job.inputs and name not in self._contended:
                at += self.reading(job, name)
        if job.merges:
            at += nanoseconds(job.kind.merge_s or 0.0)
        job.home = name
        return at

    def reading(self, job: Job, name: str) -> Nanoseconds:
        """Time to copy the inputs of a task over the links of both sides of each."""
        seconds = 0.0
        for source, size in job.inputs:
            if source.home not in (None, name):
                for side in (source.home, name):
                    link = self._resources[str(side)].link_bytes_per_s
                    seconds += size / link if link else 0.0
        return nanoseconds(seconds)

    def copying(self, job: Job, name: str) -> Nanoseconds:
        """Time to copy the state of a task to a resource, or from it."""
        link = self._resources[name].link_bytes_per_s
        if link is None:
            return 0
        return nanoseconds((job.kind.state_bytes or 0) / link)

    def _loading(self, job: Job, name: str) -> Nanoseconds:
        program = application(job.kind.name)
        if self._programs[name] == program:
            return 0
        self._programs[name] = program
        return nanoseconds(self._resources[name].reconfigure_s)


class CrashingRun:
    """A segment of a task whose worker dies before the first strip."""

    __slots__ = ("_over", "epoch", "job")

    def __init__(self, job: Job, epoch: int) -> None:
        self.job = job
        self.epoch = epoch
        self._over = False

    def preempt(self, now: Nanoseconds) -> None:
        """Reach no checkpoint."""

    def abandon(self, now: Nanoseconds) -> None:
        self._end()

    def first_to_give(self, now: Nanoseconds) -> int:
        return self.job.limit

    def shorten(self, now: Nanoseconds) -> None:
        """Give nothing."""

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        """Die, and lose the state."""
        if self._over:
            return None
        self._end()
        return e.WorkerLost(self.job.id, self.epoch, "crashed", cause="crash")

    def _end(self) -> None:
        self._over = True
        self.job.lose()


class SlotWorkers:
    """Slots that share nothing: each runs at full speed.

    Args:
        report: nanoseconds between two reports of progress at least.

    """

    def __init__(
        self,
        name: str,
        preparation: Preparation,
        agenda: Agenda,
        report: Nanoseconds,
    ) -> None:
        self.name = name
        self.agenda = agenda
        self.preparation = preparation
        self.report = report

    def start(self, job: Job, epoch: int, now: Nanoseconds) -> SlotRun:
        begin = self.preparation.begin(job, self.name, now)
        return SlotRun(self, job, epoch, begin)


class SlotRun:
    """A segment of a task that has a slot for itself."""

    __slots__ = (
        "_asked",
        "_begin",
        "_copying",
        "_reported",
        "_stop",
        "_ticket",
        "_told",
        "_told_at",
        "_total",
        "_workers",
        "epoch",
        "job",
    )

    def __init__(
        self, workers: SlotWorkers, job: Job, epoch: int, begin: Nanoseconds
    ) -> None:
        self.job = job
        self.epoch = epoch
        self._workers = workers
        self._begin = begin
        self._total = job.actual[workers.name]
        self._asked = False
        self._copying = False
        self._told = job.done
        self._told_at = begin
        self._reported = (
            begin
            if self._total == job.expected.get(workers.name) and not job.ends
            else None
        )
        if self._reported is None:
            self._aim_at_next(begin)
        else:
            self._aim(job.limit)

    def preempt(self, now: Nanoseconds) -> None:
        self._asked = True
        self._aim(self._strips_by(now))

    def abandon(self, now: Nanoseconds) -> None:
        self._ticket = -1
        if not self._copying:
            self._close(now)
        self.job.lose()

    def first_to_give(self, now: Nanoseconds) -> int:
        return self._strips_by(now)

    def shorten(self, now: Nanoseconds) -> None:
        self._aim(min(self._stop, self.job.limit))

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        """Finish, yield or report."""
        if ticket != self._ticket:
            return None
        job = self.job
        if not self._asked and self._stop < job.limit:
            share = (self._stop - self._told) / job.strips
            seconds = (now - self._told_at) / SECOND
            done = e.StripsDone(
                job.id, self.epoch, self._stop / job.strips, share, seconds
            )
            self._told, self._told_at = self._stop, now
            self._aim_at_next(now)
            return done
        if self._copying:
            job.run = None
            return e.TaskYielded(job.id, self.epoch, job.done / job.strips)
        self._close(now)
        job.done = self._stop
        if job.done == job.strips or job.is_done:
            job.run = None
            return e.TaskFinished(job.id, self.epoch)
        return self._copy_out(now)

    def _copy_out(self, now: Nanoseconds) -> Event | None:
        """Yield when the state is copied out, which takes time where there is a link."""
        job, workers = self.job, self._workers
        took = workers.preparation.copying(job, workers.name)
        if not took:
            job.run = None
            return e.TaskYielded(job.id, self.epoch, job.done / job.strips)
        self._copying = True
        self._ticket = workers.agenda.add(now + took, Order.WORKER, self)
        return None

    def _aim_at_next(self, now: Nanoseconds) -> None:
        """Go on to the end, or to the next report where one is needed."""
        limit = self.job.limit
        if self._reported is None and self.job.strips > 1:
            pause = max(self._workers.report, self._total // REPORTS_PER_RUN)
            limit = min(self._strips_by(now + pause), limit)
        self._aim(limit)

    def _aim(self, strips: int) -> None:
        """Schedule the stop, or the report, after a number of strips."""
        self._stop = strips
        at = self._instant_of(strips)
        self._ticket = self._workers.agenda.add(at, Order.WORKER, self)

    def _instant_of(self, strips: int) -> Nanoseconds:
        """Return when a number of strips will be done."""
        job = self.job
        if not job.done and strips == job.strips:
            return self._begin + self._total
        if job.ends:
            share = job.ends[strips] - job.ends[job.done]
            return self._begin + round(share * self._total)
        work = (strips - job.done) * self._total
        return self._begin + (2 * work + job.strips) // (2 * job.strips)

    def _strips_by(self, now: Nanoseconds) -> int:
        """Count the strips done at the first checkpoint from now on."""
        job = self.job
        elapsed = max(now - self._begin, 0)
        if job.ends:
            share = job.ends[job.done] + elapsed / max(self._total, 1)
            strips = max(bisect_left(job.ends, share) - 1, job.done)
        else:
            strips = job.done + elapsed * job.strips // max(self._total, 1)
        while strips < job.limit and self._instant_of(strips) < now:
            strips += 1
        return min(strips, job.limit)

    def _close(self, now: Nanoseconds) -> None:
        """Close the segment in which it computed."""
        if now > self._begin:
            self.job.segments.append((self._workers.name, self._begin, now))
