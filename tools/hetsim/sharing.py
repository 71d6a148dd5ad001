"""Processor sharing: n computing tasks each progress at 1/n of full speed.

The processor keeps a virtual clock that counts the work which each of its tasks was
given; a task stops when the clock has gone on by its work. One entry in the agenda
serves the whole processor.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from hetsched import events as e
from hetsched.system import SECOND
from hetsim.agenda import Order
from hetsim.workers import REPORTS_PER_RUN

if TYPE_CHECKING:
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsim.agenda import Agenda, Ticket
    from hetsim.workers import Preparation
    from hetsim.workload import Job

TICKS = 720_720
"""Virtual ticks a nanosecond: divisible by 1 to 16, so that shares stay exact."""


class SharedProcessor:
    """A resource whose tasks share it evenly, as under the Linux scheduler.

    Args:
        report: nanoseconds that a task computes alone between two reports at least.

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
        self.clock = 0
        self.preparation = preparation
        self.report = report
        self._computing: dict[SharedRun, None] = {}
        self._seen: Nanoseconds = 0
        self._ticket = -1

    def start(self, job: Job, epoch: int, now: Nanoseconds) -> SharedRun:
        begin = self.preparation.begin(job, self.name, now)
        run = SharedRun(self, job, epoch, begin)
        if begin > now:
            run.ticket = self.agenda.add(begin, Order.WORKER, run)
        else:
            self.join(run, now)
        return run

    def join(self, run: SharedRun, now: Nanoseconds) -> None:
        """Let a task compute from now on."""
        self.advance(now)
        self._computing[run] = None
        run.enter(self.clock)
        self.aim(now)

    def leave(self, run: SharedRun, now: Nanoseconds) -> None:
        """Let a task compute no longer."""
        self.advance(now)
        self._computing.pop(run, None)
        self.aim(now)

    def advance(self, now: Nanoseconds) -> None:
        """Move the virtual clock on to now."""
        if self._computing:
            self.clock += (now - self._seen) * TICKS // len(self._computing)
        self._seen = now

    def aim(self, now: Nanoseconds) -> None:
        """Enter the next instant at which a task stops or reports."""
        if not self._computing:
            self._ticket = -1
            return
        work = max(min(run.stop for run in self._computing) - self.clock, 0)
        wait = -(-work * len(self._computing) // TICKS)
        self._ticket = self.agenda.add(now + wait, Order.WORKER, self)

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        """Let the task that is due stop or report."""
        if ticket != self._ticket:
            return None
        self.advance(now)
        due = min(self._computing, key=lambda run: run.stop)
        event = due.reach(now)
        self.aim(now)
        return event


class SharedRun:
    """A segment of a task on a shared processor.

    Attributes:
        stop: tick of the virtual clock at which it stops or reports next.
        ticket: its entry in the agenda while its state is copied here, or away.

    """

    def __init__(
        self, processor: SharedProcessor, job: Job, epoch: int, begin: Nanoseconds
    ) -> None:
        self.job = job
        self.epoch = epoch
        self.stop = 0
        self.ticket = -1
        self._processor = processor
        self._begin = begin
        self._work = job.actual[processor.name] * TICKS
        self._origin: int | None = None
        self._strips = self._told = job.done
        self._told_at = 0
        self._asked = False
        self._copying = False

    def enter(self, clock: int) -> None:
        """Start to compute at this tick."""
        self._origin = self._told_at = clock
        self._aim(self._next_report(clock))

    def happen(self, now: Nanoseconds, ticket: Ticket) -> Event | None:
        """Start to compute, or yield where that was asked for in the meantime."""
        if ticket != self.ticket:
            return None
        if self._copying:
            return self._yield()
        if self._asked:
            return self._copy_out(now)
        self._processor.join(self, now)
        return None

    def preempt(self, now: Nanoseconds) -> None:
        self._asked = True
        if self._origin is not None:
            self._processor.advance(now)
            self._aim(self._strips_by(self._processor.clock))
            self._processor.aim(now)

    def abandon(self, now: Nanoseconds) -> None:
        self.ticket = -1
        if not self._copying:
            self._leave(now)
        self.job.lose()

    def first_to_give(self, now: Nanoseconds) -> int:
        if self._origin is None:
            return self.job.done
        self._processor.advance(now)
        return self._strips_by(self._processor.clock)

    def shorten(self, now: Nanoseconds) -> None:
        if self._origin is not None:
            self._aim(min(self._strips, self.job.limit))
            self._processor.aim(now)

    def reach(self, now: Nanoseconds) -> Event | None:
        """Finish, yield or report: the clock has come to `stop`."""
        job = self.job
        share = self._strips / job.strips
        if not self._asked and self._strips < job.limit:
            clock = self._processor.clock
            done = (self._strips - self._told) / job.strips
            seconds = (clock - self._told_at) / TICKS / SECOND
            self._told, self._told_at = self._strips, clock
            self._aim(self._next_report(clock))
            return e.StripsDone(job.id, self.epoch, share, done, seconds)
        self._leave(now)
        job.done = self._strips
        if job.is_done:
            job.run = None
            return e.TaskFinished(job.id, self.epoch)
        return self._copy_out(now)

    def _copy_out(self, now: Nanoseconds) -> Event | None:
        """Yield when the state is copied out, which takes time where there is a link."""
        processor = self._processor
        took = processor.preparation.copying(self.job, processor.name)
        if not took:
            return self._yield()
        self._copying = True
        self.ticket = processor.agenda.add(now + took, Order.WORKER, self)
        return None

    def _yield(self) -> Event:
        job = self.job
        job.run = None
        return e.TaskYielded(job.id, self.epoch, job.done / job.strips)

    def _leave(self, now: Nanoseconds) -> None:
        """Close the segment in which it computed."""
        self._processor.leave(self, now)
        if now > self._begin:
            self.job.segments.append((self._processor.name, self._begin, now))

    def _next_report(self, clock: int) -> int:
        pause = max(self._processor.report * TICKS, self._work // REPORTS_PER_RUN)
        return self._strips_by(clock + pause)

    def _aim(self, strips: int) -> None:
        self._strips = strips
        self.stop = self._tick_of(strips)

    def _tick_of(self, strips: int) -> int:
        """Return the tick at which a number of strips will be done."""
        job = self.job
        if job.ends:
            share = job.ends[strips] - job.ends[job.done]
            return (self._origin or 0) + math.ceil(share * self._work)
        work = (strips - job.done) * self._work
        return (self._origin or 0) - (-work // job.strips)

    def _strips_by(self, clock: int) -> int:
        """Count the strips done at the first checkpoint from this tick on."""
        job = self.job
        elapsed = max(clock - (self._origin or 0), 0)
        if job.ends:
            share = job.ends[job.done] + elapsed / max(self._work, 1)
            strips = max(bisect_left(job.ends, share), job.done)
            while strips < job.limit and self._tick_of(strips) < clock:
                strips += 1
            return min(strips, job.limit)
        strips = job.done - (-elapsed * job.strips // max(self._work, 1))
        return min(strips, job.limit)
