"""The agent of a node: runs the jobs that the engine brings as tasks of the node's hetd.

It lives in the node's process, longer than any connection to the scheduler. A job is
followed by a coroutine of the agent's; the errand that the engine runs only waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hetpool import messages as m
from hetpool.engine.worker import agent_here
from hetpool.errors import InputLostError
from hetpool.files.node_files import by_engine
from hetpool.jobs import CANCELLED, JobId, JobStatus, PoolJob, PoolNode
from hetpool.messages import decode, encode
from hetpool.node.commands import folder_name
from hetpool.node.gathered import GatheredCalls, GatheredEnds
from hetpool.node.tasks import MOST_RECENT, MOVED, status_of, was_given_up
from hetpool.outcomes import JobOutcome, refused, status_after
from libtask.errors import DaemonUnreachableError, HetError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hetpool.files.node_files import NodeFiles
    from hetpool.jobs import JobState
    from hetpool.messages import JobTerms
    from hetpool.node.commands import NodeCommands
    from hetpool.node.lease import Lease
    from hetpool.node.tasks import NodeTasks
    from hetpool.seam import WorkerEngine
    from libtask.client.handles import TaskHandle

Kind = TypeVar("Kind")
Returned = TypeVar("Returned")

THREADS = 16
"""Requests to hetd at a time."""
AGAIN_S = 0.5
"""Seconds until a job that is another node's is put back: its place may be changing."""
SOURCE_S = 600.0
"""Seconds for the source of an input to come back; `SOURCE_PAUSE_S` between two looks."""
SOURCE_PAUSE_S = 2.0
REPORT_PAUSE_S = 0.5
"""Seconds between two reports of what resources are up."""
LEAVE_PAUSE_S = 0.1
"""Seconds between two looks whether a command has left."""
TIDY_S = 600.0
"""Seconds between two looks for folders of commands that nobody needs."""
KEEP_ORDER = 1 << 40
"""Copies of snapshots wait for all inputs."""

log = logging.getLogger("hetpool")


class LeftError(Exception):
    """The job has left this node."""


@dataclass(frozen=True, slots=True)
class Brought:
    """The inputs of a job on its node, mark -> path, and its snapshot."""

    places: dict[str, str]
    snapshot: Path | None


@dataclass(slots=True, eq=False)
class NodeJob:
    """A job that this node runs.

    Attributes:
        job, terms: what, and how.
        arrays: content id -> bytes of inputs that the engine carried.
        end: its outcome, or `LeftError`.
        handle: its task in hetd; None: not submitted yet.
        parked: it waits to leave.
        bringing: the way of its inputs and its snapshot to here, once it has begun.
        submitting: its way to hetd, once it has begun.

    """

    job: PoolJob
    terms: JobTerms
    arrays: dict[str, Any]
    end: asyncio.Future[JobOutcome]
    handle: TaskHandle | None = None
    parked: bool = False
    bringing: asyncio.Task[Brought] | None = field(default=None, repr=False)
    submitting: asyncio.Future[TaskHandle] | None = field(default=None, repr=False)
    cancelled: str = ""
    following: asyncio.Task[None] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task of a job in hetd whose errand is not here: it is still to come, or has ended."""

    id: int
    generation: int
    app: str


class Agent:
    """The agent of one node.

    Args:
        name: of the node; `address`: where its worker listens.
        engine: the way to the broker and to other nodes.
        tasks: the node's hetd; None: a gateway, which only has files.
        files: of the node.
        lease: of the node.

    """

    def __init__(
        self,
        node: PoolNode,
        engine: WorkerEngine,
        tasks: NodeTasks | None,
        files: NodeFiles,
        lease: Lease,
    ) -> None:
        self.node = node
        self._engine = engine
        self._tasks = tasks
        self._files = files
        self._lease = lease
        self._jobs: dict[str, NodeJob] = {}
        self._found: dict[str, FoundTask] = {}
        """Tasks in hetd by job: those of the last joining, and those that ended since."""
        self._given_up: dict[str, int] = {}
        """Attempts that were cancelled for a move which was lost with its scheduler: job ->
        generation, until the broker has heard of it."""
        self._joined = asyncio.Event()
        self._changed = asyncio.Event()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="hetd")
        self._shortly = GatheredCalls(self._threads)
        self._ends = GatheredEnds()
        engine.answer("estimate", self._on_estimate)
        engine.answer("list", self._on_list)
        engine.answer("cancel", self._on_cancel)
        engine.answer("park", self._on_park)
        engine.answer("leave", self._on_leave)
        engine.answer("unpark", self._on_unpark)
        engine.answer("save", self._on_save)
        engine.answer("keep", self._on_keep)
        engine.answer("receive", self._on_receive)
        engine.answer("drain", self._on_drain)

    async def read_input(self, content: str) -> Any:
        """Return a file for the engine to carry."""
        return await self._files.read(content)

    # ------------------------------------------------------------ membership

    async def join(self) -> None:
        """Introduce the node to the broker; cancel what runs elsewhere by now."""
        tasks, opened = self._tasks, []
        if tasks is not None:
            opened = await self._hetd(tasks.open)
            cores, memory = await self._hetd(tasks.capacity)
            slots = await self._hetd(tasks.slots)
            self.node = replace(
                self.node, slots=slots, cores=cores, memory_bytes=memory
            )
        here = [(job, info) for job, info in opened if info.state != "cancelled"]
        known = [replace(job, ended=info.finished is not None) for job, info in here]
        reply = await self._ask("join", m.Join(self.node, tuple(known)), m.NameList)
        lost = set(reply.names)
        self._found = {
            job.id: FoundTask(info.id, job.generation, info.app)
            for job, info in sorted(here, key=lambda each: each[0].generation)
            if f"{job.id}.{job.generation}" not in lost
        }
        gone = [
            info.id
            for job, info in opened
            if info.finished is None and f"{job.id}.{job.generation}" in lost
        ]
        if tasks is not None and gone:
            await self._hetd(tasks.cancel, gone, MOVED)
        for one in list(self._jobs.values()):
            if one.parked:  # the scheduler that was moving it was lost
                await self._unpark(one)
        self._joined.set()

    def parted(self) -> None:
        """Handle the loss of the scheduler."""
        self._joined.clear()

    async def keep_lease(self, stop: asyncio.Event) -> None:
        """Renew the lease while the scheduler is heard, until `stop` is set."""
        tidied = 0.0
        while not stop.is_set() and self._tasks is not None:
            now, heard = time.monotonic(), self._engine.heard()
            if now > tidied + TIDY_S:
                tidied = now
                await self._tidy(self._tasks)
            if self._lease.renews(now, heard, joined=self._joined.is_set()):
                try:
                    await self._hetd(self._tasks.renew)
                except HetError as error:
                    log.warning("%s: %s", self.node.name, error)
            await asyncio.sleep(self._lease.pause_s)

    def look(self) -> None:
        """Look at the resources soon: one of them has changed."""
        self._changed.set()

    async def report_slots(self, stop: asyncio.Event) -> None:
        """Report which resources are up whenever that changes, until `stop` is set."""
        while not stop.is_set() and self._tasks is not None:
            await self._changed.wait()
            await self._joined.wait()
            self._changed.clear()
            try:
                await self._report(self._tasks)
            except (HetError, OSError) as error:  # hetd or the scheduler was lost
                log.warning("%s: %s", self.node.name, error)
                self._changed.set()
            # changes come in groups, and a device may flap
            await asyncio.sleep(REPORT_PAUSE_S)

    async def _report(self, tasks: NodeTasks) -> None:
        slots = await self._hetd(tasks.slots)
        if slots == self.node.slots:
            return
        await self._ask("slots", m.ChangeSlots(self.node.name, slots), m.NameList)
        self.node = replace(self.node, slots=slots)

    async def _tidy(self, tasks: NodeTasks) -> None:
        coming = [
            folder_name(one.job.id, one.terms.generation) for one in self._jobs.values()
        ]
        with suppress(HetError, OSError):
            await self._hetd(tasks.tidy, coming)

    # ------------------------------------------------------------ jobs

    async def run(self, argument: bytes, arrays: Sequence[Any]) -> bytes:
        """Run the jobs of an errand; return their outcomes."""
        await self._joined.wait()
        jobs = decode(tuple[PoolJob, ...], argument)
        ids = tuple(job.id for job in jobs)
        given_up = tuple(
            m.OpenJob(job, self._given_up[job]) for job in ids if job in self._given_up
        )
        claim = m.ClaimJobs(self.node.name, ids, self._rate(), given_up)
        try:
            claimed = await self._ask("claim", claim, m.Claimed)
        except OSError:  # the scheduler was lost at this moment
            await asyncio.sleep(AGAIN_S)
            raise self._engine.put_back() from None
        for each in given_up:
            self._given_up.pop(each.id, None)
        if not all(terms.owned for terms in claimed.terms):
            await asyncio.sleep(AGAIN_S)
            raise self._engine.put_back()
        ends = [
            self._end_of(job, terms, arrays)
            for job, terms in zip(jobs, claimed.terms, strict=True)
        ]
        try:
            outcomes = await asyncio.gather(*map(asyncio.shield, ends))
        except LeftError:
            raise self._engine.put_back() from None
        return encode(tuple(outcomes))

    def _end_of(
        self, job: PoolJob, terms: JobTerms, arrays: Sequence[Any]
    ) -> asyncio.Future[JobOutcome]:
        """Return the future of a job's end; a job that runs already is only followed."""
        found = self._jobs.get(job.id)
        if found is not None and found.terms.generation == terms.generation:
            return found.end
        names = [file.content for file in by_engine(job.inputs)]
        carried = dict(zip(names, arrays, strict=True)) if arrays else {}
        end: asyncio.Future[JobOutcome] = asyncio.get_running_loop().create_future()
        started = NodeJob(job, terms, carried, end)
        self._jobs[job.id] = started
        started.following = asyncio.ensure_future(self._follow(started))
        return end

    async def _follow(self, one: NodeJob) -> None:
        """Run a job from its inputs to its end."""
        end = await self._ended(one)
        never_in_hetd = one.handle is None and self._found_task(one) is None
        if isinstance(end, JobOutcome) and never_in_hetd and not one.end.done():
            await self._report_end(one, end)
        self._finish(one, end)

    async def _ended(self, one: NodeJob) -> JobOutcome | LeftError:
        try:
            return await self._ran(one)
        except DaemonUnreachableError as error:
            # the node is as good as lost; hetd keeps the task if it comes back
            log.warning("%s: %s", self.node.name, error)
            self._engine.part()
            return LeftError()
        except (asyncio.CancelledError, LeftError):
            return LeftError()
        except Exception as error:  # noqa: BLE001  one job's trouble is an outcome
            return refused(self.node.name, error)

    async def _report_end(self, one: NodeJob, outcome: JobOutcome) -> None:
        """Report the end of a job that hetd never had: nobody could ask for it later."""
        now = time.time()  # noqa: TID251  hetctl compares it with hetd's times
        status = replace(status_after(outcome, one.job), finished=now)
        try:
            await self._ask("ended", m.EndedJob(status), m.NameList)
        except Exception as error:  # noqa: BLE001  its client gets the end nevertheless
            log.warning("%s: %s", one.job.id[:12], error)

    def _cancelled(self, one: NodeJob) -> JobOutcome:
        """Return the outcome of a job that was cancelled before hetd had it."""
        reason = one.cancelled or one.terms.cancelled
        return JobOutcome("cancelled", self.node.name, text=reason)

    async def _ran(self, one: NodeJob) -> JobOutcome:
        tasks = self._tasks
        if tasks is None:
            return refused(self.node.name, HetError("a gateway runs no jobs"))
        found = self._found_task(one)
        if found is not None:
            one.submitting = self._shortly(tasks.find, found.id, one.job)
        else:
            brought = await self._brought(one)
            if brought is None or one.cancelled:
                return self._cancelled(one)
            submit = partial(
                tasks.submit, one.job, brought.places, one.terms, brought.snapshot
            )
            # a command's folder is laid out, a snapshot is copied
            takes_long = one.job.is_command or brought.snapshot is not None
            one.submitting = (
                asyncio.ensure_future(self._hetd(submit))
                if takes_long
                else self._shortly(submit)
            )
        one.handle = await one.submitting
        if one.cancelled:  # meanwhile
            await self._hetd(tasks.cancel, [one.handle.id], one.cancelled)
        await self._ends.of(one.handle.ended)
        outcome = await self._shortly(tasks.outcome, self.node.name, one.handle)
        if was_given_up(outcome) and not one.cancelled:
            self._given_up[one.job.id] = one.terms.generation
            raise LeftError
        if tasks.has_outputs(one.handle.id):
            await self._settle_outputs(one, tasks, one.handle.id, outcome)
        return outcome

    async def _brought(self, one: NodeJob) -> Brought | None:
        """Bring a job's inputs and snapshot here; None: it is cancelled."""
        if one.cancelled or one.terms.cancelled:
            return None
        one.bringing = asyncio.ensure_future(self._bring(one))
        await asyncio.wait([one.bringing])
        one.arrays = {}
        return None if one.bringing.cancelled() else one.bringing.result()

    async def _bring(self, one: NodeJob) -> Brought:
        return Brought(await self._places(one), await self._snapshot(one.terms))

    def _found_task(self, one: NodeJob) -> FoundTask | None:
        """Return the task of an attempt that an earlier agent submitted."""
        found = self._found.get(one.job.id)
        same = found is not None and found.generation == one.terms.generation
        return found if same else None

    async def _settle_outputs(
        self, one: NodeJob, tasks: NodeTasks, task: int, outcome: JobOutcome
    ) -> None:
        """Name the output files of an attempt, if no other one took its place meanwhile.

        Raises:
            LeftError: another one did.

        """
        ok = outcome.state == "completed"
        left = ok and await self._has_left(one)
        await self._hetd(partial(tasks.settle_outputs, task, wanted=ok and not left))
        if left:
            raise LeftError

    async def _has_left(self, one: NodeJob) -> bool:
        """Return whether a job is another node's, or another attempt's; wait for the answer."""
        claim = m.ClaimJobs(self.node.name, (one.job.id,))
        while True:
            await self._joined.wait()
            try:
                (terms,) = (await self._ask("claim", claim, m.Claimed)).terms
            except OSError:  # the scheduler was lost at this moment
                await asyncio.sleep(AGAIN_S)
            else:
                older = terms.owned and terms.generation != one.terms.generation
                return terms.elsewhere or older

    async def _places(self, one: NodeJob) -> dict[str, str]:
        """Bring the inputs here; wait for a source that was lost and may come back."""
        deadline = time.monotonic() + SOURCE_S
        terms = one.terms
        while True:
            try:
                return await self._files.place(one.job, terms, one.arrays)
            except InputLostError as error:
                if time.monotonic() > deadline:
                    raise
                log.warning("%s waits: %s", one.job.id[:12], error)
            await asyncio.sleep(SOURCE_PAUSE_S)
            claim = m.ClaimJobs(self.node.name, (one.job.id,))
            with suppress(OSError, HetError):  # the scheduler may be away, too
                terms = (await self._ask("claim", claim, m.Claimed)).terms[0]

    async def _snapshot(self, terms: JobTerms) -> Path | None:
        """Bring the snapshot here from which a job continues; None: it begins."""
        if terms.snapshot is None:
            return None
        source = terms.sources.get(terms.snapshot.node, "")
        try:
            return await self._files.keep(terms.snapshot, source, terms.order)
        except HetError as error:
            log.warning("%s begins at the start: %s", terms.id[:12], error)
            return None

    def _finish(self, one: NodeJob, end: JobOutcome | Exception) -> None:
        if self._jobs.get(one.job.id) is one:
            del self._jobs[one.job.id]
        if one.end.done():
            return
        if one.handle is not None and not isinstance(end, Exception):
            self._remember(one, one.handle.id)
        self._files.release(one.job)
        if isinstance(end, Exception):
            one.end.set_exception(end)
            one.end.exception()  # its errand may be gone
        else:
            one.end.set_result(end)

    def _remember(self, one: NodeJob, task: int) -> None:
        """Keep an ended job in mind: the broker may not have heard of its end yet."""
        self._found.pop(one.job.id, None)
        self._found[one.job.id] = FoundTask(task, one.terms.generation, one.job.app)
        while len(self._found) > MOST_RECENT:
            del self._found[next(iter(self._found))]

    # ------------------------------------------------------------ requests

    async def _on_estimate(self, content: bytes) -> bytes:
        wanted = decode(m.EstimateJobs, content)
        tasks = self._tasks
        if tasks is None:
            return encode(m.JobEstimates(tuple({} for _ in wanted.jobs)))
        found = await asyncio.gather(
            *(self._shortly(tasks.estimate, job) for job in wanted.jobs),
            return_exceptions=True,
        )
        # hetd's refusal comes at the submit, with its reason
        return encode(
            m.JobEstimates(
                tuple(each if isinstance(each, dict) else {} for each in found)
            )
        )

    async def _on_list(self, content: bytes) -> bytes:
        ids = set(decode(m.ListJobs, content).ids)
        chosen = [one for one in self._jobs.values() if not ids or one.job.id in ids]
        found = [_status(one, self.node.name) for one in chosen if one.handle is None]
        named = {
            one.handle.id: _status(one, self.node.name)
            for one in chosen
            if one.handle is not None
        }
        named |= {
            task.id: JobStatus(JobId(job), task.app, "staged", task=task.id)
            for job, task in self._found.items()
            if job not in self._jobs and job in ids
        }
        if self._tasks is not None and named:
            found += await self._hetd(self._tasks.statuses, self.node.name, named)
        return encode(m.JobList(tuple(found)))

    async def _on_cancel(self, content: bytes) -> bytes:
        wanted = decode(m.CancelJobs, content)
        done = []
        for job in wanted.ids:
            one = self._jobs.get(job)
            if one is None or self._tasks is None:
                continue
            one.cancelled = wanted.reason or CANCELLED
            if one.handle is not None:
                await self._hetd(self._tasks.cancel, [one.handle.id], one.cancelled)
            elif one.bringing is not None:
                one.bringing.cancel()
            done.append(job)
        return encode(m.NameList(tuple(done)))

    async def _on_receive(self, content: bytes) -> bytes:
        await self._files.receive(decode(m.ReceiveFile, content).content)
        return encode(m.NameList((self.node.name,)))

    async def _on_drain(self, content: bytes) -> bytes:
        self.node = replace(self.node, draining=decode(m.DrainNode, content).on)
        return encode(m.NameList((self.node.name,)))

    async def _on_park(self, content: bytes) -> bytes:
        wanted = decode(m.ParkJob, content)
        one = self._jobs.get(wanted.id)
        if one is None and wanted.id in self._found:
            # the broker would think that it has not begun, and it would run twice
            raise HetError(f"job {wanted.id[:12]} has just ended, or is found again")
        if one is None:
            return encode(m.ParkedJob(here=False))
        one.parked = True
        try:
            snapshot = await self._parked(one)
        except Exception:
            await self._unpark(one)
            raise
        ended = one.end.done() or await self._has_ended(one)
        return encode(m.ParkedJob(ended=ended, snapshot=snapshot))

    async def _parked(self, one: NodeJob) -> m.SnapshotFile | None:
        """Hold a job; return its snapshot if it has computed anything."""
        if one.submitting is not None:
            one.handle = await asyncio.shield(one.submitting)
        if self._tasks is None or one.handle is None:
            return None
        task, starts = one.handle.id, 0
        target = self._files.draft(one.job.id)
        if one.job.is_command:
            starts = await self._left(one, task, self._tasks.commands, target)
        else:
            await self._hetd(self._tasks.park, task, target)
        if not target.exists():
            return None
        saved = await self._files.added(target, self.node.name)
        return replace(saved, starts=starts)

    async def _left(
        self, one: NodeJob, task: int, commands: NodeCommands, target: Path
    ) -> int:
        """Have a command leave its resource and pack its folder; return its starts."""
        await self._hetd(commands.ask_to_leave, one.job, task)
        # no thread waits: a command may take minutes, and many of them leave at a time
        while not await self._hetd(commands.has_left, task):
            if not one.parked:
                raise InputError(f"task {task} goes on where it is")
            await asyncio.sleep(LEAVE_PAUSE_S)
        generation = one.terms.generation
        return await self._hetd(commands.pack, one.job, generation, task, target)

    async def _has_ended(self, one: NodeJob) -> bool:
        """Return whether a job ended before it could be held; its end may be on its way."""
        if self._tasks is None or one.handle is None:
            return False
        return await self._hetd(self._tasks.has_ended, one.handle.id)

    async def _unpark(self, one: NodeJob) -> None:
        one.parked = False
        if self._tasks is not None and one.handle is not None:
            await self._hetd(self._tasks.release, one.handle.id)

    async def _on_save(self, content: bytes) -> bytes:
        one = self._jobs.get(decode(m.SaveJob, content).id)
        if one is None or one.handle is None or one.parked or self._tasks is None:
            return encode(m.Saved())
        if one.job.is_command:  # it saves its state only when it is asked to leave
            return encode(m.Saved())
        target = self._files.draft(one.job.id)
        if not await self._hetd(self._tasks.save, one.handle.id, target):
            return encode(m.Saved())
        return encode(m.Saved(await self._files.added(target, self.node.name)))

    async def _on_keep(self, content: bytes) -> bytes:
        wanted = decode(m.KeepSnapshot, content)
        await self._files.keep(wanted.snapshot, wanted.source, KEEP_ORDER)
        if wanted.instead_of:
            self._files.drop(wanted.instead_of)
        return encode(m.Saved(replace(wanted.snapshot, node=self.node.name)))

    async def _on_unpark(self, content: bytes) -> bytes:
        one = self._jobs.get(decode(m.UnparkJob, content).id)
        if one is not None:
            await self._unpark(one)
        return encode(m.NameList())

    async def _on_leave(self, content: bytes) -> bytes:
        one = self._jobs.get(decode(m.LeaveJob, content).id)
        if one is None:
            return encode(m.NameList())
        # if it is being submitted, its own coroutine cancels it then
        one.cancelled = MOVED
        if one.bringing is not None:
            one.bringing.cancel()
        self._found.pop(one.job.id, None)
        self._finish(one, LeftError())
        if self._tasks is not None and one.handle is not None:
            await self._hetd(self._tasks.cancel, [one.handle.id], MOVED)
        if self._tasks is not None and one.job.is_command:
            drop = self._tasks.commands.drop
            await self._hetd(drop, one.job.id, one.terms.generation)
        return encode(m.NameList((one.job.id,)))

    # ------------------------------------------------------------ ways out

    def _rate(self) -> float | None:
        """Return bytes a second that reached this node lately, by either way."""
        rates = (self._engine.rate(), self._files.intake.goodput())
        return max((each for each in rates if each), default=None)

    async def _ask(self, name: str, message: Any, kind: type[Kind]) -> Kind:
        return decode(kind, await self._engine.ask(name, encode(message)))

    async def _hetd(self, call: Callable[..., Returned], *arguments: Any) -> Returned:
        """Make a call that may take long, in a thread of its own."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, *arguments)


def _status(one: NodeJob, node: str) -> JobStatus:
    state: JobState = "placed" if one.handle is None else "staged"
    task = one.handle.id if one.handle is not None else 0
    return replace(status_of(one.job, state, task), node=node)


def machine_name() -> str:
    """Return the name by which clients and nodes of one machine recognise each other."""
    return socket.gethostname()


async def run_jobs(argument: bytes, arrays: Sequence[Any]) -> bytes:
    """Run the jobs of an errand: the function that the engine carries to a node."""
    agent: Agent = agent_here()
    return await agent.run(argument, arrays)
