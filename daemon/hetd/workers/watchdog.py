"""Watchdog: ends workers that miss their deadlines.

The node calls it. When a running task reaches no checkpoint in time, or does not yield
or abort when asked, the launcher ends its worker: by SIGTERM, then by SIGKILL. The task
continues elsewhere only after the process has ended: two attempts never share a
resource. A process that cannot be killed (a driver blocks it in the kernel) takes its
resource out of service; nothing here waits for one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from hetd.devices.health import Health
from hetd.tasks.page import HoldingProcess
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.system import SECOND
from hetsched.tasks import State
from libtask import messages as m
from libtask import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hetd.clock import Clock
    from hetd.config import Config
    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.workers.pool import WorkerPool
    from hetd.workers.user_workers import UserWorkers, Worker
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.scheduler import Scheduler
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


def kill_group(leader: int) -> None:
    """Kill a worker and its descendants; works only for the daemon's own user."""
    processes.kill_with_descendants([leader])
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


class WatchedNode(Protocol):
    """The parts of the node that the watchdog needs."""

    clock: Clock
    config: Config
    devices: dict[str, m.DeviceInfo]
    journal: Journal
    pool: WorkerPool
    scheduler: Scheduler

    def dispatch(self, *events: e.Event) -> None:
        """Tell the scheduler, and do what it wants."""
        ...


class Watchdog:
    """Watches running tasks and their workers.

    Args:
        node: owns the tasks.
        kill: kills a worker of the daemon's own user and its descendants, by its pid.
        started_at: returns when the process of a pid started; 0: there is none.

    """

    def __init__(
        self,
        runtime: WatchedNode,
        kill: Callable[[int], None] = kill_group,
        started_at: Callable[[int], int] = processes.started_at,
    ) -> None:
        config = runtime.config
        self._runtime = runtime
        self._kill = kill
        self._started_at = started_at
        self._boot = processes.boot_id()
        self._now = runtime.clock.now
        self._deadlines = Deadlines(config.strip_limit_s, config.setup_limit_s, MEMORY)
        specs = {name: device.spec for name, device in runtime.devices.items()}
        self.health = Health(specs, config.device_errors)
        self.longest_copy_s = MEMORY / COPY_BYTES_PER_S
        """Most seconds that a task's state may add to each of its deadlines."""
        self._look_at: Nanoseconds = 0
        self._graces: list[tuple[Nanoseconds, TaskId, int]] = []
        self._asks: list[tuple[Nanoseconds, int]] = []
        self._leaving: list[tuple[Nanoseconds, bytes]] = []
        self._activity: dict[int, tuple[int, Nanoseconds]] = {}
        """User with waiting tasks -> activity of their launcher, and when it last changed."""
        self._ended: dict[TaskId, str] = {}
        """Task whose worker is being killed -> why; the task avoids the resource."""
        self._excused: set[TaskId] = set()
        """Tasks that have already lost a slot without having had a worker."""
        runtime.pool.assigned = self._assigned
        runtime.pool.started_at = started_at

    # ------------------------------------------------------------ commands and reports

    def runs(self, task: TaskId, epoch: int) -> None:
        """Set the deadline of a task that begins to run."""
        worker = self._runtime.pool.worker_of(task)
        if worker is None:
            self._deadlines.await_worker(task, epoch, self._now())
            return
        size = self._runtime.journal.live[task].spec.state_bytes
        # a debugger may stop a user's program, also between strips
        self._deadlines.begin(task, epoch, size, self._now(), patient=worker.own)
        self._deadlines.allow(task, self._runtime.journal.live[task].spec.grace_s)

    def progressed(self, page: TaskPage, message: m.Progress) -> None:
        """Renew the deadline of a task that reported strips."""
        mean = message.seconds / (message.strips or 1)
        self._deadlines.progressed(
            TaskId(page.id), mean, complete=message.complete, now=self._now()
        )

    def await_yield(self, task: TaskId) -> None:
        """Set the deadline of a running task that was asked to yield."""
        self._deadlines.ordered(task, self._now())

    def await_abort(self, task: TaskId, epoch: int) -> None:
        """End the worker of a cancelled task if it does not abort in time."""
        worker, config = self._runtime.pool.worker_of(task), self._runtime.config
        own = worker is not None and worker.own
        # a user's program is not ended: it may finish its strip
        grace = config.strip_limit_s if own else config.cancel_grace_s
        self._later(grace, task, epoch)

    def await_return(self, page: TaskPage) -> None:
        """Wait for the worker that held a task before the daemon restarted."""
        task, holder = TaskId(page.id), page.holder
        grace = self._runtime.config.restore_grace_s
        if holder is not None and holder.boot != self._boot:
            holder, grace = None, 0.0  # the machine was rebooted meanwhile
        # also without a holder: a worker may have come after the last commit
        self._runtime.pool.expect(page.id, page.owner, holder)
        if page.state == "running":
            self.runs(task, page.epoch)
        self._later(grace, task, page.epoch)

    def excuse(self, task: TaskId) -> bool:
        """Whether a task may lose its slot for lack of a worker without losing an attempt.

        It may once. Otherwise a launcher that keeps leaving, or starts no worker, could
        let its user's tasks hold their slots forever.
        """
        before = len(self._excused)
        self._excused.add(task)
        return len(self._excused) > before

    def take_hung(self, task: TaskId) -> bool:
        """Return whether the worker of a task was killed for hanging, and forget it."""
        return self._ended.pop(task, None) is not None

    def worker_freed(self, uid: int, name: str) -> None:
        """Record that a worker has ended, or responds again, and holds no device."""
        freed = self.health.worker_left(uid, name, self._now())
        if freed:
            self._runtime.dispatch(*freed)

    def device_failed(self, resource: str, error: str) -> list[e.Event]:
        """Count an error of a device; return the events for its resource."""
        return self.health.failed(resource, error, self._now())

    def await_exit(self, route: bytes) -> None:
        """Kill a worker that announced its exit, if it does not exit by itself."""
        heappush(self._leaving, (self._now() + int(KILL_S * SECOND), route))

    def retry_later(self, uid: int, times: int) -> None:
        """Request a user's workers again, with exponential backoff."""
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (times - 1))
        heappush(self._asks, (self._now() + int(pause * SECOND), uid))

    def readmit(self, uid: int) -> None:
        """Readmit a user's tasks that were deferred for lack of a launcher."""
        unattended = self._runtime.scheduler.system.unattended
        if uid in unattended and self._runtime.pool.has_launcher(uid):
            self._runtime.dispatch(e.OwnerAttended(uid))

    # ------------------------------------------------------------ time

    def next_deadline(self) -> Nanoseconds | None:
        """When `tick` has something to do, except for the periodic checks."""
        heaps = (self._graces, self._asks, self._leaving)
        times = [heap[0][0] for heap in heaps if heap]
        look = self.health.next_look()
        return min([*times, look] if look is not None else times, default=None)

    def tick(self, now: Nanoseconds) -> None:
        """Do what is due."""
        while self._graces and self._graces[0][0] <= now:
            _, task, epoch = heappop(self._graces)
            self._grace_over(task, epoch)
        while self._leaving and self._leaving[0][0] <= now:
            self._end_remaining(heappop(self._leaving)[1])
        while self._asks and self._asks[0][0] <= now:
            self._runtime.pool.ask_again(heappop(self._asks)[1])
        if self._look_at <= now:
            self._look_at = now + int(LOOK_S * SECOND)
            self._look(now)
            self._look_at_launchers(now)
            self._look_for_unserved()
        back = self.health.tick(now)
        for event in back:
            self._runtime.dispatch(event)

    def _later(self, seconds: float, task: TaskId, epoch: int) -> None:
        due = self._now() + int(seconds * SECOND)
        heappush(self._graces, (due, task, epoch))

    def _look(self, now: Nanoseconds) -> None:
        for task in self._deadlines.tasks():
            record = self._runtime.scheduler.system.tasks.get(task)
            if record is None or record.state is not State.RUNNING:
                self._deadlines.forget(task)
                self._ended.pop(task, None)
        if len(self._excused) > EXCUSES:
            self._excused &= self._runtime.scheduler.system.tasks.keys()
        for task, epoch, complaint in self._deadlines.overdue(now):
            record = self._runtime.scheduler.system.tasks[task]
            if record.epoch == epoch:
                self._is_overdue(record, complaint)

    def _look_at_launchers(self, now: Nanoseconds) -> None:
        before, self._activity = self._activity, {}
        for uid, user in self._runtime.pool.wanting().items():
            seen, since = before.get(uid, (-1, now))
            since = since if seen == user.activity else now
            if now - since >= LAUNCHER_S * SECOND:
                self._leave_unattended(uid, user)
                since = now
            self._activity[uid] = (user.activity, since)

    # ------------------------------------------------------------ missed deadlines

    def _leave_unattended(self, uid: int, user: UserWorkers) -> None:
        """Defer a user's tasks without workers, and record why."""
        user.hung = user.launcher is not None
        reason = f"in {LAUNCHER_S:g} s no launcher of uid {uid} made a worker"
        if user.hung:
            launcher = f"the launcher of uid {uid}, process {user.hung_launcher},"
            reason = f"{launcher} gave no sign of life in {LAUNCHER_S:g} s"
        log.warning("%s: what waits keeps out of the way", reason)
        tasks = self._runtime.scheduler.system.tasks
        waiting = self._runtime.pool.waiting(uid)[
            ::-1
        ]  # followers before their leaders
        for task in waiting:
            self._runtime.pool.release(task)
        user.stop_waiting()
        records = [tasks[TaskId(task)] for task in waiting if task in tasks]
        # they are deferred: they lose no turn
        lost = [self._unserved(record, reason, last=False) for record in records]
        self._runtime.dispatch(e.OwnerUnattended(uid), *lost)

    def _unserved(self, record: TaskRecord, reason: str, *, last: bool) -> e.WorkerLost:
        """Return the event of a task that loses its slot for lack of a worker.

        Args:
            record: the task.
            reason: why no worker came.
            last: whether the task loses its turn, too.

        """
        begun = not record.not_started and not self.excuse(record.id)
        return e.WorkerLost(record.id, record.epoch, reason, begun=begun, unserved=last)

    def _is_overdue(self, record: TaskRecord, complaint: str) -> None:
        worker = self._runtime.pool.worker_of(record.id)
        if worker is None:
            self._give_up_waiting(record, complaint)
        elif worker.own:
            log.warning("task %d on %s: %s", record.id, record.resource, complaint)
            self._take_from_program(record, complaint)
        elif record.id in self._ended:
            self._cannot_end(record, worker)
        else:
            log.warning("task %d on %s: %s", record.id, record.resource, complaint)
            self._end_worker(record, worker, complaint)

    def _give_up_waiting(self, record: TaskRecord, reason: str) -> None:
        """Free the slot of a task for which no worker came, whatever its launcher reports."""
        uid = self._runtime.journal.live[record.id].owner
        self._runtime.pool.release(record.id)
        self._runtime.pool.of_user(uid).stop_waiting()
        self._runtime.dispatch(self._unserved(record, reason, last=True))

    def _take_from_program(self, record: TaskRecord, reason: str) -> None:
        """Free the slot of a task that its user's own program holds and does not run.

        The program is never killed; nothing else can run its task.
        """
        task, epoch, cancelled = record.id, record.epoch, record.cancelling is not None
        self._runtime.pool.send(task, m.Abort(task, epoch))
        self._runtime.pool.unbind(task)
        if cancelled:
            self._runtime.dispatch(e.TaskAborted(task, epoch))
        else:
            self._runtime.dispatch(e.TaskFailed(task, epoch, f"its program: {reason}"))

    def _grace_over(self, task: TaskId, epoch: int) -> None:
        record = self._runtime.scheduler.system.tasks.get(task)
        if record is None or record.epoch != epoch:
            return
        if record.not_started and record.cancelling is not None:
            # its worker answers when the task before it lets it
            self._later(self._runtime.config.cancel_grace_s, task, epoch)
            return
        worker = self._runtime.pool.worker_of(task)
        if worker is None or (not worker.route and not self._may_still_come(worker)):
            reason = "its worker did not report after a restart of hetd"
            self._runtime.pool.mark_lost(task)
            # without a holder it never began: it loses no attempt
            begun = self._runtime.journal.live[task].holder is not None
            self._runtime.dispatch(e.WorkerLost(task, epoch, reason, begun=begun))
        elif record.cancelling is not None:
            reason = "did not reach a checkpoint after it was cancelled"
            if worker.own:
                self._take_from_program(record, reason)
            else:
                self._end_worker(record, worker, reason)
        elif not worker.route:
            self._later(self._runtime.config.restore_grace_s, task, epoch)

    def _may_still_come(self, worker: Worker) -> bool:
        """Whether a worker that has not registered since a restart still runs.

        It reads no messages between checkpoints; its launcher does.
        """
        told = self._runtime.pool.is_there(worker)
        return self._is_there(worker) if told is None else told

    def _is_there(self, worker: Worker) -> bool:
        """Whether a pid is known to be still that of the worker."""
        return 0 < worker.started == self._started_at(worker.pid)

    def _end_worker(self, record: TaskRecord, worker: Worker, reason: str) -> None:
        """Have a worker killed; its task is lost once the process has ended."""
        self._ended[record.id] = reason
        self._deadlines.postpone(record.id, self._now() + int(KILL_S * SECOND))
        if self._runtime.pool.kill(record.id, reason):
            return
        # Without a launcher, we may signal only processes of our own user.
        if self._is_there(worker):
            self._kill(worker.pid)

    def _end_remaining(self, route: bytes) -> None:
        worker = self._runtime.pool.worker_at(route)
        if worker is not None and worker.leaving:
            self._runtime.pool.end(worker, "stayed alive after it announced its exit")

    def _cannot_end(self, record: TaskRecord, worker: Worker) -> None:
        """Take what a process that cannot be killed holds out of service.

        Its task continues elsewhere.
        """
        reason = f"process {worker.pid} of task {record.id} cannot be ended"
        if self._is_there(worker):  # its launcher may hang, too
            self._kill(worker.pid)
        resource, holder = record.assigned_to, (worker.uid, worker.name)
        if self._runtime.devices[resource].slots > 1:
            lost = self.health.slot_blocked(resource, holder, reason, self._now())
        else:
            lost = self.health.blocked(resource, holder, reason, self._now())
        # From now on, reports concern its next attempt.
        del self._ended[record.id]
        behind = [*self._lose_behind(worker, reason)]
        self._runtime.pool.send(record.id, m.Abort(record.id, record.epoch))
        self._runtime.pool.unbind(record.id)
        gone = e.WorkerLost(
            record.id, record.epoch, reason, elsewhere=True, cause="stuck"
        )
        self._runtime.dispatch(*behind, gone, *lost)

    def _lose_behind(self, worker: Worker, reason: str) -> Iterator[e.WorkerLost]:
        """Unbind the tasks of a worker that it has not begun."""
        tasks = self._runtime.scheduler.system.tasks
        for task in worker.behind[::-1]:
            record = tasks.get(TaskId(task))
            if record is not None:
                self._runtime.pool.send(task, m.Abort(task, record.epoch))
                lost = e.WorkerLost(record.id, record.epoch, reason, begun=False)
                yield lost
            self._runtime.pool.unbind(task)

    # ------------------------------------------------------------ the invariant

    def neglected(self, records: Iterable[TaskRecord]) -> Iterator[str]:
        """Describe bound tasks that no mechanism serves any more.

        A bound task has a worker, or waits for one of its owner, or its worker is
        expected back after a restart until its grace is over. A running task has a
        deadline, too.
        """
        pool = self._runtime.pool
        for record in records:
            task = record.id
            if not record.bound:
                continue
            if not (pool.worker_of(task) or pool.waits(task) or pool.is_expected(task)):
                yield f"task {task} is bound and has no worker: {record.describe_story()}"
            elif (
                record.state is State.RUNNING
                and not record.not_started
                and not self._deadlines.watches(task, record.epoch)
            ):
                yield f"task {task} runs without a deadline: {record.describe_story()}"

    def _look_for_unserved(self) -> None:
        """Free the slots of neglected tasks: a bug of hetd, repaired here."""
        states = self._runtime.scheduler.system.states.values()
        for state in states:
            for record in list(state.running.values()):
                for complaint in self.neglected([record]):
                    log.error("bug in hetd, repaired: %s", complaint)
                    self._runtime.pool.release(record.id)
                    self._runtime.dispatch(
                        self._unserved(record, "it had no worker", last=True)
                    )

    # ------------------------------------------------------------ holders

    def _assigned(self, task: int, worker: Worker) -> None:
        """Save which process holds a task, for the next start of the daemon."""
        page = self._runtime.journal.live.get(task)
        if page is None:
            return
        page.holder = HoldingProcess(
            worker.name, worker.pid, worker.started, self._boot, own=worker.own
        )
        self._runtime.journal.save(page)
        record = self._runtime.scheduler.system.tasks.get(TaskId(task))
        if record is None or record.state is not State.RUNNING or record.not_started:
            return
        # a new connection does not extend the deadline
        if not self._deadlines.is_served(record.id, record.epoch):
            self.runs(record.id, record.epoch)


WORKER_S = 90.0
"""For a worker to register for a task that has a slot: forks take milliseconds."""
USUAL_STRIPS = 20
"""A strip may take this many times as long as the task's usual strips."""
COPY_BYTES_PER_S = 50e6
"""Slowest rate at which state is copied, or written to a disk, at a checkpoint."""
SETTLED = 2
"""Reports, 0.1 s apart, after which only strips count: kernels are compiled by then."""


@dataclass(slots=True)
class WatchedTask:
    """A running task and its deadline.

    Attributes:
        epoch: the binding that it runs under.
        copying: additional time for a checkpoint to copy its state, nanoseconds.
        least: time that any strip may take, nanoseconds.
        heard: when it began to run, or last reported strips.
        deadline: when it must have reached a checkpoint.
        served: whether it has a worker; if not, `deadline` is for one to register.
        reports: number of its reports of strips.
        usual: longest mean time of a strip that it reported, nanoseconds.
        ordered: it was asked to yield; reports extend the deadline no longer.

    """

    epoch: int
    copying: Nanoseconds
    least: Nanoseconds
    heard: Nanoseconds
    deadline: Nanoseconds
    served: bool = True
    reports: int = 0
    usual: Nanoseconds = 0
    ordered: bool = False


class Deadlines:
    """Deadlines of running tasks.

    Args:
        strip_s: seconds that any strip may take.
        setup_s: seconds for loading, compiling and the first strip together, and for
            saving.
        memory: bytes of the machine; caps the state that a task claims to have.

    """

    def __init__(self, strip_s: float, setup_s: float, memory: int = 1 << 62) -> None:
        self._strip = int(strip_s * SECOND)
        self._setup = int(setup_s * SECOND)
        self._memory = memory
        self._watched: dict[TaskId, WatchedTask] = {}

    def begin(
        self,
        task: TaskId,
        epoch: int,
        state_bytes: int,
        now: Nanoseconds,
        *,
        patient: bool = False,
    ) -> None:
        """Set the deadline of a task that begins to run in a worker.

        Args:
            task: the task.
            epoch: the binding that it runs under.
            state_bytes: bytes of state that it claims to copy.
            now: the present instant.
            patient: whether any strip may take as long as setting up.

        """
        copied = min(max(state_bytes, 0), self._memory)
        copying = int(copied / COPY_BYTES_PER_S * SECOND)
        least = max(self._strip, self._setup) if patient else self._strip
        deadline = now + self._setup + copying
        self._watched[task] = WatchedTask(epoch, copying, least, now, deadline)

    def allow(self, task: TaskId, seconds: float) -> None:
        """Give a task more seconds to reach a checkpoint: it has to save its state."""
        watched = self._watched[task]
        watched.copying += int(seconds * SECOND)
        watched.deadline += int(seconds * SECOND)

    def await_worker(self, task: TaskId, epoch: int, now: Nanoseconds) -> None:
        """Set the deadline for a worker to register for a task."""
        known = self._watched.get(task)
        if known is not None and known.epoch == epoch and not known.served:
            return
        deadline = now + int(WORKER_S * SECOND)
        self._watched[task] = WatchedTask(
            epoch, 0, self._strip, now, deadline, served=False
        )

    def watches(self, task: TaskId, epoch: int) -> bool:
        """Whether a task has a deadline under this binding."""
        known = self._watched.get(task)
        return known is not None and known.epoch == epoch

    def is_served(self, task: TaskId, epoch: int) -> bool:
        """Whether a task has a deadline and a worker."""
        known = self._watched.get(task)
        return known is not None and known.epoch == epoch and known.served

    def progressed(
        self, task: TaskId, mean_strip_s: float, *, complete: bool, now: Nanoseconds
    ) -> None:
        """Renew a deadline after a report of strips; `complete`: the last one is done."""
        watched = self._watched.get(task)
        if watched is None:
            return
        watched.reports += 1
        # no strip took longer than the time since the last report
        mean = min(int(mean_strip_s * SECOND), now - watched.heard)
        watched.usual = max(watched.usual, mean)
        watched.heard = now
        if complete or watched.reports < SETTLED:
            watched.deadline = now + self._setup + watched.copying
        elif not watched.ordered:
            watched.deadline = now + self._limit(watched)

    def ordered(self, task: TaskId, now: Nanoseconds) -> None:
        """Set the deadline of a task that was asked to yield: it may finish its strip."""
        watched = self._watched.get(task)
        if watched is not None and not watched.ordered:
            watched.ordered = True
            if watched.reports >= SETTLED:
                watched.deadline = now + self._limit(watched)

    def postpone(self, task: TaskId, until: Nanoseconds) -> None:
        """Move the deadline of a task to `until`."""
        watched = self._watched.get(task)
        if watched is not None:
            watched.deadline = until

    def forget(self, task: TaskId) -> None:
        """Stop watching a task."""
        self._watched.pop(task, None)

    def overdue(self, now: Nanoseconds) -> list[tuple[TaskId, int, str]]:
        """List (task, epoch, complaint) of the tasks that missed their deadlines."""
        late = [
            (task, watched)
            for task, watched in self._watched.items()
            if watched.deadline <= now
        ]
        return [(task, each.epoch, self._complaint(each)) for task, each in late]

    def tasks(self) -> list[TaskId]:
        """List the watched tasks."""
        return list(self._watched)

    def _limit(self, watched: WatchedTask) -> Nanoseconds:
        return max(watched.least, USUAL_STRIPS * watched.usual) + watched.copying

    def _complaint(self, watched: WatchedTask) -> str:
        if not watched.served:
            return f"no worker came for it in {WORKER_S:g} s"
        if watched.reports < SETTLED:
            seconds = (self._setup + watched.copying) / SECOND
            return f"no strip was finished in {seconds:.3g} s"
        seconds = self._limit(watched) / SECOND
        if watched.ordered:
            return f"did not yield within {seconds:.3g} s"
        return f"no checkpoint was reached in {seconds:.3g} s"
