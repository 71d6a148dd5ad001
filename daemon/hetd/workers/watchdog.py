"""Watchdog: what becomes of workers that do not do as they are told.

The node calls it. A running task that reaches no checkpoint in time, or does not yield
or give up when asked, costs its worker: the launcher ends it, politely, then for
certain. The task goes on elsewhere only when the process is really gone: two attempts
never share a resource. A process that nothing ends (a driver holds on to it in the
kernel) takes its resource out of use; nothing here ever waits for one.
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
from hetd.tasks.page import Holder
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
    from hetd.tasks.page import Entry
    from hetd.workers.pool import WorkerPool
    from hetd.workers.user_workers import UserWorkers, Worker
    from hetsched.ids import Nanoseconds, TaskId
    from hetsched.scheduler import Scheduler
    from hetsched.tasks import TaskRecord


log = logging.getLogger("hetd")

LOOK_S = 0.5
"""Between two looks at what is overdue: there are as many tasks as slots."""
KILL_S = 15.0
"""For the end of a worker that its launcher was told to end; its grace is 2 s."""
LAUNCHER_S = 60.0
"""For a sign of life of a launcher while tasks wait for workers: it forks in milliseconds."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Before a worker is asked for again for which there was no process."""
EXCUSES = 10_000
"""Tasks that are remembered after their end; see `Watchdog.excuse`."""
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Bytes of the machine: no task has more state to copy than fits into it."""
ASKS = 8
"""Times, some 10 s in all, after which that costs the first task an attempt."""


def kill_group(leader: int) -> None:
    """Kill a worker with all below it, where its user is our own."""
    processes.kill_with_descendants([leader])
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


class WatchedNode(Protocol):
    """What watchdog needs of the node."""

    clock: Clock
    config: Config
    devices: dict[str, m.DeviceInfo]
    journal: Journal
    pool: WorkerPool
    scheduler: Scheduler

    def happen(self, *events: e.Event) -> None:
        """Tell the scheduler, and do what it wants."""
        ...


class Watchdog:
    """Watches over running tasks and their workers.

    Args:
        node: whose tasks they are.
        kill: ends a worker of our own user with all below it, by its pid.
        started_at: tells when the process of a pid started; 0: there is none.

    """

    def __init__(
        self,
        node: WatchedNode,
        kill: Callable[[int], None] = kill_group,
        started_at: Callable[[int], int] = processes.started_at,
    ) -> None:
        config = node.config
        self._node = node
        self._kill = kill
        self._started_at = started_at
        self._boot = processes.boot_id()
        self._now = node.clock.now
        self._deadlines = Deadlines(config.strip_limit_s, config.setup_limit_s, MEMORY)
        specs = {name: device.spec for name, device in node.devices.items()}
        self.health = Health(specs, config.device_errors)
        self.longest_copy_s = MEMORY / COPY_BYTES_PER_S
        """What a task's state may add to each of its deadlines, at most."""
        self._look_at: Nanoseconds = 0
        self._graces: list[tuple[Nanoseconds, TaskId, int]] = []
        self._asks: list[tuple[Nanoseconds, int]] = []
        self._leaving: list[tuple[Nanoseconds, bytes]] = []
        self._activity: dict[int, tuple[int, Nanoseconds]] = {}
        """Users whose tasks wait for workers: their launchers' last sign of life, and when."""
        self._ended: dict[TaskId, str] = {}
        """Tasks whose workers were told to end, and why: they avoid the resource."""
        self._excused: set[TaskId] = set()
        """Tasks that have lost a place already without having had a worker."""
        node.pool.assigned = self._assigned
        node.pool.started_at = started_at

    # ------------------------------------------------------------ what happens

    def runs(self, task: TaskId, epoch: int) -> None:
        """Watch a task that was told to run."""
        worker = self._node.pool.worker_of(task)
        if worker is None:
            self._deadlines.await_worker(task, epoch, self._now())
            return
        size = self._node.journal.live[task].spec.state_bytes
        # a user's program may be stopped by a debugger, between strips too
        self._deadlines.begin(task, epoch, size, self._now(), patient=worker.own)
        self._deadlines.allow(task, self._node.journal.live[task].spec.grace_s)

    def progressed(self, entry: Entry, message: m.Progress) -> None:
        """Take note of strips."""
        mean = message.seconds / (message.strips or 1)
        self._deadlines.progressed(
            TaskId(entry.id), mean, complete=message.complete, now=self._now()
        )

    def await_yield(self, task: TaskId) -> None:
        """Take note that a running task was asked to yield."""
        self._deadlines.ordered(task, self._now())

    def await_abort(self, task: TaskId, epoch: int) -> None:
        """End the worker of a cancelled task if it does not give it up in time."""
        worker, config = self._node.pool.worker_of(task), self._node.config
        own = worker is not None and worker.own
        # a user's program is not ended: it may finish its strip
        grace = config.strip_limit_s if own else config.cancel_grace_s
        self._later(grace, task, epoch)

    def await_return(self, entry: Entry) -> None:
        """Wait for the worker that held a task before the daemon was restarted."""
        task, holder = TaskId(entry.id), entry.holder
        grace = self._node.config.restore_grace_s
        if holder is not None and holder.boot != self._boot:
            holder, grace = None, 0.0  # the machine was started anew meanwhile
        # also without a holder: a worker may have come after the last commit
        self._node.pool.expect(entry.id, entry.owner, holder)
        if entry.state == "running":
            self.runs(task, entry.epoch)
        self._later(grace, task, entry.epoch)

    def excuse(self, task: TaskId) -> bool:
        """Whether a task may lose its place for want of a worker without an attempt.

        It may once: a launcher that comes and goes, or takes orders and makes nothing,
        would let its user's tasks hold their places for ever otherwise.
        """
        before = len(self._excused)
        self._excused.add(task)
        return len(self._excused) > before

    def take_hung(self, task: TaskId) -> bool:
        """Whether the worker of a task was ended as it hung; to be asked once."""
        return self._ended.pop(task, None) is not None

    def worker_freed(self, uid: int, name: str) -> None:
        """Take note that a worker has ended, or does as it is told again."""
        freed = self.health.worker_left(uid, name, self._now())
        if freed:
            self._node.happen(*freed)

    def device_failed(self, resource: str, error: str) -> list[e.Event]:
        """Count an error of a device; return what follows for its resource."""
        return self.health.failed(resource, error, self._now())

    def await_exit(self, route: bytes) -> None:
        """End a worker that has said its last word, if it does not end by itself."""
        heappush(self._leaving, (self._now() + int(KILL_S * SECOND), route))

    def retry_later(self, uid: int, times: int) -> None:
        """Ask for a user's workers once more, the later the oftener it was in vain."""
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (times - 1))
        heappush(self._asks, (self._now() + int(pause * SECOND), uid))

    def readmit(self, uid: int) -> None:
        """Let a user's tasks in again where they waited for somebody to make workers."""
        unattended = self._node.scheduler.system.unattended
        if uid in unattended and self._node.pool.has_launcher(uid):
            self._node.happen(e.OwnerAttended(uid))

    # ------------------------------------------------------------ time

    def next_deadline(self) -> Nanoseconds | None:
        """When `tick` has something to do, but for slow looks at what is overdue."""
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
            self._node.pool.ask_again(heappop(self._asks)[1])
        if self._look_at <= now:
            self._look_at = now + int(LOOK_S * SECOND)
            self._look(now)
            self._look_at_launchers(now)
            self._look_for_unserved()
        back = self.health.tick(now)
        for event in back:
            self._node.happen(event)

    def _later(self, seconds: float, task: TaskId, epoch: int) -> None:
        due = self._now() + int(seconds * SECOND)
        heappush(self._graces, (due, task, epoch))

    def _look(self, now: Nanoseconds) -> None:
        for task in self._deadlines.tasks():
            record = self._node.scheduler.system.tasks.get(task)
            if record is None or record.state is not State.RUNNING:
                self._deadlines.forget(task)
                self._ended.pop(task, None)
        if len(self._excused) > EXCUSES:
            self._excused &= self._node.scheduler.system.tasks.keys()
        for task, epoch, complaint in self._deadlines.overdue(now):
            record = self._node.scheduler.system.tasks[task]
            if record.epoch == epoch:
                self._is_overdue(record, complaint)

    def _look_at_launchers(self, now: Nanoseconds) -> None:
        before, self._activity = self._activity, {}
        for uid, user in self._node.pool.wanting().items():
            seen, since = before.get(uid, (-1, now))
            since = since if seen == user.activity else now
            if now - since >= LAUNCHER_S * SECOND:
                self._leave_unattended(uid, user)
                since = now
            self._activity[uid] = (user.activity, since)

    # ------------------------------------------------------------ patience that ends

    def _leave_unattended(self, uid: int, user: UserWorkers) -> None:
        """Let a user's tasks without workers leave their places to others, and know why."""
        user.hung = user.launcher is not None
        reason = f"in {LAUNCHER_S:g} s no launcher of uid {uid} made a worker"
        if user.hung:
            launcher = f"the launcher of uid {uid}, process {user.hung_launcher},"
            reason = f"{launcher} gave no sign of life in {LAUNCHER_S:g} s"
        log.warning("%s: what waits keeps out of the way", reason)
        tasks = self._node.scheduler.system.tasks
        waiting = self._node.pool.waiting(uid)[::-1]  # what follows others before these
        for task in waiting:
            self._node.pool.release(task)
        user.stop_waiting()
        records = [tasks[TaskId(task)] for task in waiting if task in tasks]
        # they keep out of the way: that is enough
        lost = [self._unserved(record, reason, last=False) for record in records]
        self._node.happen(e.OwnerUnattended(uid), *lost)

    def _unserved(self, record: TaskRecord, reason: str, *, last: bool) -> e.WorkerLost:
        """Say that a task loses its place as it has no worker; `last`: its turn as well."""
        begun = not record.unbegun and not self.excuse(record.id)
        return e.WorkerLost(record.id, record.epoch, reason, begun=begun, unserved=last)

    def _is_overdue(self, record: TaskRecord, complaint: str) -> None:
        worker = self._node.pool.worker_of(record.id)
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
        """Free the place of a task for which no worker came, whatever its launcher says."""
        uid = self._node.journal.live[record.id].owner
        self._node.pool.release(record.id)
        self._node.pool.of_user(uid).stop_waiting()
        self._node.happen(self._unserved(record, reason, last=True))

    def _take_from_program(self, record: TaskRecord, reason: str) -> None:
        """Free the place of a task that its user's own program holds and does not run.

        The program is never ended; nothing else can run its task.
        """
        task, epoch, cancelled = record.id, record.epoch, record.cancelling is not None
        self._node.pool.send(task, m.Abort(task, epoch))
        self._node.pool.unbind(task)
        if cancelled:
            self._node.happen(e.TaskAborted(task, epoch))
        else:
            self._node.happen(e.TaskFailed(task, epoch, f"its program: {reason}"))

    def _grace_over(self, task: TaskId, epoch: int) -> None:
        record = self._node.scheduler.system.tasks.get(task)
        if record is None or record.epoch != epoch:
            return
        if record.unbegun and record.cancelling is not None:
            # it goes when the one before it lets its worker answer
            self._later(self._node.config.cancel_grace_s, task, epoch)
            return
        worker = self._node.pool.worker_of(task)
        if worker is None or (not worker.route and not self._may_still_come(worker)):
            reason = "its worker did not report after a restart of hetd"
            self._node.pool.mark_lost(task)
            # it may have waited for a worker that was being made: that harms it in nothing
            begun = self._node.journal.live[task].holder is not None
            self._node.happen(e.WorkerLost(task, epoch, reason, begun=begun))
        elif record.cancelling is not None:
            reason = "did not reach a checkpoint after it was cancelled"
            if worker.own:
                self._take_from_program(record, reason)
            else:
                self._end_worker(record, worker, reason)
        elif not worker.route:
            self._later(self._node.config.restore_grace_s, task, epoch)

    def _may_still_come(self, worker: Worker) -> bool:
        """Whether a worker that is silent since a restart is at work all the same.

        It is deaf between checkpoints; but its launcher is not.
        """
        told = self._node.pool.is_there(worker)
        return self._is_there(worker) if told is None else told

    def _is_there(self, worker: Worker) -> bool:
        """Whether a pid is still that of the worker; where that is not known, it is not."""
        return 0 < worker.started == self._started_at(worker.pid)

    def _end_worker(self, record: TaskRecord, worker: Worker, reason: str) -> None:
        """Have a worker ended; its task is lost when it has."""
        self._ended[record.id] = reason
        self._deadlines.postpone(record.id, self._now() + int(KILL_S * SECOND))
        if self._node.pool.kill(record.id, reason):
            return
        # Its launcher is gone: the kernel lets us where its user is our own.
        if self._is_there(worker):
            self._kill(worker.pid)

    def _end_remaining(self, route: bytes) -> None:
        worker = self._node.pool.worker_at(route)
        if worker is not None and worker.leaving:
            self._node.pool.end(worker, "stayed alive after its last word")

    def _cannot_end(self, record: TaskRecord, worker: Worker) -> None:
        """Give up what a process holds that nothing ends; its task goes on elsewhere."""
        reason = f"process {worker.pid} of task {record.id} cannot be ended"
        if self._is_there(worker):  # its launcher may hang, as it did
            self._kill(worker.pid)
        resource, holder = record.resource or "", (worker.uid, worker.name)
        if self._node.devices[resource].slots > 1:
            lost = self.health.slot_blocked(resource, holder, reason, self._now())
        else:
            lost = self.health.blocked(resource, holder, reason, self._now())
        # What is said of it from now on is of its next attempt.
        del self._ended[record.id]
        behind = [*self._lose_behind(worker, reason)]
        self._node.pool.send(record.id, m.Abort(record.id, record.epoch))
        self._node.pool.unbind(record.id)
        gone = e.WorkerLost(
            record.id, record.epoch, reason, elsewhere=True, cause="stuck"
        )
        self._node.happen(*behind, gone, *lost)

    def _lose_behind(self, worker: Worker, reason: str) -> Iterator[e.WorkerLost]:
        """Take from a worker what it has not begun."""
        tasks = self._node.scheduler.system.tasks
        for task in worker.behind[::-1]:
            record = tasks.get(TaskId(task))
            if record is not None:
                self._node.pool.send(task, m.Abort(task, record.epoch))
                lost = e.WorkerLost(record.id, record.epoch, reason, begun=False)
                yield lost
            self._node.pool.unbind(task)

    # ------------------------------------------------------------ the invariant

    def neglected(self, records: Iterable[TaskRecord]) -> Iterator[str]:
        """Tell of bound tasks that nobody looks after any more.

        Each has a worker, or waits for one in its owner's user, or is expected back
        after a restart, until its grace is over. What has a place has a deadline too.
        """
        pool = self._node.pool
        for record in records:
            task = record.id
            if not record.bound:
                continue
            if not (pool.worker_of(task) or pool.waits(task) or pool.is_expected(task)):
                yield f"task {task} is bound, and has no worker: {record.tell()}"
            elif (
                record.state is State.RUNNING
                and not record.unbegun
                and not self._deadlines.watches(task, record.epoch)
            ):
                yield f"task {task} runs without a deadline: {record.tell()}"

    def _look_for_unserved(self) -> None:
        """Free the places of tasks that nobody looks after: that is a bug of ours."""
        states = self._node.scheduler.system.states.values()
        for state in states:
            for record in list(state.running.values()):
                for complaint in self.neglected([record]):
                    log.error("a bug of hetd, mended: %s", complaint)
                    self._node.pool.release(record.id)
                    self._node.happen(
                        self._unserved(record, "it had no worker", last=True)
                    )

    # ------------------------------------------------------------ who holds what

    def _assigned(self, task: int, worker: Worker) -> None:
        """Write down which process holds a task, for a daemon that comes after."""
        entry = self._node.journal.live.get(task)
        if entry is None:
            return
        entry.holder = Holder(
            worker.name, worker.pid, worker.started, self._boot, own=worker.own
        )
        self._node.journal.save(entry)
        record = self._node.scheduler.system.tasks.get(TaskId(task))
        if record is None or record.state is not State.RUNNING or record.unbegun:
            return
        # one that comes over another connection has no more time for that
        if not self._deadlines.is_served(record.id, record.epoch):
            self.runs(record.id, record.epoch)


WORKER_S = 90.0
"""For a worker to come to a task that has a slot: launchers fork in milliseconds."""
USUAL_STRIPS = 20
"""A strip may take so many times as long as the task's strips usually take."""
COPY_BYTES_PER_S = 50e6
"""At least as fast is state copied, or written to a disk, at a checkpoint."""
SETTLED = 2
"""Reports, 0.1 s apart, after which strips alone are waited for: what is compiled at
the first strip has been by then."""


@dataclass(slots=True)
class WatchedTask:
    """A running task, as the deadlines knows it.

    Attributes:
        epoch: the binding that it runs under.
        copying: time that a checkpoint may take besides, for its state.
        least: time that any strip may take.
        heard: when it was told to run, or last reported strips.
        deadline: when it must have reached a checkpoint.
        served: whether it has a worker; if not, `deadline` is for one to come.
        reports: how often it reported strips.
        usual: the longest mean time of a strip that it reported.
        ordered: it was asked to yield, and reports put nothing off any more.

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
        strip_s: how long any strip may take, seconds.
        setup_s: how long loading, compiling and the first strip may take together, and
            how long saving may.
        memory: bytes of the machine; no task has more state to copy, whatever it says.

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
        """Watch a task that a worker was told to run.

        Args:
            task: which one.
            epoch: the binding that it runs under.
            state_bytes: what it says that it has to copy.
            now: the present instant.
            patient: whether any strip may take as long as setting up, and not less.

        """
        copied = min(max(state_bytes, 0), self._memory)
        copying = int(copied / COPY_BYTES_PER_S * SECOND)
        least = max(self._strip, self._setup) if patient else self._strip
        deadline = now + self._setup + copying
        self._watched[task] = WatchedTask(epoch, copying, least, now, deadline)

    def allow(self, task: TaskId, seconds: float) -> None:
        """Let a task take so much longer to reach a checkpoint: it has to save its state."""
        watched = self._watched[task]
        watched.copying += int(seconds * SECOND)
        watched.deadline += int(seconds * SECOND)

    def await_worker(self, task: TaskId, epoch: int, now: Nanoseconds) -> None:
        """Watch a task that was told to run, and for which a worker has still to come."""
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
        """Whether a task is watched that has its worker."""
        known = self._watched.get(task)
        return known is not None and known.epoch == epoch and known.served

    def progressed(
        self, task: TaskId, mean_strip_s: float, *, complete: bool, now: Nanoseconds
    ) -> None:
        """Take note of a report of strips; `complete`: the last one is done."""
        watched = self._watched.get(task)
        if watched is None:
            return
        watched.reports += 1
        # no strip took longer than the time that has gone by, whatever is reported
        mean = min(int(mean_strip_s * SECOND), now - watched.heard)
        watched.usual = max(watched.usual, mean)
        watched.heard = now
        if complete or watched.reports < SETTLED:
            watched.deadline = now + self._setup + watched.copying
        elif not watched.ordered:
            watched.deadline = now + self._limit(watched)

    def ordered(self, task: TaskId, now: Nanoseconds) -> None:
        """Take note that a task was asked to yield: it may finish its strip."""
        watched = self._watched.get(task)
        if watched is not None and not watched.ordered:
            watched.ordered = True
            if watched.reports >= SETTLED:
                watched.deadline = now + self._limit(watched)

    def postpone(self, task: TaskId, until: Nanoseconds) -> None:
        """Look at a task again at `until`."""
        watched = self._watched.get(task)
        if watched is not None:
            watched.deadline = until

    def forget(self, task: TaskId) -> None:
        """Stop watching a task."""
        self._watched.pop(task, None)

    def overdue(self, now: Nanoseconds) -> list[tuple[TaskId, int, str]]:
        """List (task, epoch, what is wrong) of those whose deadline is over."""
        late = [
            (task, watched)
            for task, watched in self._watched.items()
            if watched.deadline <= now
        ]
        return [(task, each.epoch, self._complaint(each)) for task, each in late]

    def tasks(self) -> list[TaskId]:
        """List the tasks that are watched."""
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
