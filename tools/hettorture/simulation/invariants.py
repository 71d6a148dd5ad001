"""What must be true after every turn of the daemon; an untruth is a `Violation`.

Here the daemon's parts are compared with each other and with the simulated workers,
who know what they really do. What clients saw is judged at the end, by `history`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.core.tasks import State
from hettorture.simulation.world import SECOND
from libtask.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetd.core.tasks import TaskRecord
    from hetd.node import Node
    from hettorture.simulation.users import Promises
    from hettorture.simulation.workers import SimulatedWorker

STRAY = 10 * SECOND
"""How long a worker may go on with a task that is no longer its own, once it is in
touch with a daemon: an order takes effect at a checkpoint."""


class Violation(Exception):  # noqa: N818  a finding, not an error of the program
    """Something that must not be has come to be."""


class Inspector:
    """Looks the daemon over after each turn.

    Args:
        promises: what the daemon has said that it did.

    """

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self._stray_since: dict[tuple[str, int, int], int] = {}

    def inspect(self, node: Node, workers: Iterable[SimulatedWorker], now: int) -> None:
        """Compare everything with everything.

        Raises:
            Violation: it does not fit; says what.

        """
        try:
            node.scheduler.check()
        except BugError as error:
            raise Violation(f"the scheduler's state: {error}") from error
        for complaint in self._complaints(node, list(workers), now):
            raise Violation(complaint)

    def _complaints(
        self, node: Node, workers: list[SimulatedWorker], now: int
    ) -> Iterator[str]:
        yield from _journal_and_scheduler(node)
        yield from _pool_and_scheduler(node)
        yield from self._promised(node)
        yield from self._computing(node, workers, now)

    # ------------------------------------------------------------ promises

    def _promised(self, node: Node) -> Iterator[str]:
        tasks = {
            int(task): record for task, record in node.scheduler.system.tasks.items()
        }
        for task, held in self._promises.holds.granted().items():
            record = tasks.get(task)
            if held and record is not None and not _is_held(record):
                yield f"task {task} was held, and is {record.state}: {record.tell()}"
        for task in self._promises.cancels & tasks.keys():
            if tasks[task].cancelling is None:
                yield f"task {task} was cancelled and is {tasks[task].state}"
        for name, drained in self._promises.drains.granted().items():
            if node.scheduler.system.states[name].draining != drained:
                yield f"{name} was {'drained' if drained else 'given back'}, and is not"

    # ------------------------------------------------------------ workers

    def _computing(
        self, node: Node, workers: list[SimulatedWorker], now: int
    ) -> Iterator[str]:
        found = {w.process.name: w.told for w in workers if w.told and w.process.alive}
        known = {w.process.name: w for w in workers}
        strays: dict[tuple[str, int, int], int] = {}
        for name, (task, epoch, resource) in found.items():
            record = node.scheduler.system.tasks.get(task)  # type: ignore[call-overload]  # ids are plain numbers here
            if record is None or record.epoch != epoch or not record.bound:
                worker = known[name]
                since = self._stray_since.get((name, task, epoch), now)
                in_touch = worker.welcomed and not worker.process.stopped
                strays[name, task, epoch] = since if in_touch else now
            elif record.state is State.RUNNING and record.resource != resource:
                yield f"task {task} computes on {resource}, not on {record.resource}"
        self._stray_since = strays
        for (name, task, epoch), since in strays.items():
            if now - since > STRAY:
                yield f"{name} goes on with task {task}, epoch {epoch}, not its own"


def _is_held(record: TaskRecord) -> bool:
    if record.state is State.RUNNING:
        leaves = record.preempting or record.cancelling is not None
        return leaves and (record.holding or record.cancelling is not None)
    return record.state is State.HELD


def _journal_and_scheduler(node: Node) -> Iterator[str]:
    tasks, live = node.scheduler.system.tasks, node.journal.live
    if tasks.keys() != live.keys():
        odd = sorted(set(tasks) ^ set(live))
        yield f"tasks {odd} are known to one of scheduler and journal only"
        return
    for task, record in tasks.items():
        entry = live[task]
        if entry.state != record.state.value:
            yield f"task {task} is {record.state}, its page says {entry.state}"
        if record.bound and entry.epoch != record.epoch:
            yield f"task {task} has epoch {record.epoch}, its page says {entry.epoch}"


def _pool_and_scheduler(node: Node) -> Iterator[str]:
    pool, tasks = node.pool, node.scheduler.system.tasks
    held: dict[int, str] = {}
    for uid in sorted({entry.owner for entry in node.journal.live.values()}):
        for worker in pool.workers_of(uid):
            if worker.task is None:
                continue
            if worker.task in held:
                yield f"task {worker.task} has two workers"
            held[worker.task] = worker.name
            entry = node.journal.live.get(worker.task)
            if entry is None or not tasks[entry.id].bound:  # type: ignore[index]  # ids are plain numbers here
                yield f"worker {worker.name} keeps task {worker.task}, which is not bound"
            elif entry.owner != uid:
                yield f"task {worker.task} of {entry.owner} is with a worker of {uid}"
