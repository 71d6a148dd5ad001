"""Invariants checked after every turn of the daemon; a broken one raises `Violation`.

Here the daemon's parts are compared with each other and with the simulated workers,
who know what they really do. What clients saw is checked at the end, by `history`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hetd.requests.policies import policy_name
from hetd.tasks.journal import EPOCHS
from hetsched.ids import TaskId
from hetsched.tasks import State
from libtask.errors import BugError
from torture.simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetd.runtime import Runtime
    from hetd.workers.binding import Binding
    from hetd.workers.binding import Worker as PoolWorker
    from hetsched.tasks import TaskRecord
    from torture.simulation.users import Promises
    from torture.simulation.workers import SimulatedWorker

Computing: TypeAlias = "list[tuple[SimulatedWorker, tuple[int, int, str]]]"
"""Workers that compute, and what: task, epoch, resource."""

LASTING = 10 * SECOND
"""Time until an order must have taken effect: it does at a checkpoint."""


class Violation(Exception):  # noqa: N818  a finding, not an error of the program
    """Something that must not be has come to be."""


class Inspector:
    """Looks the daemon over after each turn.

    Args:
        promises: what the daemon has said that it did.

    """

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self._since: dict[str, int] = {}

    def inspect(
        self, runtime: Runtime, workers: Iterable[SimulatedWorker], now: int
    ) -> None:
        """Compare everything with everything.

        Raises:
            Violation: it does not fit; says what.

        """
        try:
            runtime.scheduler.check()
            runtime.pool.check()
        except BugError as error:
            raise Violation(f"the daemon's state: {error}") from error
        told = ((worker, worker.told) for worker in workers)
        computing = [(worker, each) for worker, each in told if each is not None]
        pool = _pool_workers(runtime)
        for complaint in self._at_once(runtime, computing, pool):
            raise Violation(complaint)
        going_on = [*_stray(runtime, computing), *_unreleased(runtime, computing)]
        left = [*_kept(runtime, pool), *_left_behind(runtime)]
        self._demand_short([*going_on, *left], now)

    def _at_once(
        self, runtime: Runtime, computing: Computing, pool: list[PoolWorker]
    ) -> Iterator[str]:
        """Report states that are never allowed."""
        yield from _journal_and_scheduler(runtime)
        yield from runtime.watchdog.neglected(runtime.scheduler.system.tasks.values())
        yield from _shared(runtime, pool)
        yield from _misplaced(runtime, computing)
        yield from _doubled(runtime, computing)
        yield from self._held(runtime)
        yield from self._cancelled(runtime)
        yield from self._drained(runtime)
        yield from self._chosen(runtime)

    def _demand_short(self, passing: list[str], now: int) -> None:
        """Report states that are allowed only for a while, once they last."""
        self._since = {text: self._since.get(text, now) for text in passing}
        for text, since in self._since.items():
            if now - since > LASTING:
                raise Violation(text)

    # ------------------------------------------------------------ promises

    def _held(self, runtime: Runtime) -> Iterator[str]:
        tasks = runtime.scheduler.system.tasks
        for task, held in self._promises.holds.granted().items():
            record = tasks.get(TaskId(task))
            if record is None:
                continue
            if held and not _is_held(record):
                yield f"task {task} was held, and is {record.state}: {record.describe_story()}"
            if not held and record.state is State.HELD:
                yield f"task {task} was released, and is held: {record.describe_story()}"

    def _cancelled(self, runtime: Runtime) -> Iterator[str]:
        tasks = runtime.scheduler.system.tasks
        for task in self._promises.cancels:
            record = tasks.get(TaskId(task))
            if record is not None and record.cancelling is None:
                yield f"task {task} was cancelled, and is {record.state}"

    def _drained(self, runtime: Runtime) -> Iterator[str]:
        for name, drained in self._promises.drains.granted().items():
            if runtime.scheduler.system.states[name].draining != drained:
                yield f"{name} was {'drained' if drained else 'given back'}, and is not"

    def _chosen(self, runtime: Runtime) -> Iterator[str]:
        for wanted in self._promises.policy.granted().values():
            if policy_name(runtime.scheduler) != wanted:
                yield f"policy {wanted} was set, and {policy_name(runtime.scheduler)} is in force"


def _is_held(record: TaskRecord) -> bool:
    if record.cancelling is not None:
        return True  # it ends, whatever else was asked
    if record.state is State.RUNNING:
        return record.preempting and record.holding
    return record.state is State.HELD


# ---------------------------------------------------------------- the daemon's parts


def _journal_and_scheduler(runtime: Runtime) -> Iterator[str]:
    tasks, live = runtime.scheduler.system.tasks, runtime.journal.live
    if tasks.keys() != live.keys():
        odd = sorted(set(tasks) ^ set(live))
        yield f"tasks {odd} are known to one of scheduler and journal only"
        return
    for task, record in tasks.items():
        if live[task].runtime is not record:
            yield f"the page of task {task} holds another record than the scheduler"


def _shared(runtime: Runtime, pool: list[PoolWorker]) -> Iterator[str]:
    """Report tasks with two workers, or with another user's worker."""
    held: set[int] = set()
    for worker, binding in _bindings(pool):
        task = binding.task
        if task in held:
            yield f"task {task} has two workers"
        held.add(task)
        entry = runtime.journal.live.get(task)
        if entry is not None and entry.owner != worker.uid:
            yield f"task {entry.id} of {entry.owner} is with a worker of {worker.uid}"


def _kept(runtime: Runtime, pool: list[PoolWorker]) -> Iterator[str]:
    """Report workers that are bound to a task which is no longer theirs."""
    for worker, binding in _bindings(pool):
        record = runtime.scheduler.system.tasks.get(binding.task)
        if record is None or not record.bound or record.epoch != binding.epoch:
            yield f"worker {worker.name} is booked for task {binding.task}, not its own"


def _left_behind(runtime: Runtime) -> Iterator[str]:
    """Report tasks whose caller's run is over without a result, and that are not cancelled."""
    live = runtime.journal.live
    for page in live.values():
        run, record = page.spec.caller, runtime.scheduler.system.tasks[TaskId(page.id)]
        if run is None or record.cancelling is not None:
            continue
        caller = live.get(run.task) or runtime.journal.find(run.task)
        if caller is None or caller.state is State.COMPLETED:
            continue
        if not (caller.runtime.bound and caller.runtime.epoch == run.epoch):
            yield f"task {page.id} goes on, though the run that called it is over"


def _bindings(pool: list[PoolWorker]) -> Iterator[tuple[PoolWorker, Binding]]:
    return ((worker, binding) for worker in pool for binding in worker.bindings)


def _pool_workers(runtime: Runtime) -> list[PoolWorker]:
    """List the workers of users who have tasks, as the daemon knows them."""
    owners = sorted({entry.owner for entry in runtime.journal.live.values()})
    return [worker for uid in owners for worker in runtime.pool.workers_of(uid)]


# ---------------------------------------------------------------- what workers do


def _stray(runtime: Runtime, computing: Computing) -> Iterator[str]:
    """Report connected workers that compute a task which is no longer theirs."""
    for worker, (task, epoch, _) in computing:
        if worker.process.stopped or not worker.welcomed:
            continue
        if not _is_theirs(runtime, task, epoch):
            name = worker.process.name
            yield f"{name} goes on with task {task}, epoch {epoch}, not its own"


def _unreleased(runtime: Runtime, computing: Computing) -> Iterator[str]:
    """Report held tasks that compute: a daemon crashed before it recorded their release."""
    live = runtime.scheduler.system.tasks
    for _, (task, epoch, _) in computing:
        theirs = _is_theirs(runtime, task, epoch)
        if theirs and live[TaskId(task)].state is State.HELD:
            yield f"task {task} computes, and is held"


def _misplaced(runtime: Runtime, computing: Computing) -> Iterator[str]:
    """Report tasks that compute on another resource than the scheduler records."""
    for _, (task, epoch, resource) in computing:
        if not _is_theirs(runtime, task, epoch):
            continue
        record = runtime.scheduler.system.tasks[TaskId(task)]
        known = runtime.pool.worker_of(task)
        if known is None or not known.route or record.cancelling is not None:
            continue  # it has not registered with this daemon yet; or it is to end
        if record.state is State.HELD:
            continue  # see `_unreleased`
        if record.state is not State.RUNNING or record.resource != resource:
            believed = f"{record.state} {record.resource}"
            yield f"task {task} computes on {resource}, and is {believed}"


def _doubled(runtime: Runtime, computing: Computing) -> Iterator[str]:
    """Report two workers that compute one task.

    Orders leave before the commit: what a daemon ordered just before it crashed, the
    next one cannot know until the worker registers. Only then may there be two: of the
    latest daemon that ordered anything, even if it crashed as well, each task has one.
    """
    if not computing:
        return
    records = runtime.scheduler.system.tasks.values()
    epochs = [record.epoch for record in records]
    latest = max(*epochs, *(epoch for _, (_, epoch, _) in computing), 0)
    found: dict[int, str] = {}
    for worker, (task, epoch, _) in computing:
        if epoch // EPOCHS < latest // EPOCHS:
            continue
        if worker.process.stuck:  # it computes nothing, and ends when it is loose
            continue
        name = worker.process.name
        if task in found:
            yield f"task {task} is computed by {found[task]} and by {name}"
        found[task] = name


def _is_theirs(runtime: Runtime, task: int, epoch: int) -> bool:
    record = runtime.scheduler.system.tasks.get(TaskId(task))
    return record is not None and record.bound and record.epoch == epoch
