"""The client of a pool: `Pool`, whose names and errors are those of `libtask.Client`.

A job goes to the broker, which places it, and then as an errand to its node. When the
scheduler is lost the client does both again, with the same ids: what runs already is found.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import threading
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from hetpool import messages as m
from hetpool.client.describing import Input, described, zipped
from hetpool.client.loop_thread import LoopThread
from hetpool.client.pool_task import PoolTask, as_completed
from hetpool.engine.client import DaskClientEngine
from hetpool.errors import PoolUnreachableError
from hetpool.files.node_files import Incoming, by_engine
from hetpool.inquiry import INQUIRE, Inquiry
from hetpool.jobs import CANCELLED, MAX_JOBS, InputFile, PoolNode, PoolPlan
from hetpool.messages import decode, encode
from hetpool.node.agent import machine_name, run_jobs
from hetpool.outcomes import JobOutcome
from hetpool.seam import EngineGoneError, Errand, ErrandCancelledError
from hetpool.setup.config import read_settings
from hetpool.setup.endpoint import probe
from libtask.errors import HetError, InputError
from libtask.user_folders import user_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from hetpool.client.executor import PoolExecutor
    from hetpool.inquiry import AnyQuestion
    from hetpool.jobs import JobStatus, PlanEntry, PoolJob
    from hetpool.seam import ClientEngine, StartedErrand
    from hetpool.setup.settings import EngineSettings

__all__ = ["Input", "Pool", "PoolTask", "as_completed"]

Kind = TypeVar("Kind")

GATHER_S = 0.01
"""Seconds for which submits of this client are gathered into one batch."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
"""Seconds until a lost scheduler is asked again."""
ANSWER_S = 30.0
"""Seconds to wait for a lost scheduler with a request whose caller waits."""
CLOSE_S = 10.0

_OPEN: weakref.WeakSet[Pool] = weakref.WeakSet()
"""The pools of this process that are not closed."""


class Pool:
    """A connection to a pool.

    Args:
        settings: how to reach it; None: `pool.toml` and `$HETPOOL_SCHEDULER`.
        timeout: seconds to wait for the scheduler.
        patience: seconds for a lost scheduler to return, while jobs are open.
        incoming: folder in which nodes of this machine look for input files.

    Raises:
        PoolUnreachableError: no scheduler answers.
        NotAllowedError: it refuses this machine's certificate.

    """

    def __init__(
        self,
        settings: EngineSettings | None = None,
        *,
        timeout: float = 10.0,
        patience: float = 300.0,
        incoming: Path | None = None,
    ) -> None:
        if settings is None:
            found = read_settings()
            probe(found.scheduler, found.tls, timeout)
            settings = found.engine()
        self._timeout = timeout
        self._patience = patience
        self._incoming = Incoming(incoming or default_incoming())
        self._files: dict[tuple[str, int, int], InputFile] = {}
        self._nodes: dict[str, PoolNode] = {}
        self._new: list[PoolTask] = []
        self._open: dict[str, PoolTask] = {}
        self._unsent: set[str] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._thread = LoopThread("hetpool")
        self._engine: ClientEngine = DaskClientEngine(settings, self._timeout)
        self._finalizer = weakref.finalize(self, _end, self._thread, self._engine)
        self._finalizer.atexit = False  # `_close_all` sends what was submitted first
        try:
            self._thread.wait(self._engine.open())
        except BaseException:
            self._finalizer()
            raise
        _OPEN.add(self)

    # ------------------------------------------------------------ submit

    def job(self, app: Any, *arguments: Any, **options: Any) -> PoolJob:
        """Describe a job for `batch` and `plan`, with the arguments of `submit`."""
        return described(app, arguments, options, self._bring)

    def submit(self, app: Any, *arguments: Any, **options: Any) -> PoolTask:
        """Submit a job: an application with parameters, or a call of a function.

        Args:
            app: a name, class or object of a task, or a function.
            arguments: as for `libtask.Client.submit`; an `Input` stands for a file.
            options: those of `libtask.Client.submit`; `nodes` that may run it; `seconds`,
                expected by resource or kind; `id`, 32 hexadecimal digits: a job that is
                submitted again with its id is the same job; `files`, sent along into the
                folder of a command. `export` is `none` by default: the environment is
                the node's. `cwd` is a folder of the node.

        Raises:
            InputError: a value is invalid.

        """
        task = PoolTask(self, self.job(app, *arguments, **options))
        self._thread.call(self._gather, [task])
        return task

    def map(
        self, app: Any, *iterables: Iterable[Any], **options: Any
    ) -> list[PoolTask]:
        """Submit a job for each group of arguments; they are planned as one batch.

        Raises:
            InputError: a value is invalid.

        """
        every = [self.job(app, *each, **options) for each in zipped(app, iterables)]
        tasks = [PoolTask(self, job) for job in every]
        self._thread.call(self._gather, tasks)
        return tasks

    def batch(
        self, jobs: Sequence[PoolJob], *, planner: str = ""
    ) -> tuple[PoolPlan, list[PoolTask]]:
        """Plan and submit jobs; return the plan and the tasks in the order of the jobs.

        Args:
            jobs: as `job` describes them.
            planner: empty: the pool's.

        """
        tasks = [PoolTask(self, job) for job in jobs]
        plan = self._thread.wait(self._carried(tasks, planner))
        return plan, tasks

    def plan(self, jobs: Sequence[PoolJob], *, planner: str = "") -> PoolPlan:
        """Plan jobs without submitting them."""
        wanted = m.PlaceJobs(_without_calls(jobs), planner, only_plan=True)
        return self._asked("place", wanted, PoolPlan)

    def executor(self) -> PoolExecutor:
        """Return a `concurrent.futures.Executor` whose calls run in the pool."""
        from hetpool.client.executor import PoolExecutor

        return PoolExecutor(self)

    # ------------------------------------------------------------ look and control

    def nodes(self) -> list[PoolNode]:
        """List the nodes, absent ones too."""
        return list(self._asked("nodes", m.ListNodes(), m.NodeList).nodes)

    def tasks(self, ids: Sequence[str] = (), *, ended: bool = False) -> list[JobStatus]:
        """List jobs as their nodes see them.

        Args:
            ids: of the jobs; none: all unfinished ones.
            ended: also the newest jobs that ended before any hetd had them.

        """
        found: list[JobStatus] = []
        for some in _parts(ids) or [()]:
            found += self._asked("jobs", m.ListJobs(some, ended), m.JobList).jobs
        return found

    def cancel(self, *ids: str, reason: str = "") -> list[str]:
        """Cancel jobs; return those that no node had begun, which ends them at once."""
        unbegun: list[str] = []
        for some in _parts(ids):
            wanted = m.CancelJobs(some, reason)
            names = self._asked("cancel", wanted, m.NameList).names
            self._thread.call(self._cancelled, names, reason or CANCELLED)
            unbegun += names
        return unbegun

    def move(self, job: str, node: str) -> None:
        """Move a job to another node, with its snapshot if it has begun.

        Raises:
            InputError: the node cannot take it, or the job cannot move.

        """
        self._asked("move", m.MoveJob(job, node), m.NameList)

    def drain(self, node: str) -> None:
        """Move all jobs away from a node and give it no others; does not wait."""
        self._asked("drain", m.DrainNode(node), m.NameList)

    def resume(self, node: str) -> None:
        """Give a drained node jobs again."""
        self._asked("drain", m.DrainNode(node, on=False), m.NameList)

    def inquire(self, node: str, question: AnyQuestion, kind: type[Kind]) -> Kind:
        """Ask a node about itself or its tasks (`hetpool.inquiry`).

        Raises:
            NotFoundError: the node is not connected, or has no such task.
            HetError: it has no answer.

        """
        return self._asked(INQUIRE, Inquiry(node, question), kind)

    def close(self) -> None:
        """End the connection; jobs go on.

        The end of the program does so with a pool that it leaves open, and reports an error
        on standard error.

        Raises:
            PoolUnreachableError: jobs could not be sent within 10 s, as the scheduler was
                lost: they are not submitted.

        """
        if not self._finalizer.alive:
            return
        unsent = self._thread.wait(self._closed())
        self._finalizer()
        if unsent:
            raise PoolUnreachableError(
                "the scheduler does not answer; jobs that were not submitted: "
                f"{len(unsent)}, the first of them {unsent[0][:12]}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _asked(self, name: str, message: Any, kind: type[Kind]) -> Kind:
        patience = min(ANSWER_S, self._patience)
        return self._thread.wait(self._patiently(name, message, kind, patience))

    # ------------------------------------------------------------ input files

    def _bring(self, path: Path) -> InputFile:
        """Leave a file for the nodes of this machine, once while it does not change."""
        try:
            status = path.stat()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        seen = (str(path), status.st_mtime_ns, status.st_size)
        if seen not in self._files:
            content, size = self._incoming.leave(path)
            wanted = m.ReceiveFile(content, machine_name())
            sources = self._asked("receive", wanted, m.NameList).names
            suffix = path.suffix if path.suffix[1:].isalnum() else ""
            self._files[seen] = InputFile(content, size, sources, suffix)
        return self._files[seen]

    # ------------------------------------------------------------ in the loop

    def _gather(self, tasks: list[PoolTask]) -> None:
        if not self._new:
            self._thread.loop.call_later(GATHER_S, self._send)
        self._new += tasks
        self._open |= {task.id: task for task in tasks}

    def _send(self) -> None:
        tasks = [task for task in self._new if not task.done()]
        self._leave(task for task in self._new if task.done())  # cancelled at once
        self._new = []
        if tasks:
            self._spawn(self._carried_or_failed(tasks))

    async def _carried_or_failed(self, tasks: list[PoolTask]) -> None:
        try:
            await self._carried(tasks, "")
        except Exception as error:  # noqa: BLE001  those who wait get it
            for task in tasks:
                _fail(task, error)

    async def _carried(self, tasks: Sequence[PoolTask], planner: str) -> PoolPlan:
        """Place tasks and start them, also those that the pool keeps until a node can run them.

        Returns when all have been started: a scheduler that was lost on the way is asked
        again, and after its return it may wait for the nodes that may have some of them.
        """
        self._open |= {task.id: task for task in tasks}
        self._unsent |= {task.id for task in tasks if not task.started}
        try:
            return await self._sent(tasks, planner)
        except Exception:
            self._leave(tasks)
            raise

    async def _sent(self, tasks: Sequence[PoolTask], planner: str) -> PoolPlan:
        plan = await self._placed(tasks, planner)
        left = await self._started(tasks, plan)
        pause = FIRST_PAUSE_S
        while left:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
            plan = await self._placed(left, planner)
            left = await self._started(left, plan)
        return plan

    async def _placed(self, tasks: Sequence[PoolTask], planner: str) -> PoolPlan:
        started = tuple(task.id for task in tasks if task.started)
        jobs = _without_calls([task.job for task in tasks])
        wanted = m.PlaceJobs(jobs, planner, started=started)
        return await self._patiently("place", wanted, PoolPlan)

    async def _started(
        self, tasks: Sequence[PoolTask], plan: PoolPlan
    ) -> list[PoolTask]:
        """Start the errands of a plan; return the tasks that could not be started.

        Those are the ones that the plan leaves out, as a node may have them, or all if the
        scheduler was lost after it had made the plan.
        """
        tasks = await self._wanted(tasks)
        by_id = {task.id: task for task in tasks}
        errands: dict[str, list[PlanEntry]] = {}
        for entry in plan.entries:
            if entry.job in by_id:
                errands.setdefault(entry.errand, []).append(entry)
        waiting = [by_id[job] for job in plan.waiting if job in by_id]
        await self._know_nodes(plan, tasks)
        groups = [[by_id[entry.job] for entry in some] for some in errands.values()]
        made = [
            self._errand(key, some[0].node, some[0].order, group)
            for (key, some), group in zip(errands.items(), groups, strict=True)
        ]
        made += [
            self._errand(task.id, "", plan.waiting[task.id], [task]) for task in waiting
        ]
        groups += [[task] for task in waiting]
        try:
            started = await self._engine.start(made)
        except PoolUnreachableError:
            return list(tasks)
        for one, group in zip(started, groups, strict=True):
            self._spawn(self._followed(one, group))
        there = {entry.job for entry in plan.entries} | plan.waiting.keys()
        self._unsent -= there
        return [task for task in tasks if task.id not in there]

    async def _wanted(self, tasks: Sequence[PoolTask]) -> list[PoolTask]:
        """Tell the broker which tasks were cancelled before it had them; return the others."""
        gone = [task for task in tasks if task.done()]
        if gone:
            self._leave(gone)
            ids = tuple(task.id for task in gone if _was_cancelled(task))
            await self._patiently("cancel", m.CancelJobs(ids), m.NameList)
        return [task for task in tasks if not task.done()]

    def _errand(self, key: str, node: str, order: int, tasks: list[PoolTask]) -> Errand:
        """Describe an errand; without a node, the broker chooses it later."""
        for task in tasks:
            task.placed_on = node
            task.started = True
        jobs = tuple(task.job for task in tasks)
        files = by_engine([file for job in jobs for file in job.inputs])
        return Errand(
            key=key,
            function=run_jobs,
            argument=encode(jobs),
            node=self._nodes[node].address if node else "",
            order=order,
            inputs=tuple(replace(each, sources=self._places(each)) for each in files),
        )

    def _places(self, file: InputFile) -> tuple[str, ...]:
        """Return the addresses of the nodes that have a file."""
        return tuple(
            self._nodes[name].address for name in file.sources if name in self._nodes
        )

    async def _know_nodes(self, plan: PoolPlan, tasks: Sequence[PoolTask]) -> None:
        """Learn the addresses of the nodes of a plan, and of those that have input files.

        A node keeps its address for ever.
        """
        names = {entry.node for entry in plan.entries}
        names |= {
            name for task in tasks for file in task.job.inputs for name in file.sources
        }
        if not names <= self._nodes.keys():
            found = await self._patiently("nodes", m.ListNodes(), m.NodeList)
            self._nodes = {node.name: node for node in found.nodes}

    async def _followed(self, errand: StartedErrand, tasks: list[PoolTask]) -> None:
        """Wait for an errand's end and hand out the outcomes of its jobs."""
        try:
            outcomes = await _outcomes(errand, len(tasks))
        except EngineGoneError:
            errand.drop()
            await self._carried_or_failed(tasks)
            return
        except Exception as error:  # noqa: BLE001  those who wait get it
            for task in tasks:
                _fail(task, error)
        else:
            for task, outcome in zip(tasks, outcomes, strict=True):
                _finish(task, outcome)
        self._leave(tasks)
        errand.drop()

    def _leave(self, tasks: Iterable[PoolTask]) -> None:
        """Keep tasks in mind no longer: they have ended."""
        for task in tasks:
            self._open.pop(task.id, None)
            self._unsent.discard(task.id)

    def _cancelled(self, ids: Sequence[str], reason: str) -> None:
        for job in ids:
            task = self._open.get(job)
            if task is not None:
                _finish(task, JobOutcome("cancelled", task.placed_on, text=reason))

    async def _ask(self, name: str, message: Any, kind: type[Kind]) -> Kind:
        return decode(kind, await self._engine.ask(name, encode(message)))

    async def _patiently(
        self, name: str, message: Any, kind: type[Kind], patience: float | None = None
    ) -> Kind:
        """Ask the broker; wait for a scheduler that was lost."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._patience if patience is None else patience)
        pause = FIRST_PAUSE_S
        while True:
            try:
                return await self._ask(name, message, kind)
            except PoolUnreachableError:
                if loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _closed(self) -> list[str]:
        """Send what is left and end the connection; return the jobs that were not sent."""
        self._send()
        starting = [task for task in self._carrying if task.get_name() == "start"]
        if starting:
            await asyncio.wait(starting, timeout=CLOSE_S)
        for task in list(self._carrying):
            task.cancel()  # else it would take the end of the connection for a lost scheduler
        await self._engine.close()
        unsent = list(self._unsent)
        for left in list(self._open.values()):
            _fail(left, PoolUnreachableError("the connection to the pool was closed"))
        return unsent

    def _spawn(self, work: Any) -> None:
        name = "start" if work.__name__ == "_carried_or_failed" else "follow"
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)


def default_incoming() -> Path:
    """Return the folder in which clients leave input files for nodes of their machine."""
    return user_folder("data", "hetpool") / "incoming"


def _parts(ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Divide ids into parts for one request each."""
    return [tuple(ids[at : at + MAX_JOBS]) for at in range(0, len(ids), MAX_JOBS)]


def _without_calls(jobs: Iterable[PoolJob]) -> tuple[PoolJob, ...]:
    """Leave out what only the nodes of jobs need; how large that is stays."""
    return tuple(_without_call(job) for job in jobs)


def _without_call(job: PoolJob) -> PoolJob:
    rest = {name: value for name, value in job.options.items() if name != "env"}
    short = replace(job, call=job.call[:1], options=rest)
    if short == job:
        return job
    return replace(short, left_out=len(encode(job)) - len(encode(short)))


async def _outcomes(errand: StartedErrand, count: int) -> tuple[JobOutcome, ...]:
    """Wait for the end of an errand; return the outcomes of its jobs."""
    try:
        return decode(tuple[JobOutcome, ...], await errand.outcome())
    except ErrandCancelledError as error:
        return (JobOutcome("cancelled", text=str(error)),) * count


def _was_cancelled(task: PoolTask) -> bool:
    """Return whether a task that has ended was cancelled here."""
    return task.ended.exception() is None and task.ended.result().state == "cancelled"


def _finish(task: PoolTask, outcome: JobOutcome) -> None:
    if not task.ended.done():
        task.ended.set_result(outcome)


def _fail(task: PoolTask, error: Exception) -> None:
    if task.ended.done():
        return
    if not isinstance(error, HetError):
        text = f"{type(error).__name__}: {error}"
        error = InputError(text)
    task.ended.set_exception(error)


@atexit.register
def _close_all() -> None:
    """Close the pools that the program has left open: their last submits would be lost."""
    for pool in list(_OPEN):
        try:
            pool.close()
        except HetError as error:
            sys.stderr.write(f"hetpool: {error}\n")


os.register_at_fork(after_in_child=_OPEN.clear)


def _end(thread: LoopThread, engine: ClientEngine) -> None:
    """End the connection and the thread of a pool that nobody has any more."""
    if not thread.is_alive:
        return
    if thread.is_current:  # the last who had it was a callback
        threading.Thread(target=_end, args=(thread, engine), daemon=True).start()
        return
    with contextlib.suppress(Exception):
        thread.wait(engine.close(), CLOSE_S)
    thread.close()
