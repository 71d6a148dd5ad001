"""Reports of launchers and workers, turned into events for the runtime.

A report counts only if it comes from the worker that holds the task. The epoch in it fences
late reports.
"""

from __future__ import annotations

import logging
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from hetd.devices.circuits import cause_of_exit, programs_of_the_box
from hetd.reports.calibration import Calibration
from hetd.reports.snapshots import SnapshotReports
from hetd.workers.watchdog import ASKS
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.system import SECOND
from hetsched.tasks import State
from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hetd.runtime import Runtime
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer
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
LASTING: dict[str, Cause] = {"program": "program", "binary": "binary"}
"""Codes of failures that the next task of the application would have there, too."""


class WorkerReports:
    """Takes the messages of launchers and workers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._wall = runtime.clock.wall
        self._learner = Calibration(runtime)
        self.snapshots = SnapshotReports(runtime)
        self._handlers: dict[type, Callable[[TaskPage, Any], None]] = {
            m.Ready: self._on_ready,
            m.Progress: self._on_progress,
            m.Yielded: self._on_yielded,
            m.Finished: self._on_finished,
            m.Failed: self._on_failed,
            m.SnapshotTaken: self.snapshots.taken,
            m.Resumed: self.snapshots.resumed,
            m.Parked: self.snapshots.parked,
        }
        self._ended_processes: list[tuple[Nanoseconds, int, str, int]] = []
        """Workers whose launcher has still to say how they ended: when patience with it
        is over, user, name, pid."""
        self._greeted: set[int] = set()
        """Tasks whose workers have registered and have not reported yet."""

    def launcher_came(self, peer: Peer, workers: Iterable[str] = ()) -> None:
        """Take in a launcher, and the names of the workers that it has."""
        self._runtime.pool.launcher_came(peer, workers)
        self._runtime.watchdog.readmit(peer.uid)

    def launcher_left(self, peer: Peer) -> None:
        """Give up the tasks for which no worker can come any more."""
        for task in reversed(self._runtime.pool.launcher_left(peer)):
            begun = not self._runtime.watchdog.excuse(TaskId(task))
            self._lose(task, "its launcher ended", begun=begun)
        for _, uid, name, pid in list(self._ended_processes):
            if not self._runtime.pool.supervised(uid, name):  # nobody is to say how
                self._give_up(uid, name, pid, "its worker ended")

    def worker_came(self, peer: Peer, hello: m.Register) -> None:
        """Take in a worker, and what it still holds from before a restart."""
        pool = self._runtime.pool
        before = pool.worker_at(peer.route)
        if before is not None and before.name != hello.worker:
            # a connection is one worker's
            reason = f"its connection is another worker's, {hello.worker}"
            self.worker_left(peer.uid, before.name, reason)
        ended = [self._held(peer, hello, each.task, each.epoch) for each in hello.ended]
        record = self._held(peer, hello, hello.task or 0, hello.epoch)
        expected = record is not None and pool.is_expected(record.id)
        keeps = [each.id for each in (*ended, record) if each is not None]
        lost = pool.worker_came(peer, hello, list(dict.fromkeys(keeps)))
        self._lose_all(lost, "the connection to its worker broke")
        if record is not None:
            self._greeted.add(record.id)
            if hello.resource and expected:
                found = e.TaskFound(record.id, record.epoch, hello.resource)
                self._runtime.dispatch(
                    found, *self._runtime.settings.drains([hello.resource])
                )
            self._runtime.commands.repeat_stop(record)
        self._runtime.watchdog.readmit(peer.uid)

    def _held(
        self, peer: Peer, hello: m.Register, task: int, epoch: int
    ) -> TaskRecord | None:
        """Find a task that a worker says it holds, or has ended, if it is to keep it."""
        page = self._runtime.journal.live.get(task)
        if page is None or page.owner != peer.uid:
            return None
        if not self._runtime.pool.may_claim(page.id, peer.uid, hello):
            return None
        return self._runtime.scheduler.state.current(TaskId(page.id), epoch)

    def process_ended(self, peer: Peer, name: str) -> None:
        """Handle the end of a worker's process; its launcher may report the cause.

        That report comes when all processes of the worker have ended, maybe later.
        """
        worker = self._runtime.pool.worker_of_name(peer.uid, name)
        if worker is None or worker.pid != peer.pid:
            return  # the name is another process's by now
        if self._runtime.pool.supervised(peer.uid, name):
            due = self._runtime.clock.now() + int(EXIT_S * SECOND)
            heappush(self._ended_processes, (due, peer.uid, name, peer.pid))
        else:
            self.worker_left(peer.uid, name, "its worker ended")

    def tick(self, now: Nanoseconds) -> None:
        """Give up the workers that ended, and of whom no launcher said so."""
        ended = self._ended_processes
        while ended and ended[0][0] <= now:
            _, uid, name, pid = heappop(ended)
            self._give_up(
                uid, name, pid, "its worker ended, and its launcher did not say how"
            )

    def _give_up(self, uid: int, name: str, pid: int, reason: str) -> None:
        worker = self._runtime.pool.worker_of_name(uid, name)
        if worker is not None and worker.pid == pid:
            self.worker_left(uid, name, reason)

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
        worker = self._runtime.pool.worker_left(uid, name)
        self._runtime.watchdog.worker_freed(uid, name)
        if worker is None or worker.task is None:
            return
        running = worker.task
        if last is not None and last.task in worker.behind:
            running = last.task
        record = self._runtime.scheduler.system.tasks.get(TaskId(running))
        if worker.own and record is not None:
            # nobody but that program can run it
            failed = e.TaskFailed(record.id, record.epoch, "its program ended")
            self._runtime.dispatch(failed)
        else:
            if record is not None and last is not None and _is_of(record, last):
                self._keep_last_output(record, last)
                reason = last.reason
            self._lose_all(worker.tasks, reason, cause=cause, last=last)

    def _lose_all(
        self,
        tasks: list[int],
        reason: str,
        *,
        cause: Cause | None = None,
        last: m.LastOutput | None = None,
    ) -> None:
        """Mark the tasks of a lost worker as lost; it ran one of them.

        Args:
            tasks: in the order in which it had them.
            reason: how it ended; `cause`: its class for the circuit breaker.
            last: its last output, and the task that wrote it; None: the first of them ran.

        """
        told = last is not None and last.task in tasks
        ran = last.task if last is not None and told else next(iter(tasks), 0)
        for task in reversed(tasks):  # those that wait behind others first
            if task == ran:
                self._lose(task, reason, cause=cause, ran=told)
            else:
                self._lose(task, reason, begun=False)

    def worker_exited(self, peer: Peer, message: m.WorkerExited) -> None:
        """Believe a launcher about the workers of its own user."""
        if not self._runtime.pool.holds(peer.uid, message.name):
            return
        self._runtime.pool.of_user(peer.uid).record_activity()
        self._runtime.watchdog.readmit(peer.uid)
        reason = message.reason or f"its worker exited with status {message.status}"
        if not message.started:
            self._not_started(peer.uid, message.name, reason)
            return
        task = self._runtime.pool.failed_to_start(peer.uid, message.name)
        if task is not None:
            # counts as an attempt: a worker that never comes up must not be made forever
            self._lose(task, reason)
        cause = cause_of_exit(message.status)
        self.worker_left(peer.uid, message.name, reason, cause=cause, last=message.last)

    def _keep_last_output(self, record: TaskRecord, last: m.LastOutput) -> None:
        """Keep with a task what its worker wrote last before it was lost."""
        journal = self._runtime.journal
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
        pool, watchdog = self._runtime.pool, self._runtime.watchdog
        times = pool.not_started(uid, name)
        waiting = pool.waiting(uid)
        if not times or not waiting:
            return
        for task in waiting:
            self._runtime.journal.live[task].reason = reason
        log.warning("uid %d: %s", uid, reason)
        if times % ASKS == 0:
            # Not for ever: the resource that it has been given may serve others.
            self._lose(waiting[0], reason)
        watchdog.retry_later(uid, times)

    def attachments_held(self, peer: Peer, message: m.AttachmentsHeld) -> None:
        """Have a launcher remove the attachments that no task of its user needs."""
        needed = self._runtime.journal.attachments
        spare = [name for name in message.names if (peer.uid, name) not in needed]
        if spare:
            replies = self._runtime.journal.batch.replies
            replies.append((peer.route, m.DropAttachments(spare)))

    def worker_leaves(self, peer: Peer) -> None:
        """Give another worker what this one was ordered when it had decided to leave."""
        tasks = self._runtime.pool.stop_assigning(peer.route)
        self._runtime.watchdog.await_exit(peer.route)
        for other in reversed(tasks[1:]):
            self._lose(other, "its worker took no further order", begun=False)
        if not tasks:
            return
        task = tasks[0]
        if self._runtime.watchdog.excuse(TaskId(task)):
            self._runtime.order_again(TaskId(task))
        else:
            self._lose(task, "its worker took no further order")

    def _lose(
        self,
        task: int,
        reason: str,
        *,
        begun: bool = True,
        cause: Cause | None = None,
        ran: bool = False,
    ) -> None:
        """Mark a task as lost by its worker.

        Args:
            task: which one.
            reason: how its worker ended; `cause`: its class for the circuit breaker.
            begun: whether it counts as an attempt.
            ran: whether it is known that it had begun, ordered behind others or not.

        """
        record = self._runtime.scheduler.system.tasks.get(TaskId(task))
        self._runtime.pool.release(task)
        self._greeted.discard(task)
        if record is not None and record.bound:
            begun = begun and (ran or not record.not_started)
            hung = begun and self._runtime.watchdog.take_hung(record.id)
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
        if self._runtime.devices[resource].spec.kind == "cpu":
            return []
        return self._runtime.watchdog.device_failed(resource, f"a task hung: {reason}")

    # ------------------------------------------------------------ reports

    def report(self, peer: Peer, message: Report) -> None:
        """Take a worker's report of the task that it holds."""
        runtime = self._runtime
        if isinstance(message, m.Aborted):
            self._on_aborted(peer, message)
            return
        if isinstance(message, m.Reports):
            self._on_reports(peer, message)
            return
        page = runtime.journal.live.get(message.task)
        held = runtime.pool.holder(message.task, peer.route)
        if page is None or not held or page.epoch != message.epoch:
            return
        if not self._heal(page, message):
            self._note_begun(page)
            self._handlers[type(message)](page, message)
            self._demand_worker(page.id, message.epoch)

    def _demand_worker(self, task: int, epoch: int) -> None:
        """Give up a task whose worker has told of an end that cannot be.

        As that of a task which it was not told to run: the scheduler takes no note of
        it, and the worker has the task no more.
        """
        pool = self._runtime.pool
        if pool.worker_of(task) is not None or pool.waits(task):
            return
        if self._runtime.scheduler.state.current(TaskId(task), epoch) is not None:
            self._lose(task, "its worker told of an end that cannot be")

    def _heal(self, page: TaskPage, message: Report) -> bool:
        """Repeat `Run` to a worker that missed it before it registered.

        Returns:
            whether the report was handled before, and this is a repetition.

        """
        if page.id not in self._greeted:
            return False
        self._greeted.remove(page.id)
        repeated = isinstance(message, m.Yielded) and _is_taken(page, message)
        record = self._runtime.scheduler.system.tasks[TaskId(page.id)]
        if (repeated or isinstance(message, m.Ready)) and record.cancelling is None:
            self._runtime.commands.repeat_run(record)
            # a worker that waits hears no `Preempt`
            self._runtime.commands.repeat_stop(record)
        return repeated

    def _on_aborted(self, peer: Peer, message: m.Aborted) -> None:
        page = self._runtime.journal.live.get(message.task)
        if page is not None and page.epoch != message.epoch:
            # It aborted an older binding; it may have the same task again by now.
            held = False
        else:
            held = self._runtime.pool.holder(message.task, peer.route)
        if held:
            if page is not None and message.strips:
                self._note_begun(page)
                self._close_segment(page, message, None)
            self._runtime.pool.release(message.task)
            self._runtime.dispatch(e.TaskAborted(TaskId(message.task), message.epoch))
        else:
            worker = self._runtime.pool.aborted(peer.route, message.task)
            if worker is not None:
                self._runtime.watchdog.worker_freed(worker.uid, worker.name)

    def _on_ready(self, page: TaskPage, message: m.Ready) -> None:
        self._runtime.dispatch(e.TaskReady(TaskId(page.id), message.epoch))

    def _on_progress(self, page: TaskPage, message: m.Progress) -> None:
        task = TaskId(page.id)
        page.checkpoint = message.checkpoint
        page.checkpoint_at = self._wall()
        page.at_risk = message.at_risk
        self._note_strips(page, message)
        self._runtime.watchdog.progressed(page, message)
        self._learner.progressed(page, message)
        self._runtime.metering.used(task, message.cpu_seconds)
        share = message.iterations / (
            message.checkpoint.total or message.iterations or 1
        )
        done = e.StripsDone(task, message.epoch, page.progress, share, message.seconds)
        self._runtime.dispatch(done)
        self._runtime.journal.publish(page, "progress", self._wall())

    def _note_strips(self, page: TaskPage, message: m.Progress) -> None:
        """Add the strips to the open segment: if the worker is lost, nobody else tells."""
        open_segment = self._runtime.journal.open_segment
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
        self._close_segment(page, message, message.last_strip or None)
        task = TaskId(page.id)
        self._runtime.dispatch(e.TaskYielded(task, message.epoch, page.progress))

    def _on_finished(self, page: TaskPage, message: m.Finished) -> None:
        self._take_ends([(page, message)])

    def _on_reports(self, peer: Peer, message: m.Reports) -> None:
        """Take in the ends of several tasks as of one instant."""
        ended = self._take_ends(self._held_ones(peer, message))
        for page in ended:
            self._demand_worker(page.id, page.epoch)

    def _held_ones(
        self, peer: Peer, message: m.Reports
    ) -> Iterator[tuple[TaskPage, m.Finished]]:
        """Find the tasks that end by this; those that a worker has not are left out."""
        for report in message.reports:
            page = self._runtime.journal.live.get(report.task)
            held = self._runtime.pool.holder(report.task, peer.route)
            if page is not None and held and page.epoch == report.epoch:
                self._greeted.discard(page.id)
                yield page, report

    def _take_ends(self, ends: Iterable[tuple[TaskPage, m.Finished]]) -> list[TaskPage]:
        """Take in how tasks ended, one after the other; return which they are."""
        events: list[e.Event] = []
        done: list[tuple[TaskPage, float]] = []
        for page, message in ends:
            self._begin_late(page, done[-1][1] if done else self._wall())
            page.result = message.result
            page.exit_code = message.exit_code
            page.warnings = message.warnings
            done.append((page, self._close_segment(page, message, None)))
            self._learner.finished(page, message)
            self._runtime.pool.release(page.id)
            events.append(e.TaskFinished(TaskId(page.id), message.epoch))
        if not events:
            return []
        self._runtime.dispatch(*events)
        for page, ended in done:
            if page.finished is not None:  # perhaps while no daemon was there
                page.finished = ended
        return [page for page, _ in done]

    def _begin_late(self, page: TaskPage, at: float) -> None:
        """Enter the beginning of a task that ran behind others, as the one before ended."""
        record = self._runtime.scheduler.system.tasks.get(TaskId(page.id))
        if record is not None and record.not_started:
            self._runtime.journal.begin_segment(page, at, record.rule)

    def _note_begun(self, page: TaskPage) -> None:
        """Report the start of a task that the scheduler expects behind others.

        This opens its segment; the worker's report follows.
        """
        record = self._runtime.scheduler.system.tasks.get(TaskId(page.id))
        if record is not None and record.not_started:
            self._runtime.dispatch(e.TaskStarted(record.id, record.epoch))

    def _on_failed(self, page: TaskPage, message: m.Failed) -> None:
        self._runtime.journal.close_segment(
            page,
            self._ended(page, message.ended),
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
        self._runtime.pool.release(page.id)
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
        if self._serves_others(page.resource, page.owner):
            return []  # they do not complain: a user alone does not end their tasks
        return self._runtime.watchdog.device_failed(page.resource, message.error)

    def _serves_others(self, resource: str, uid: int) -> bool:
        """Whether tasks of other users run on a resource, too."""
        running = self._runtime.scheduler.system.states[resource].running.values()
        return any(record.submitted.owner != uid for record in running)

    # ------------------------------------------------------------ steps

    def _close_segment(
        self, page: TaskPage, message: m.SegmentTotals, last_strip: float | None
    ) -> float:
        """Close it with what the worker says of it; return when it ended."""
        self._runtime.metering.used_in_all(page.id, message.cpu_seconds)
        if message.strips and page.resource is not None:
            self._runtime.watchdog.health.worked(page.resource)
        ended = self._ended(page, message.ended)
        self._runtime.journal.close_segment(
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

    def _ended(self, page: TaskPage, told: float) -> float:
        """Return when a segment ended: as reported, within the possible range."""
        began = page.segments[-1].start if page.segments else page.submitted
        now = self._wall()
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
    | m.Yielded
    | m.Finished
    | m.Failed
    | m.Reports
    | m.Aborted
    | m.SnapshotTaken
    | m.Resumed
    | m.Parked
)
