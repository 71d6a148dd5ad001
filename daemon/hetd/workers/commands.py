"""Commands: the scheduler's actions as messages to workers.

The node calls one method per action. Commands that a worker may have missed, as its
connection broke, are sent again. An event that follows at once is returned; the node
passes it to the scheduler.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from hetd.tasks.worker_key import key_of
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.tasks import State
from libtask import messages as m
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.workers.binding import Binding
    from hetd.workers.pool import WorkerPool
    from hetd.workers.watchdog import Watchdog
    from hetsched import actions as a
    from hetsched.system import System
    from hetsched.tasks import TaskRecord


class Commands:
    """Sends commands to workers.

    Args:
        system: the scheduler's view; each task's record there determines its commands.
        watchdog: sets the deadlines of commands.

    """

    def __init__(
        self,
        devices: Mapping[str, m.DeviceInfo],
        system: System,
        journal: Journal,
        pool: WorkerPool,
        watchdog: Watchdog,
    ) -> None:
        self._devices = devices
        self._system = system
        self._journal = journal
        self._pool = pool
        self._watchdog = watchdog

    # ------------------------------------------------------------ actions

    def stage(self, action: a.Stage) -> None:
        page = self._journal.live[action.task]
        stage = self._load(page, action.epoch)
        self._bind(page, action.epoch, self._pool.binding(action.task))
        self._pool.send(action.task, stage)

    def run(self, action: a.Run) -> None:
        page = self._journal.live[action.task]
        device = self._devices[action.resource].spec
        attempt = len(page.segments) + 1  # the one that begins now is not recorded yet
        if page.spec.app == m.COMMAND:
            page.slot = self._free_slot(page, action.resource)
        follows = action.after is not None
        binding = self._pool.binding(action.task)
        if binding is not None and binding.epoch == action.epoch:  # it is staged
            binding.told_to_run = True
            run = self._run_again(page, action.epoch, device, attempt)
        else:
            run = self._load_and_run(
                page, action.epoch, device, attempt, follows=follows
            )
            if action.after is None:
                self._bind(page, action.epoch, binding)
            else:
                page.holder = None
                self._pool.follow(page.id, page.owner, action.epoch, action.after)
        if not follows:
            self._watchdog.runs(action.task)
        self._occupy(action.task, device)
        self._pool.send(action.task, run)
        reach("run.sent")

    def preempt(self, action: a.Preempt) -> None:
        preempt = m.Preempt(action.task, action.epoch, action.requeue)
        self._pool.send(action.task, preempt)
        self._watchdog.await_yield(action.task)

    def split(self, action: a.Split) -> None:
        self._pool.send(action.task, m.Split(action.task, action.epoch, action.limit))

    def suspend(self, action: a.Suspend) -> None:
        self.send_signal(
            action.task, action.epoch, signal.SIGSTOP if action.on else signal.SIGCONT
        )

    def send_signal(self, task: TaskId, epoch: int, number: int) -> None:
        """Send a signal to the program of a command task."""
        self._pool.send(task, m.Signal(task, epoch, number))

    def pass_signal(self, task: TaskId, number: int) -> None:
        """Pass a signal from the owner to the program of a running command task."""
        record = self._system.tasks.get(task)
        if record is not None and record.state is State.RUNNING:
            self.send_signal(task, record.epoch, number)

    def abort(self, action: a.Abort) -> e.TaskAborted | None:
        """Abort a task; return the event at once if no worker has begun it."""
        record = self._system.tasks.get(TaskId(action.task))
        # it may have another worker by now: it was placed again at the same instant
        still_bound = (
            record is not None and record.bound and record.epoch == action.epoch
        )
        started = self._pool.worker_of(action.task) is not None
        self._pool.send(action.task, m.Abort(action.task, action.epoch))
        if not still_bound:
            self._pool.unbind(action.task)
        elif not started:
            self._pool.release(action.task)
            return e.TaskAborted(action.task, action.epoch)
        else:
            self._watchdog.await_abort(action.task, action.epoch)
        return None

    def want_snapshot(self, task: TaskId) -> None:
        """Ask the worker of a task, if any, to write a snapshot."""
        record = self._system.tasks.get(task)
        if record is not None and record.bound:
            self._pool.send(task, m.TakeSnapshot(task, record.epoch))

    # ------------------------------------------------------------ repetition

    def to_another(self, task: TaskId) -> e.TaskAborted | None:
        """Send the command that the last worker did not start to another worker.

        The task loses no attempt by that.
        """
        record = self._system.tasks.get(task)
        if record is None or not record.bound:
            return None
        if record.cancelling is not None:
            return e.TaskAborted(task, record.epoch)
        page = self._journal.live[task]
        self._pool.bind(task, page.owner, record.epoch, key_of(page.spec))
        if record.state is State.RUNNING and record.resource is not None:
            device = self._devices[record.resource].spec
            self._watchdog.runs(task)
            self._occupy(task, device)
            run = self._load_and_run(page, record.epoch, device, len(page.segments))
            self._pool.send(task, run)
            self.repeat_stop(record)
        else:
            self._pool.send(task, self._load(page, record.epoch))
        return None

    def repeat_stop(self, record: TaskRecord) -> None:
        """Send the command to stop again: the last connection may have lost it."""
        if record.cancelling is not None:
            self._pool.send(record.id, m.Abort(record.id, record.epoch))
        elif record.preempting:
            preempt = m.Preempt(record.id, record.epoch, record.requeuing)
            self._pool.send(record.id, preempt)
        elif record.suspended:
            self.send_signal(record.id, record.epoch, signal.SIGSTOP)

    def repeat_run(self, record: TaskRecord) -> None:
        """Send `Run` again to a worker that still waits for it."""
        if record.state is State.RUNNING and record.resource is not None:
            device = self._devices[record.resource].spec
            page = self._journal.live[record.id]
            attempt = len(page.segments)
            run = self._run_again(page, record.epoch, device, attempt)
            self._pool.send(record.id, run)

    def _run_again(
        self, page: TaskPage, epoch: int, device: m.DeviceSpec, attempt: int
    ) -> m.Run:
        """Return the command to run a task that its worker has loaded."""
        return m.Run(
            page.id,
            epoch,
            device,
            attempt=attempt,
            slot=page.slot,
            limit=page.limit,
            pieces=self._pieces(page) if page.pieces else [],
        )

    def _pieces(self, page: TaskPage) -> list[m.PartResult]:
        """List what the parts of a task have done; empty unless all have completed."""
        record = self._system.tasks.get(TaskId(page.id))
        return [] if record is None or record.parts_left else list(page.pieces)

    def _free_slot(self, page: TaskPage, resource: str) -> int:
        """Return a free slot of a resource for a command task.

        The program may be bound to the processors of that slot.
        """
        running = self._system.states[resource].running
        others = (self._journal.live[task] for task in running if task != page.id)
        taken = {other.slot for other in others}
        return next(number for number in count() if number not in taken)

    def _bind(self, page: TaskPage, epoch: int, known: Binding | None) -> None:
        """Give a task a new binding; forget the holder of the one that it has, if any."""
        if known is None or known.worker is None:
            page.holder = None
        inputs = [each.task for each in page.spec.inputs]
        self._pool.bind(page.id, page.owner, epoch, key_of(page.spec), inputs)

    def _occupy(self, task: TaskId, device: m.DeviceSpec) -> None:
        """Free a device for the process of a task; the memory of others is the host's."""
        if device.driver == "opencl":
            self._pool.occupy(task, device.name)

    def _load_and_run(
        self,
        page: TaskPage,
        epoch: int,
        device: m.DeviceSpec,
        attempt: int,
        *,
        follows: bool = False,
    ) -> m.Run:
        """Return the command to load and run a task; it resumes if there may be a snapshot."""
        return m.Run(
            page.id,
            epoch,
            device,
            page.spec,
            snapshots=page.snapshots_name,
            resume=_may_resume(page),
            attempt=attempt,
            slot=page.slot,
            follows=follows,
            inputs=self._journal.inputs.of(page.spec) if page.spec.inputs else [],
            limit=page.limit,
            pieces=self._pieces(page) if page.pieces else [],
        )

    def _load(self, page: TaskPage, epoch: int) -> m.Stage:
        """Return the command to load a task ahead; it resumes if there may be a snapshot."""
        return m.Stage(
            page.id,
            epoch,
            page.spec,
            snapshots=page.snapshots_name,
            resume=_may_resume(page),
            inputs=self._journal.inputs.of(page.spec) if page.spec.inputs else [],
        )


@dataclass(frozen=True, slots=True)
class NodeWorkers:
    """The workers of the node: which task each holds, their commands and their deadlines."""

    pool: WorkerPool
    watchdog: Watchdog
    commands: Commands


def _may_resume(page: TaskPage) -> bool:
    """Whether there may be a snapshot from which a task continues."""
    spec = page.spec
    return page.started is not None or spec.resume or bool(spec.resumes)
