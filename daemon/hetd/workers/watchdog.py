"""Watchdog: ends workers that miss their deadlines.

The node calls it. When a running task reaches no checkpoint in time, or does not yield
or abort when asked, the launcher ends its worker: by SIGTERM, then by SIGKILL. The task
continues elsewhere only after the process has ended: two attempts never share a
resource. A process that cannot be killed (a driver blocks it in the kernel) takes its
resource out of service; nothing here waits for one.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from hetd.tasks.page import HoldingProcess
from hetd.tasks.worker_key import key_of
from hetd.workers.deadlines import COPY_BYTES_PER_S, Deadlines
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.system import SECOND
from hetsched.tasks import State
from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hetd.config import ActiveConfig
    from hetd.devices.node_devices import NodeDevices
    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.timers import Action, Timers
    from hetd.workers.binding import Binding, Worker
    from hetd.workers.pool import WorkerPool
    from hetd.workers.user_workers import UserWorkers
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.system import System
    from hetsched.tasks import TaskRecord


log = logging.getLogger("hetd")

LOOK_S = 0.5
"""Between two checks of deadlines: there are as many tasks as slots."""
KILL_S = 15.0
"""For a worker to end after `KillWorker`; the grace of its launcher is 2 s."""
LAUNCHER_S = 60.0
"""For a message of a launcher while tasks wait for workers: it forks in milliseconds."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Before a worker is requested again for which the system had no process."""
EXCUSES = 10_000
"""Tasks that are kept after their end; see `Watchdog.excuse`."""
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Bytes of the machine: no task has more state to copy than fits into it."""
ASKS = 8
"""Failed requests, some 10 s in all, after which the first task loses an attempt."""


class Watchdog:
    """Watches running tasks and their workers.

    Attributes:
        health: takes devices out of service.

    """

    def __init__(  # noqa: PLR0913, PLR0917  the parts that it uses
        self,
        config: ActiveConfig,
        timers: Timers,
        devices: NodeDevices,
        system: System,
        journal: Journal,
        pool: WorkerPool,
    ) -> None:
        self._config = config
        self._now = timers.clock.now
        self._timers = timers
        self._devices = devices.infos
        self.health = devices.health
        self._system = system
        self._journal = journal
        self._pool = pool
        self._processes = pool.processes
        limits = config.value
        self._deadlines = Deadlines(limits.strip_limit_s, limits.setup_limit_s, MEMORY)
        self.longest_copy_s = MEMORY / COPY_BYTES_PER_S
        """Most seconds that a task's state may add to each of its deadlines."""
        self.next_look: Nanoseconds = 0
        """When deadlines are to be checked again."""
        self._activity: dict[int, tuple[int, Nanoseconds]] = {}
        """User with waiting tasks -> activity of their launcher, and when it last changed."""
        self._excused: Counter[TaskId] = Counter()
        """Task -> how often it has lost a slot without having had a worker."""

    # ------------------------------------------------------------ commands and reports

    def runs(self, task: TaskId) -> None:
        """Set the deadline of a task that begins to run."""
        binding = self._pool.binding(task)
        if binding is None:
            return
        watched, now = binding.watched, self._now()
        if binding.worker is None:
            if (
                watched is None or watched.served
            ):  # else it waits no longer for asking again
                binding.watched = self._deadlines.await_worker(now)
            return
        spec = self._journal.live[task].spec
        # a debugger may stop a user's program, also between strips
        patient = binding.worker.own
        binding.watched = self._deadlines.begin(
            spec.state_bytes, now, patient=patient, endless=spec.app == m.CALL
        )
        if spec.grace_s:
            binding.watched.extend(int(spec.grace_s * SECOND))

    def progressed(self, task: TaskId, message: m.Progress) -> None:
        """Renew the deadline of a task that reported strips."""
        binding = self._pool.binding(task)
        if binding is not None and binding.watched is not None:
            mean = message.seconds / (message.strips or 1)
            self._deadlines.progressed(
                binding.watched, mean, complete=message.complete, now=self._now()
            )

    def await_yield(self, task: TaskId) -> None:
        """Set the deadline of a running task that was asked to yield."""
        binding = self._pool.binding(task)
        if binding is not None and binding.watched is not None:
            self._deadlines.ordered(binding.watched, self._now())

    def await_abort(self, task: TaskId, epoch: int) -> None:
        """End the worker of a cancelled task if it does not abort in time."""
        worker, config = self._pool.worker_of(task), self._config.value
        own = worker is not None and worker.own
        # a user's program is not ended: it may finish its strip
        grace = config.strip_limit_s if own else config.cancel_grace_s
        self._later(grace, task, epoch)

    def await_return(self, page: TaskPage) -> None:
        """Wait for the worker that held a task before the daemon restarted."""
        task, holder = TaskId(page.id), page.holder
        grace = self._config.value.restore_grace_s
        if holder is not None and holder.boot != self._processes.boot:
            holder, grace = None, 0.0  # the machine was rebooted meanwhile
        # also without a holder: a worker may have come after the last commit
        key = key_of(page.spec)
        self._pool.expect(page.id, page.owner, page.runtime.epoch, holder, key)
        if page.state == "running":
            self.runs(task)
        self._later(grace, task, page.runtime.epoch)

    def excuse(self, task: TaskId, times: int = 1) -> bool:
        """Whether a task may lose its slot for lack of a worker without losing an attempt.

        It may a few times. Otherwise a launcher that keeps leaving, or starts no worker,
        could let its user's tasks hold their slots forever.
        """
        self._excused[task] += 1
        return self._excused[task] <= times

    def worker_freed(self, uid: int, name: str) -> list[e.Event]:
        """Record that a worker has ended, or responds again, and holds no device."""
        return self.health.worker_left(uid, name, self._now())

    def device_failed(self, resource: str, error: str, uid: int) -> list[e.Event]:
        """Count an error of a device in a task of a user, if only theirs run there.

        Tasks of others run there without errors: one user must not have them ended.

        Returns:
            the events for the resource.

        """
        if self._system.serves_others(resource, uid):
            return []
        return self.health.failed(resource, error, uid, self._now())

    def await_exit(self, route: bytes) -> None:
        """Kill a worker that announced its exit, if it does not exit by itself."""
        self._after(KILL_S, partial(self._end_remaining, route))

    def retry_later(self, uid: int, times: int) -> None:
        """Request a user's workers again, with exponential backoff."""
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (times - 1))
        self._after(pause, partial(self._ask_again, uid))

    def readmit(self, uid: int) -> list[e.Event]:
        """Readmit a user's tasks that were deferred for lack of a launcher."""
        unattended = self._system.unattended
        if uid in unattended and self._pool.has_launcher(uid):
            return [e.OwnerAttended(uid)]
        return []

    # ------------------------------------------------------------ time

    def look(self, now: Nanoseconds) -> Iterator[Sequence[e.Event]]:
        """Check all deadlines; nothing wakes the daemon for it.

        Yields:
            events of one instant; the caller dispatches them before it goes on.

        """
        self.next_look = now + int(LOOK_S * SECOND)
        yield from self._look_at_deadlines(now)
        yield from self._look_at_launchers(now)
        yield from self._look_for_unserved()

    def _after(self, seconds: float, action: Action) -> None:
        self._timers.at(self._now() + int(seconds * SECOND), action)

    def _ask_again(self, uid: int, _now: Nanoseconds) -> Sequence[e.Event]:
        self._pool.ask_again(uid)
        return ()

    def _later(self, seconds: float, task: TaskId, epoch: int) -> None:
        self._after(seconds, partial(self._grace_over, task, epoch))

    def _look_at_deadlines(self, now: Nanoseconds) -> Iterator[Sequence[e.Event]]:
        tasks = self._system.tasks
        if len(self._excused) > EXCUSES:
            for task in self._excused.keys() - tasks.keys():
                del self._excused[task]
        overdue = []
        for binding in self._pool.bindings():
            record = tasks.get(binding.task)
            if record is None or record.state is not State.RUNNING:
                binding.watched, binding.kill_reason = None, ""
            elif binding.watched is not None and binding.watched.deadline <= now:
                complaint = self._deadlines.complaint(binding.watched)
                overdue.append((record, binding, complaint))
        for record, binding, complaint in overdue:
            if record.epoch == binding.epoch and self._is_bound(binding):
                yield self._is_overdue(record, binding, complaint)

    def _is_bound(self, binding: Binding) -> bool:
        """Whether a binding has not been deleted meanwhile."""
        return self._pool.binding(binding.task) is binding

    def _look_at_launchers(self, now: Nanoseconds) -> Iterator[Sequence[e.Event]]:
        before, self._activity = self._activity, {}
        for uid, user in self._pool.wanting().items():
            seen, since = before.get(uid, (-1, now))
            since = since if seen == user.activity else now
            if now - since >= LAUNCHER_S * SECOND:
                yield self._leave_unattended(uid, user)
                since = now
            self._activity[uid] = (user.activity, since)

    # ------------------------------------------------------------ missed deadlines

    def _leave_unattended(self, uid: int, user: UserWorkers) -> Sequence[e.Event]:
        """Defer a user's tasks without workers, and record why."""
        user.hung = user.launcher is not None
        reason = f"in {LAUNCHER_S:g} s no launcher of uid {uid} made a worker"
        if user.hung:
            launcher = f"the launcher of uid {uid}, process {user.hung_launcher},"
            reason = f"{launcher} gave no sign of life in {LAUNCHER_S:g} s"
        log.warning("%s: what waits keeps out of the way", reason)
        tasks = self._system.tasks
        # followers before their leaders
        waiting = self._pool.waiting(uid)[::-1]
        for binding in waiting:
            self._pool.release(binding.task)
        user.stop_waiting()
        records = [tasks[each.task] for each in waiting if each.task in tasks]
        # they are deferred: they lose no turn
        lost = [self._unserved(record, reason, last=False) for record in records]
        return [e.OwnerUnattended(uid), *lost]

    def _unserved(self, record: TaskRecord, reason: str, *, last: bool) -> e.WorkerLost:
        """Return the event of a task that loses its slot for lack of a worker.

        Args:
            record: the task.
            reason: why no worker came.
            last: whether the task loses its turn, too.

        """
        begun = not record.not_started and not self.excuse(record.id)
        return e.WorkerLost(record.id, record.epoch, reason, begun=begun, unserved=last)

    def _is_overdue(
        self, record: TaskRecord, binding: Binding, complaint: str
    ) -> Sequence[e.Event]:
        worker = binding.worker
        if worker is None:
            return self._give_up_waiting(record, complaint)
        if binding.kill_reason:
            return self._cannot_end(record, worker)
        log.warning("task %d on %s: %s", record.id, record.resource, complaint)
        if worker.own:
            return self._take_from_program(record, complaint)
        self._end_worker(binding, worker, complaint)
        return ()

    def _give_up_waiting(self, record: TaskRecord, reason: str) -> Sequence[e.Event]:
        """Free the slot of a task for which no worker came, whatever its launcher reports."""
        uid = self._journal.live[record.id].owner
        self._pool.release(record.id)
        self._pool.of_user(uid).stop_waiting()
        return [self._unserved(record, reason, last=True)]

    def _take_from_program(self, record: TaskRecord, reason: str) -> Sequence[e.Event]:
        """Free the slot of a task that its user's own program holds and does not run.

        The program is never killed; nothing else can run its task.
        """
        task, epoch, cancelled = record.id, record.epoch, record.cancelling is not None
        self._pool.send(task, m.Abort(task, epoch))
        self._pool.unbind(task)
        if cancelled:
            return [e.TaskAborted(task, epoch)]
        return [e.TaskFailed(task, epoch, f"its program: {reason}")]

    def _grace_over(
        self, task: TaskId, epoch: int, _now: Nanoseconds
    ) -> Sequence[e.Event]:
        record = self._system.tasks.get(task)
        if record is None or record.epoch != epoch:
            return ()
        if record.not_started and record.cancelling is not None:
            # its worker answers when the task before it lets it
            self._later(self._config.value.cancel_grace_s, task, epoch)
            return ()
        binding = self._pool.binding(task)
        worker = binding.worker if binding is not None else None
        if binding is None or worker is None or not self._may_still_come(worker):
            return self._did_not_return(task, epoch)
        if record.cancelling is not None:
            reason = "did not reach a checkpoint after it was cancelled"
            if worker.own:
                return self._take_from_program(record, reason)
            self._end_worker(binding, worker, reason)
        elif not worker.route:
            self._later(self._config.value.restore_grace_s, task, epoch)
        return ()

    def _did_not_return(self, task: TaskId, epoch: int) -> Sequence[e.Event]:
        reason = "its worker did not report after a restart of hetd"
        self._pool.mark_lost(task)
        # without a holder it never began: it loses no attempt
        begun = self._journal.live[task].holder is not None
        return [e.WorkerLost(task, epoch, reason, begun=begun)]

    def _may_still_come(self, worker: Worker) -> bool:
        """Whether a worker has registered since a restart, or still runs.

        It reads no messages between checkpoints; its launcher does.
        """
        if worker.route:
            return True
        told = self._pool.is_there(worker)
        return self._is_there(worker) if told is None else told

    def _is_there(self, worker: Worker) -> bool:
        """Whether a pid is known to be still that of the worker."""
        return 0 < worker.started == self._processes.started_at(worker.pid)

    def _end_worker(self, binding: Binding, worker: Worker, reason: str) -> None:
        """Have a worker killed; its task is lost once the process has ended."""
        binding.kill_reason = reason
        if binding.watched is not None:
            binding.watched.deadline = self._now() + int(KILL_S * SECOND)
        if self._pool.end(worker, reason):
            return
        # Without a launcher, we may signal only processes of our own user.
        if self._is_there(worker):
            self._processes.kill(worker.pid)

    def _end_remaining(self, route: bytes, _now: Nanoseconds) -> Sequence[e.Event]:
        worker = self._pool.worker_at(route)
        if worker is not None and worker.leaving:
            self._pool.end(worker, "stayed alive after it announced its exit")
        return ()

    def _cannot_end(self, record: TaskRecord, worker: Worker) -> Sequence[e.Event]:
        """Take what a process that cannot be killed holds out of service.

        Its task continues elsewhere.
        """
        reason = f"process {worker.pid} of task {record.id} cannot be ended"
        if self._is_there(worker):  # its launcher may hang, too
            self._processes.kill(worker.pid)
        resource, holder = record.assigned_to, (worker.uid, worker.name)
        if self._devices[resource].slots > 1:
            lost = self.health.slot_blocked(resource, holder, reason, self._now())
        else:
            lost = self.health.blocked(resource, holder, reason, self._now())
        behind = [*self._lose_behind(worker, reason)]
        self._pool.send(record.id, m.Abort(record.id, record.epoch))
        self._pool.unbind(record.id)
        gone = e.WorkerLost(
            record.id, record.epoch, reason, elsewhere=True, cause="stuck"
        )
        return [*behind, gone, *lost]

    def _lose_behind(self, worker: Worker, reason: str) -> Iterator[e.WorkerLost]:
        """Unbind the tasks of a worker that it has not begun."""
        tasks = self._system.tasks
        for binding in worker.bindings[:0:-1]:
            record = tasks.get(binding.task)
            if record is not None:
                abort = m.Abort(record.id, record.epoch)
                self._pool.send(record.id, abort)
                yield e.WorkerLost(record.id, record.epoch, reason, begun=False)
            self._pool.unbind(binding.task)

    # ------------------------------------------------------------ the invariant

    def neglected(self, records: Iterable[TaskRecord]) -> Iterator[str]:
        """Describe bound tasks that no mechanism serves any more.

        A bound task has a worker, or waits for one of its owner, or its worker is
        expected back after a restart until its grace is over. A running task has a
        deadline, too.
        """
        pool = self._pool
        for record in records:
            task, binding = record.id, pool.binding(record.id)
            if not record.bound:
                continue
            if binding is None:
                yield f"task {task} is bound and has no worker: {record.describe_story()}"
            elif (
                record.state is State.RUNNING
                and not record.not_started
                and (binding.watched is None or binding.epoch != record.epoch)
            ):
                yield f"task {task} runs without a deadline: {record.describe_story()}"

    def _look_for_unserved(self) -> Iterator[Sequence[e.Event]]:
        """Free the slots of neglected tasks: a bug of hetd, repaired here."""
        states = self._system.states.values()
        for state in states:
            for record in list(state.running.values()):
                for complaint in self.neglected([record]):
                    log.error("bug in hetd, repaired: %s", complaint)
                    self._pool.release(record.id)
                    yield [self._unserved(record, "it had no worker", last=True)]

    # ------------------------------------------------------------ holders

    def _name_process(self, worker: Worker) -> HoldingProcess:
        """Name the process of a worker; all tasks that it holds share this."""
        boot = self._processes.boot
        worker.process = HoldingProcess(
            worker.name, worker.pid, worker.started, boot, own=worker.own
        )
        return worker.process

    def watch_assigned(self) -> None:
        """Save which processes hold tasks, for the next start; set those tasks' deadlines."""
        for binding in self._pool.take_assigned():
            if binding.worker is not None:
                self._watch_assigned(binding, binding.worker)

    def _watch_assigned(self, binding: Binding, worker: Worker) -> None:
        page = self._journal.live.get(binding.task)
        if page is None:
            return
        page.holder = worker.process or self._name_process(worker)
        self._journal.save(page)
        record = self._system.tasks.get(binding.task)
        if record is None or record.state is not State.RUNNING or record.not_started:
            return
        # a new connection does not extend the deadline
        if binding.watched is None or not binding.watched.served:
            self.runs(record.id)
