"""The checkpoint hook: receives commands for a running task and reports its progress.

An `Execution` calls it at each checkpoint. Most calls only compare the time; the socket
is polled at most once a millisecond.
"""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

from libtask.faultpoints import reach
from libtask.messages import (
    Abort,
    DropResidents,
    Preempt,
    Progress,
    Signal,
    Split,
    StripsGiven,
    TakeSnapshot,
)
from libtask.worker.environment import DeviceCache
from libtask.worker.execution import NANOSECONDS, Measures, StopRequest
from libtask.worker.snapshot_writer import no_snapshot

if TYPE_CHECKING:
    from libtask.messages import FromDaemon
    from libtask.worker.execution import Execution, RunCheckpoint
    from libtask.worker.link import Link
    from libtask.worker.segment_output import SegmentOutput
    from libtask.worker.snapshot_writer import TaskSnapshots

LOOK_NS = 1_000_000
"""A poll costs about 5 µs, which is 0.5 % of this interval; it delays a preemption by at
most this much, which is little compared with a strip of 50 ms."""
REPORT_NS = 100_000_000
BEAT_NS = 900_000_000
"""Nanoseconds between two reports of a command that reports no progress."""
REPORTS = 2
"""Number of reports after which hetd's watchdog expects strips instead of set-up."""


class CheckpointHook:
    """The hook of one run of a task.

    Args:
        link: the link to hetd.
        task: the task's id.
        epoch: the epoch of its run.
        output: the output of its segment.
        current: its snapshots; None: it has none.
        part_granule: see `Task.part_granule`.
        devices: those that the worker has opened; None: none.

    """

    def __init__(  # noqa: PLR0913, PLR0917  what one run has
        self,
        link: Link,
        task: int,
        epoch: int,
        output: SegmentOutput,
        current: TaskSnapshots | None = None,
        part_granule: int = 1,
        devices: DeviceCache | None = None,
    ) -> None:
        self._link = link
        self._part_granule = part_granule
        self._devices = devices or DeviceCache()
        self._snapshots = current
        self._output = output
        self._task = task
        self._epoch = epoch
        self._connections = link.connections
        self._reported = Measures()
        self._reports = 0
        self._introduced = False
        """Whether a report with this run's start and log file was sent."""
        self._next_look_ns = 0
        self._report_at_ns = 0
        self._cpu_reported_ns = 0
        self._beat_at_ns = 0

    def follow(self, execution: Execution, now_ns: int) -> None:
        """Attach to an execution that starts now (`time.perf_counter_ns`)."""
        self._execution: Execution | None = execution
        self._checkpoint: RunCheckpoint = execution.checkpoint
        self._measures = execution.measures
        self._next_look_ns = now_ns + LOOK_NS

    def __call__(self, now_ns: int) -> StopRequest | None:
        """Return hetd's request to stop, if any, at a checkpoint."""
        if now_ns < self._next_look_ns:
            return None
        self._next_look_ns = now_ns + LOOK_NS
        demand = self._receive()
        if demand is None:
            self._report(now_ns)
            current = self._snapshots
            if current is not None and current.is_due(self._measures, self._checkpoint):
                self._take_snapshot(current, now_ns)
        return demand

    def _take_snapshot(self, current: TaskSnapshots, now_ns: int) -> None:
        self._report_at_ns = 0
        self._report(now_ns)  # so that the next report does not include these strips
        if self._execution is not None:
            self._link.send(current.take(self._execution.settle, self._measures))
        reach("snapshot.told")

    def report_complete(self) -> None:
        """Report that the last strip is done if hetd expects strips: saving may take long."""
        if self._reports >= REPORTS and self._link.welcome is not None:
            self._link.send_validated(self._progress(complete=True))

    def leave(self) -> None:
        """Return deferred commands to the worker and drop references to the task."""
        self._execution = (
            None  # breaks a reference cycle that would keep the task's arrays
        )
        self._link.restore_deferred()

    def _receive(self) -> StopRequest | None:
        while (message := self._link.receive(0)) is not None:
            if isinstance(message, Preempt) and self._is_for_this_run(message):
                self._note_requeue(message)
                return StopRequest.PREEMPT
            if isinstance(message, Abort) and self._is_for_this_run(message):
                return StopRequest.ABANDON
            self._handle(message)
        if self._link.connections != self._connections:
            self._restart()
        return None

    def _handle(self, message: FromDaemon) -> None:
        """Follow a command that does not stop the task, or leave it to the worker."""
        match message:
            case TakeSnapshot():
                self._want_snapshot(message)
            case Split():
                self._give_strips(message)
            case DropResidents():
                self._devices.give_way(message.resource)
            case Signal():
                self._signal_command(message)
            case Preempt():
                pass  # an old one
            case _:
                self._link.defer(message)

    def _want_snapshot(self, message: TakeSnapshot) -> None:
        if not self._is_for_this_run(message):
            return
        if self._snapshots is None:
            self._link.send(no_snapshot(self._task, self._epoch))
        else:
            self._snapshots.wanted = True

    def _give_strips(self, message: Split) -> None:
        """Give up strips that are not drawn yet; nothing if no part could be kept."""
        if not self._is_for_this_run(message):
            return
        total = self._checkpoint.total or 0
        given = range(total, total)
        if self._snapshots is not None:
            first = math.ceil(message.limit * total)
            given = self._checkpoint.give_up(first, self._part_granule)
        answer = StripsGiven(
            self._task,
            self._epoch,
            given.start,
            given.stop,
            total,
            self._part_granule,
        )
        self._link.send(answer)

    def _note_requeue(self, message: Preempt) -> None:
        context = self._checkpoint.context
        if context is not None and message.requeue:
            context.requeue = True

    def _signal_command(self, message: Signal) -> None:
        """Queue a signal for the command, which is sent before the next wait for it."""
        context, execution = self._checkpoint.context, self._execution
        if context is None or execution is None or not self._is_for_this_run(message):
            return
        context.signals.append(message.number)
        if message.number == signal.SIGSTOP:
            execution.suspend()
        elif message.number == signal.SIGCONT:
            execution.resume()

    def _is_for_this_run(
        self, message: Preempt | Abort | Split | TakeSnapshot | Signal
    ) -> bool:
        return message.task == self._task and message.epoch == self._epoch

    def _restart(self) -> None:
        """Report this run from the start to a new hetd, which does not know what stays on devices."""
        self._connections = self._link.connections
        self._devices.drop_residents()
        self._reported = Measures()
        self._introduced = False
        self._report_at_ns = 0
        self._cpu_reported_ns = 0
        if self._snapshots is not None and self._snapshots.last is not None:
            self._link.send(self._snapshots.last)

    def _report(self, now_ns: int) -> None:
        news = self._measures.strips > self._reported.strips
        if not news and self._checkpoint.context is not None:
            news = not self._introduced or now_ns >= self._beat_at_ns
        if not news or now_ns < self._report_at_ns or self._link.welcome is None:
            return
        self._report_at_ns = now_ns + REPORT_NS
        self._beat_at_ns = now_ns + BEAT_NS
        self._link.send_validated(self._progress())
        self._reports += 1
        self._reported = self._measures.copy()

    def _cpu_since_report(self) -> int:
        before, self._cpu_reported_ns = (
            self._cpu_reported_ns,
            self._measures.cpu_ns_so_far(),
        )
        return self._cpu_reported_ns - before

    def _progress(self, *, complete: bool = False) -> Progress:
        done, reported = self._measures, self._reported
        first, self._introduced = not self._introduced, True
        return Progress(
            task=self._task,
            epoch=self._epoch,
            checkpoint=self._checkpoint.record(),
            seconds=(done.computing_ns - reported.computing_ns) / NANOSECONDS,
            iterations=done.iterations - reported.iterations,
            strips=done.strips - reported.strips,
            started=done.first_strip_at_ns / NANOSECONDS if first else None,
            transfer_in=done.transfer_in if first else 0.0,
            cpu_seconds=self._cpu_since_report() / NANOSECONDS,
            at_risk=self._at_risk_s(),
            complete=complete,
            log=self._output.path if first else "",
            log_start=self._output.start if first else 0,
        )

    def _at_risk_s(self) -> float:
        if self._snapshots is None:
            return 0.0
        return self._snapshots.at_risk_ns(self._measures.computing_ns) / NANOSECONDS
