"""Reports of launchers and workers, turned into events for the runtime.

A report counts only if it comes from the worker that holds the task. The epoch in it fences
late reports.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from hetd.devices.circuits import cause_of_exit, programs_of_the_box
from hetd.workers.watchdog import ASKS
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.system import SECOND
from hetsched.tasks import State
from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hetd.devices.node_devices import NodeDevices
    from hetd.reports.calibration import Calibration
    from hetd.reports.snapshots import SnapshotReports
    from hetd.runtime import Runtime
    from hetd.tasks.page import TaskPage
    from hetd.timers import Timers
    from hetd.transport.router import Peer
    from hetd.workers.binding import Binding
    from hetd.workers.commands import NodeWorkers
    from hetsched.events import Cause
    from hetsched.ids import Nanoseconds
    from hetsched.tasks import TaskRecord

log = logging.getLogger("hetd")

EXIT_S = 15.0
"""For a launcher to say how a worker ended, whose process is gone. It does within
milliseconds, unless something that the worker started cannot be ended."""
ELSEWHERE = frozenset({"device", "device-memory", "binary", "program"})
"""Codes of failures that another resource may not have."""
LONGEST_TRACE = 4096
"""Characters kept of a traceback, its end: what a worker sends of one."""
OUTDATED_WORKERS = 32
"""Warm workers that may refuse a task, one after the other, because they have imported
other code than the task's; each of them leaves."""
LASTING: dict[str, Cause] = {"program": "program", "binary": "binary"}
"""Codes of failures that the next task of the application would have there, too."""


class WorkerReports:
    """Takes the messages of launchers and workers."""

    def __init__(  # noqa: PLR0913, PLR0917  the parts that it uses
        self,
        runtime: Runtime,
        timers: Timers,
        devices: NodeDevices,
        workers: NodeWorkers,
        learner: Calibration,
        snapshots: SnapshotReports,
    ) -> None:
        self._runtime = runtime
        self._timers = timers
        self._devices = devices
        self._scheduler = runtime.scheduler
        self._system = runtime.scheduler.system
        self._journal = runtime.journal
        self._pool = workers.pool
        self._commands = workers.commands
        self._watchdog = workers.watchdog
        self._metering = devices.metering
        self._learner = learner
        self.snapshots = snapshots
        self._wall = timers.clock.wall
        self._handlers: dict[type, Callable[[TaskPage, Any], None]] = {
            m.Ready: self._on_ready,
            m.Progress: self._on_progress,
            m.StripsGiven: self._runtime.give_strips,
            m.Yielded: self._on_yielded,
            m.Failed: self._on_failed,
            m.SnapshotTaken: self.snapshots.taken,
            m.Resumed: self.snapshots.resumed,
            m.Parked: self.snapshots.parked,
            m.Awaits: self._on_awaits,
        }

    def launcher_came(
        self, peer: Peer, workers: Iterable[str] = (), *, yields: bool = False
    ) -> None:
        """Take in a launcher, and the names of the workers that it has."""
        if not (yields and self._pool.is_launcher(peer)):
            self._pool.launcher_came(peer, workers)
            self._readmit(peer.uid)
        if yields:
            self._pool.keep_no_idle_workers(peer.uid)

    def _readmit(self, uid: int) -> None:
        self._runtime.dispatch_any(self._watchdog.readmit(uid))

    def launcher_left(self, peer: Peer) -> None:
        """Give up the tasks for which no worker can come any more."""
        for binding in reversed(self._pool.launcher_left(peer)):
            begun = not self._watchdog.excuse(binding.task)
            self._lose(binding, "its launcher ended", begun=begun)
        pool = self._pool
        for worker in pool.workers_of(peer.uid):
            if worker.process_ended and not pool.supervised(peer.uid, worker.name):
                self.worker_left(peer.uid, worker.name, "its worker ended")

    def worker_came(self, peer: Peer, hello: m.Register) -> None:
        """Take in a worker, and what it still holds from before a restart."""
        pool = self._pool
        before = pool.worker_at(peer.route)
        if before is not None and before.name != hello.worker:
            # a connection is one worker's
            reason = f"its connection is another worker's, {hello.worker}"
            self.worker_left(peer.uid, before.name, reason)
        ended = [self._held(peer, hello, each.task, each.epoch) for each in hello.ended]
        record = self._held(peer, hello, hello.task or 0, hello.epoch)
        binding = None if record is None else pool.binding(record.id)
        expected = binding is not None and binding.awaits_return
        keeps = [each.id for each in (*ended, record) if each is not None]
        lost = pool.worker_came(peer, hello, list(dict.fromkeys(keeps)))
        self._lose_all(lost, "the connection to its worker broke")
        if record is not None and binding is not None:
            binding.registered_again = True
            binding.told_to_run = False
            if hello.resource and expected:
                found = e.TaskFound(record.id, record.epoch, hello.resource)
                self._runtime.dispatch(
                    found, *self._runtime.settings.drains([hello.resource])
                )
            self._commands.repeat_stop(record)
        self._runtime.watch_assigned()
        self._readmit(peer.uid)

    def _held(
        self, peer: Peer, hello: m.Register, task: int, epoch: int
    ) -> TaskRecord | None:
        """Find a task that a worker says it holds, or has ended, if it is to keep it."""
        page = self._journal.live.get(task)
        if page is None or page.owner != peer.uid:
            return None
        if not self._pool.may_claim(page.id, peer.uid, hello):
            return None
        return self._scheduler.state.current(TaskId(page.id), epoch)

    def process_ended(self, peer: Peer, name: str) -> None:
        """Handle the end of a worker's process; its launcher may report the cause.

        That report comes when all processes of the worker have ended, maybe later.
        """
        worker = self._pool.worker_of_name(peer.uid, name)
        if worker is None or worker.pid != peer.pid:
            return  # the name is another process's by now
        if self._pool.supervised(peer.uid, name):
            worker.process_ended = True
            due = self._timers.clock.now() + int(EXIT_S * SECOND)
            self._timers.at(due, partial(self._give_up, peer, name))
        else:
            self.worker_left(peer.uid, name, "its worker ended")

    def _give_up(self, peer: Peer, name: str, _now: Nanoseconds) -> Sequence[e.Event]:
        """Give up a worker that ended, and of which no launcher said so."""
        worker = self._pool.worker_of_name(peer.uid, name)
        if worker is not None and worker.pid == peer.pid:
            reason = "its worker ended, and its launcher did not say how"
            self.worker_left(peer.uid, name, reason)
        return ()

    def worker_left(
        self,
        uid: int,
        name: str,
        reason: str,
        *,
        cause: Cause | None = None,
        last: m.LastOutput | None = None,
    ) -> None:
        """Handle the loss of a worker; its tasks run again elsewhere.

        Args:
            uid: the worker's user; `name`: its name.
            reason: how it ended; `cause`: its class for the circuit breaker.
            last: its last output, and the task that wrote it.

        """
        worker = self._pool.worker_left(uid, name)
        self._runtime.dispatch_any(self._watchdog.worker_freed(uid, name))
        if worker is None or not worker.bindings:
            return
        tasks = [binding.task for binding in worker.bindings]
        running = tasks[0]
        if last is not None and last.task in tasks:
            running = TaskId(last.task)
        record = self._system.tasks.get(running)
        if worker.own and record is not None:
            # nobody but that program can run it
            failed = e.TaskFailed(record.id, record.epoch, "its program ended")
            self._runtime.dispatch(failed)
        else:
            if record is not None and last is not None and _is_of(record, last):
                self._keep_last_output(record, last)
                reason = last.reason
            self._lose_all(worker.bindings, reason, cause=cause, last=last)

    def _lose_all(
        self,
        bindings: Sequence[Binding],
        reason: str,
        *,
        cause: Cause | None = None,
        last: m.LastOutput | None = None,
    ) -> None:
        """Mark the tasks of a lost worker as lost; it ran one of them.

        Args:
            bindings: of its tasks, in the order in which it had them.
            reason: how it ended; `cause`: its class for the circuit breaker.
            last: its last output, and the task that wrote it; None: the first of them ran.

        """
        tasks = [binding.task for binding in bindings]
        told = last is not None and last.task in tasks
        ran = last.task if last is not None and told else next(iter(tasks), 0)
        for binding in reversed(bindings):  # those that wait behind others first
            if binding.task == ran:
                self._lose(binding, reason, cause=cause, ran=told)
            else:
                self._lose(binding, reason, begun=False)

    def worker_exited(self, peer: Peer, message: m.WorkerExited) -> None:
        """Believe a launcher about the workers of its own user."""
        if not self._pool.holds(peer.uid, message.name):
            return
        self._pool.of_user(peer.uid).record_activity()
        self._readmit(peer.uid)
        reason = message.reason or f"its worker exited with status {message.status}"
        if not message.started:
            self._not_started(peer.uid, message.name, reason)
            return
        binding = self._pool.failed_to_start(peer.uid, message.name)
        if binding is not None:
            # counts as an attempt: a worker that never comes up must not be made forever
            self._lose(binding, reason)
        cause = cause_of_exit(message.status)
        if message.over_memory and message.last is not None:
            self._fail_for_memory(peer.uid, message.last, message.over_memory)
        self.worker_left(peer.uid, message.name, reason, cause=cause, last=message.last)

    def _fail_for_memory(self, uid: int, last: m.LastOutput, reason: str) -> None:
        """Fail a task that was ended as it used more memory than it stated to need."""
        record = self._system.tasks.get(TaskId(last.task))
        if record is None or record.submitted.owner != uid or not _is_of(record, last):
            return
        if record.submitted.needs is not None:
            self._keep_last_output(record, last)
            self._runtime.dispatch(e.TaskFailed(record.id, record.epoch, reason))

    def _keep_last_output(self, record: TaskRecord, last: m.LastOutput) -> None:
        """Keep with a task what its worker wrote last before it was lost."""
        journal = self._journal
        page = journal.live[record.id]
        page.last_output = last
        if record.state is State.RUNNING and page.segments:
            strips = max(page.segments[-1].strips, int(last.computed))
            journal.close_segment(
                page,
                self._wall(),
                error=last.reason,
                strips=strips,
                log=last.log,
                log_start=last.log_start,
                log_end=last.log_end,
            )
        journal.save(page)

    def _not_started(self, uid: int, name: str, reason: str) -> None:
        """Ask again later for a worker for which the system had no process."""
        pool, watchdog = self._pool, self._watchdog
        times = pool.not_started(uid, name)
        waiting = pool.waiting(uid)
        if not times or not waiting:
            return
        for binding in waiting:
            self._journal.live[binding.task].reason = reason
        log.warning("uid %d: %s", uid, reason)
        if times % ASKS == 0:
            # Not for ever: the resource that it has been given may serve others.
            self._lose(waiting[0], reason)
        watchdog.retry_later(uid, times)

    def files_held(
        self, peer: Peer, message: m.AttachmentsHeld | m.ResultsHeld
    ) -> None:
        """Have a launcher remove files that no task of its user needs."""
        if isinstance(message, m.ResultsHeld):
            self._results_held(peer, message)
            return
        needed = self._journal.attachments
        spare = [name for name in message.names if (peer.uid, name) not in needed]
        if spare:
            replies = self._journal.batch.replies
            replies.append((peer.route, m.DropAttachments(spare)))

    def _results_held(self, peer: Peer, message: m.ResultsHeld) -> None:
        """Have a launcher remove the results of forgotten tasks that no task takes."""
        journal = self._journal
        spare = [
            task
            for task in message.tasks
            if journal.owner_of(task) != peer.uid and not journal.inputs.is_needed(task)
        ]
        if spare:
            journal.batch.replies.append((peer.route, m.DropResults(spare)))

    def worker_leaves(self, peer: Peer) -> None:
        """Give another worker what this one was ordered when it had decided to leave."""
        excuses = OUTDATED_WORKERS if self._pool.has_served(peer.route) else 1
        bindings = self._pool.stop_assigning(peer.route)
        self._watchdog.await_exit(peer.route)
        for other in reversed(bindings[1:]):
            self._lose(other, "its worker took no further order", begun=False)
        if not bindings:
            return
        first = bindings[0]
        if self._watchdog.excuse(first.task, excuses):
            self._runtime.order_again(first.task)
        else:
            self._lose(first, "its worker took no further order")

    def _lose(
        self,
        binding: Binding,
        reason: str,
        *,
        begun: bool = True,
        cause: Cause | None = None,
        ran: bool = False,
    ) -> None:
        """Mark a task as lost by its worker.

        Args:
            binding: which one; deleted here, unless it is already.
            reason: how its worker ended; `cause`: its class for the circuit breaker.
            begun: whether it counts as an attempt.
            ran: whether it is known that it had begun, ordered behind others or not.

        """
        record = self._system.tasks.get(binding.task)
        self._pool.release(binding.task)
        if record is not None and record.bound:
            begun = begun and (ran or not record.not_started)
            hung = begun and bool(binding.kill_reason)
            if hung and binding.kill_reason not in reason:
                # no launcher has told why it was ended
                reason = f"{binding.kill_reason}: {reason}"
            lost = e.WorkerLost(
                record.id,
                record.epoch,
                reason,
                elsewhere=hung,
                begun=begun,
                cause="hang" if hung else cause if begun else None,
            )
            self._runtime.dispatch(lost, *self._hung_device(record, reason, hung=hung))

    def _hung_device(
        self, record: TaskRecord, reason: str, *, hung: bool
    ) -> list[e.Event]:
        """Count it as an error of an accelerator that a program of the box hung there.

        That users' own programs hang says nothing of the device.
        """
        resource = record.resource
        if not hung or resource is None or record.cancelling is not None:
            return []
        if record.submitted.app not in programs_of_the_box():
            return []
        if self._devices.infos[resource].spec.kind == "cpu":
            return []
        owner = record.submitted.owner
        return self._watchdog.device_failed(resource, f"a task hung: {reason}", owner)

    # ------------------------------------------------------------ reports

    def report(self, peer: Peer, message: Report) -> None:
        """Take a worker's report of the task that it holds."""
        match message:
            case m.Finished():
                self._on_ends(peer, (message,))
            case m.Reports():
                self._on_ends(peer, message.reports)
            case m.Aborted():
                self._on_aborted(peer, message)
            case _:
                self._on_report(peer, message)

    def _on_report(
        self,
        peer: Peer,
        message: m.Ready
        | m.Progress
        | m.StripsGiven
        | m.Yielded
        | m.Failed
        | m.SnapshotTaken
        | m.Resumed
        | m.Parked
        | m.Awaits,
    ) -> None:
        """Take a report of the task that a worker runs or has loaded."""
        page = self._journal.live.get(message.task)
        binding = self._pool.held_at(message.task, peer.route)
        if page is None or binding is None or binding.epoch != message.epoch:
            return
        if not self._heal(page, binding, message):
            self._note_begun(page)
            self._handlers[type(message)](page, message)
            self._demand_worker(binding)

    def _demand_worker(self, binding: Binding) -> None:
        """Give up a task whose worker has told of an end that cannot be.

        As that of a task which it was not told to run: the scheduler takes no note of
        it, and the worker has the task no more.
        """
        if self._pool.binding(binding.task) is not None:
            return
        state = self._scheduler.state
        if state.current(binding.task, binding.epoch) is not None:
            self._lose(binding, "its worker told of an end that cannot be")

    def _heal(self, page: TaskPage, binding: Binding, message: Report) -> bool:
        """Repeat `Run` to a worker that missed it before it registered.

        Returns:
            whether the report was handled before, and this is a repetition.

        """
        if not binding.registered_again:
            return False
        binding.registered_again = False
        repeated = isinstance(message, m.Yielded) and _is_taken(page, message)
        record = self._system.tasks[TaskId(page.id)]
        missed = not binding.told_to_run and record.cancelling is None
        if missed and (repeated or isinstance(message, m.Ready)):
            self._commands.repeat_run(record)
            # a worker that waits hears no `Preempt`
            self._commands.repeat_stop(record)
        return repeated

    def _on_aborted(self, peer: Peer, message: m.Aborted) -> None:
        page = self._journal.live.get(message.task)
        binding = self._pool.held_at(message.task, peer.route)
        # it may have aborted an older binding, and have the same task again by now
        if binding is not None and binding.epoch == message.epoch:
            # a call has output before its only strip is done
            if page is not None and (message.strips or message.log):
                self._note_begun(page)
                self._close_segment(page, message, None, self._wall())
            self._pool.release(message.task)
            self._runtime.dispatch(e.TaskAborted(TaskId(message.task), message.epoch))
        else:
            worker = self._pool.aborted(peer.route, message.task)
            if worker is not None:
                freed = self._watchdog.worker_freed(worker.uid, worker.name)
                self._runtime.dispatch_any(freed)

    def _on_ready(self, page: TaskPage, message: m.Ready) -> None:
        self._runtime.dispatch(e.TaskReady(TaskId(page.id), message.epoch))

    def _on_progress(self, page: TaskPage, message: m.Progress) -> None:
        task = TaskId(page.id)
        page.checkpoint = message.checkpoint
        page.checkpoint_at = self._wall()
        page.at_risk = message.at_risk
        self._note_strips(page, message)
        self._watchdog.progressed(task, message)
        self._learner.progressed(page, message)
        self._metering.used(task, message.cpu_seconds)
        part = self._learner.part_done(page, message)
        reached = self._learner.work_done(page, page.progress)
        done = e.StripsDone(task, message.epoch, reached, part, message.seconds)
        self._runtime.dispatch(done)
        self._journal.publish(page, "progress", self._wall())

    def _note_strips(self, page: TaskPage, message: m.Progress) -> None:
        """Add the strips to the open segment: if the worker is lost, nobody else tells."""
        open_segment = self._journal.open_segment
        if message.started is not None:
            # the first report, or the first to a new hetd: it covers all strips
            open_segment(
                page,
                computing=message.started,
                transfer_in=message.transfer_in,
                strips=message.strips,
                seconds=message.seconds,
                log=message.log,
                log_start=message.log_start,
            )
        elif page.segments:
            last = page.segments[-1]
            strips, seconds = (
                last.strips + message.strips,
                last.seconds + message.seconds,
            )
            open_segment(page, strips=strips, seconds=seconds)

    def _on_yielded(self, page: TaskPage, message: m.Yielded) -> None:
        page.checkpoint = message.checkpoint
        page.checkpoint_at = self._wall()
        page.at_risk = message.at_risk
        self._close_segment(page, message, message.last_strip or None, self._wall())
        task = TaskId(page.id)
        reached = self._learner.work_done(page, page.progress)
        self._runtime.dispatch(e.TaskYielded(task, message.epoch, reached))

    def _on_ends(self, peer: Peer, reports: Sequence[m.Finished]) -> None:
        """Take in how tasks ended, one after the other, as of one instant."""
        journal, pool, now = self._journal, self._pool, self._wall()
        events: list[e.Event] = []
        held: list[Binding] = []
        ends: list[tuple[TaskPage, float]] = []
        for report in reports:
            page = journal.live.get(report.task)
            binding = pool.held_at(report.task, peer.route)
            if page is None or binding is None or binding.epoch != report.epoch:
                continue
            binding.registered_again = False
            held.append(binding)
            before = ends[-1][1] if ends else now
            ends.append((page, self._take_end(page, report, before, now)))
            events.append(e.TaskFinished(binding.task, report.epoch))
        if not events:
            return
        self._runtime.dispatch(*events)
        for page, ended in ends:
            if page.finished is not None:  # perhaps while no daemon was there
                page.finished = ended
        for binding in held:
            if binding.task in self._system.tasks:
                self._demand_worker(binding)

    def _take_end(
        self, page: TaskPage, message: m.Finished, before: float, now: float
    ) -> float:
        """Enter the end of a task, which has no worker any more; return when it was.

        Args:
            page: the task; `message`: how it ended.
            before: when the task before it ended, behind which it may have waited.
            now: the present time of day.

        """
        record = self._system.tasks.get(TaskId(page.id))
        if record is not None and record.not_started:
            self._journal.begin_segment(page, before, record.rule)
        page.result = message.result
        page.exit_code = message.exit_code
        page.warnings = tuple(message.warnings)
        if page.trace:  # of an earlier try; the segment of that try keeps its error
            page.trace, page.last_output = "", None
        ended = self._close_segment(page, message, None, now)
        self._learner.finished(page, message)
        self._pool.release(page.id)
        return ended

    def _note_begun(self, page: TaskPage) -> None:
        """Report the start of a task that the scheduler expects behind others.

        This opens its segment; the worker's report follows.
        """
        record = self._system.tasks.get(TaskId(page.id))
        if record is not None and record.not_started:
            self._runtime.dispatch(e.TaskStarted(record.id, record.epoch))

    def _on_awaits(self, page: TaskPage, message: m.Awaits) -> None:
        others = tuple(TaskId(other) for other in message.others)
        waits = e.OthersAwaited(TaskId(page.id), message.epoch, others)
        self._runtime.dispatch(waits)

    def _on_failed(self, page: TaskPage, message: m.Failed) -> None:
        self._journal.close_segment(
            page,
            _ended(page, message.ended, self._wall()),
            error=message.error,
            strips=message.strips,
            seconds=message.seconds,
            log=message.log,
            log_start=message.log_start,
            log_end=message.log_end,
        )
        page.last_output = message.last
        page.trace = message.trace[-LONGEST_TRACE:]
        page.exit_code = message.exit_code
        self._pool.release(page.id)
        failed = e.TaskFailed(
            TaskId(page.id),
            message.epoch,
            message.error,
            elsewhere=message.code in ELSEWHERE,
            whole_kind=message.code == "program",
            cause=LASTING.get(message.code),
        )
        self._runtime.dispatch(failed, *self._device_errors(page, message))

    def _device_errors(self, page: TaskPage, message: m.Failed) -> list[e.Event]:
        """Count the error against the resource where it may be the device's fault."""
        if message.code != "device" or page.resource is None:
            return []
        return self._watchdog.device_failed(page.resource, message.error, page.owner)

    # ------------------------------------------------------------ steps

    def _close_segment(
        self,
        page: TaskPage,
        message: m.SegmentTotals,
        last_strip: float | None,
        now: float,
    ) -> float:
        """Close it with what the worker says of it; return when it ended."""
        self._metering.used_in_all(page.id, message.cpu_seconds)
        resource = page.runtime.resource
        if message.strips and resource is not None:
            self._devices.health.worked(resource)
        ended = _ended(page, message.ended, now)
        self._journal.close_segment(
            page,
            ended,
            computed=last_strip or ended,
            seconds=message.seconds,
            strips=message.strips,
            transfer_in=message.transfer_in,
            transfer_out=message.transfer_out,
            set_up=message.set_up,
            log=message.log,
            log_start=message.log_start,
            log_end=message.log_end,
        )
        return ended


def _ended(page: TaskPage, told: float, now: float) -> float:
    """Return when a segment ended: as reported, within the possible range."""
    began = page.segments[-1].start if page.segments else page.submitted
    # the time of day may have been put back since it began
    return max(began, min(now, told)) if told else max(began, now)


def _is_of(record: TaskRecord, last: m.LastOutput) -> bool:
    """Whether a worker wrote its last output for this task, in its present binding."""
    return (record.id, record.epoch) == (last.task, last.epoch)


def _is_taken(page: TaskPage, message: m.Yielded) -> bool:
    """Return whether a segment has begun since the reported yield.

    The time of day may have been put back, so the clock alone does not decide: the
    segment before is compared with the report, too.
    """
    if not page.segments or page.segments[-1].finish is not None:
        return False
    if message.checkpoint != page.checkpoint:
        return False
    told = (message.strips, message.seconds, message.log_end)
    same = message.strips > 0 and any(
        told == (before.strips, before.seconds, before.log_end)
        for before in page.segments[-2:-1]
    )
    return same or 0 < message.ended <= page.segments[-1].start


Report = (
    m.Ready
    | m.Progress
    | m.StripsGiven
    | m.Yielded
    | m.Finished
    | m.Failed
    | m.Reports
    | m.Aborted
    | m.SnapshotTaken
    | m.Resumed
    | m.Parked
    | m.Awaits
)
