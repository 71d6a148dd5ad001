"""The tasks of a node's hetd that belong to the pool: the agent's client of hetd.

Each call blocks and is made in a thread of the agent's.
"""

from __future__ import annotations

import logging
import pickle
import re
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetpool.attempts import mark_of
from hetpool.jobs import CANCELLED, MARK, OPTIONS, JobId, JobStatus, NodeSlot
from hetpool.messages import NodeEstimate, OpenJob
from hetpool.node.commands import NodeCommands, folder_name
from hetpool.node.outputs import (
    accepted,
    dropped,
    final_names,
    redirected,
)
from hetpool.outcomes import completed, ended
from libtask.client.client import Client, Selection
from libtask.errors import HetError, InputError
from libtask.messages import CALL, ENDED, KINDS, MIN_LEASE_S, TaskSpec
from libtask.parameters import know_parameters
from libtask.snapshots import export

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hetpool.jobs import JobState, PoolJob
    from hetpool.messages import JobTerms
    from hetpool.outcomes import JobOutcome
    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskInfo

LEASE = "pool"
SAVE_S = 60.0
"""Seconds for a running task to write a snapshot."""
SAVE_PAUSE_S = 0.1
NAME = re.compile(r"pool/([0-9a-f]{32})\.(\d{1,15})")
"""Name of a job's task in hetd: with it an agent finds the pool's tasks after a restart."""
MOVED = "moved to another node"
"""Reason of the cancellation of a task whose job goes on elsewhere."""
MOST_RECENT = 10_000
"""Ended tasks that an agent looks through after a restart."""
log = logging.getLogger("hetpool")

STATES: Mapping[str, JobState] = {
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "dropped": "failed",
    "cancelled": "cancelled",
}


def task_name(job: str, generation: int) -> str:
    """Return the name of a job's task in hetd."""
    return f"pool/{job}.{generation}"


def job_of(name: str) -> OpenJob | None:
    """Return which job a task is; None: it is not the pool's."""
    found = NAME.fullmatch(name)
    return None if found is None else OpenJob(found[1], int(found[2]))


def is_of_pool(name: str) -> bool:
    """Return whether a task's name says that it is the pool's."""
    return NAME.fullmatch(name) is not None


class NodeTasks:
    """A connection to this node's hetd.

    Args:
        socket: hetd's; None: the default one.
        folder: for the folders of commands.
        node: name of this node.
        lease_s: seconds without `renew` after which hetd holds the pool's tasks.
        patience: seconds to wait for a lost hetd.

    """

    def __init__(
        self,
        socket: Path | None,
        folder: Path,
        node: str,
        lease_s: float,
        patience: float = 30.0,
    ) -> None:
        self._node = node
        self._lease_s = max(MIN_LEASE_S, lease_s)
        self.client = Client(socket, patience=patience)
        self.commands = NodeCommands(self.client, folder)
        self._resources: set[str] = set()
        self._resources_of = 0
        """Pid of the hetd that has these resources; its next one may have others."""
        self._outputs: dict[int, tuple[str, tuple[Path, ...]]] = {}
        """Task -> the mark of its attempt in the names of its output files, and these."""

    def close(self) -> None:
        self.client.close()

    def slots(self) -> tuple[NodeSlot, ...]:
        """List the places where tasks compute now."""
        return tuple(
            NodeSlot(each.spec.name, each.spec.kind)
            for each in self.client.devices()
            if each.state == "up"
            for _ in range(each.slots)
        )

    def capacity(self) -> tuple[int, int]:
        """Return the cores and the bytes of memory that a task may need; 0: any number."""
        status = self.client.status()
        return status.cores, status.task_memory_bytes

    def submit(
        self,
        job: PoolJob,
        places: Mapping[str, str],
        terms: JobTerms,
        snapshot: Path | None = None,
    ) -> TaskHandle:
        """Submit a job, or find the task that it is already.

        Args:
            job: the job.
            places: mark -> path of its inputs.
            terms: how it runs here.
            snapshot: to continue from; None: from the beginning.

        Raises:
            HetError: hetd refuses it.

        """
        name = task_name(job.id, terms.generation)
        app, arguments = call_of(job, places)
        options = {key: value for key, value in job.options.items() if key in OPTIONS}
        # it belongs to the pool, not to the place where the agent was started
        options["export"] = "none"
        options["seconds"] = self._seconds_here(job)
        if job.is_command:
            there = replace(job, params=arguments[0])
            prepared = self.commands.prepared(there, places, terms, snapshot)
            app, arguments, snapshot = prepared.command, (), None
            options["cwd"] = prepared.cwd
        app, arguments, files = redirected(app, arguments, name)
        if snapshot is not None:
            options |= {"hold": True, "resume": True}
        handle = self.client.submit(
            app,
            *arguments,
            name=name,
            key=name,
            lease=LEASE,
            lease_s=self._lease_s,
            **options,
        )
        if files:
            self._outputs[handle.id] = (mark_of(name), files)
        if snapshot is not None:
            self._continue(handle, snapshot)
        return handle

    def _seconds_here(self, job: PoolJob) -> dict[str, float]:
        """Return the expected times of a job, without those of resources of other nodes."""
        wanted = job.seconds_at(self._node)
        if wanted.keys() <= set(KINDS):
            return wanted
        daemon = self.client.welcome.pid
        if self._resources_of != daemon:
            self._resources = {each.spec.name for each in self.client.devices()}
            self._resources_of = daemon
        here = {*KINDS, *self._resources}
        return {name: seconds for name, seconds in wanted.items() if name in here}

    def _continue(self, handle: TaskHandle, snapshot: Path) -> None:
        """Let a new task go on from a snapshot; without it, it begins at the start."""
        info = handle.info()
        if info.state != "held" or info.started is not None:
            return  # an earlier agent has done this
        try:
            handle.adopt(snapshot)
        except HetError as error:
            log.warning("%s begins at the start: %s", info.name, error)
        self.client.release(handle.id)

    def find(self, task: int, job: PoolJob) -> TaskHandle:
        """Follow a task that an earlier agent submitted."""
        handle = self.client.handle(task)
        info = handle.info()
        if not job.is_command:
            _, _, files = redirected(*call_of(job, {}), info.name)
            if files:
                self._outputs[task] = (mark_of(info.name), files)
        # its agent may have ended while it parked it, or before it let it go on; a hold that
        # waits for a checkpoint is taken back as well
        self.release(task)
        return handle

    def park(self, task: int, target: Path) -> bool:
        """Hold a task; export its snapshot to a file, and return whether it has one."""
        parked = self.client.park(task)[0]
        if parked.error:
            log.warning("task %d: %s", task, parked.error)
        if not parked.path:
            return False
        export(parked.path, target)
        return True

    def folder_of(self, name: str) -> Path | None:
        """Return the folder of a command by the name of its task; None: it has none here."""
        job = job_of(name)
        if job is None:
            return None
        folder = self.commands.folder(job.id, job.generation)
        return folder if folder.is_dir() else None

    def has_ended(self, task: int) -> bool:
        """Return whether a task has ended, which its handle may learn later."""
        return self.client.show(task).state in ENDED

    def save(self, task: int, target: Path, patience: float = SAVE_S) -> bool:
        """Have a running task write a snapshot and export it; return whether it did."""
        before = self._snapshot(task)
        self.client.snapshot(task)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            now = self._snapshot(task)
            if now is not None and now != before:
                export(now[1], target)
                return True
            time.sleep(SAVE_PAUSE_S)
        return False

    def _snapshot(self, task: int) -> tuple[float, str] | None:
        found = self.client.show(task).snapshot
        return None if found is None else (found.at, found.path)

    def renew(self) -> None:
        """Say that the agent is there; what hetd held meanwhile goes on."""
        self.client.renew(LEASE)

    def outcome(self, node: str, handle: TaskHandle) -> JobOutcome:
        """Return how an ended task ended."""
        change = handle.last
        if change is None:
            raise InputError(f"task {handle.id} has not ended")
        if change.state != "completed":
            return ended(node, change)
        result = handle.result(0)
        if handle.id in self._outputs:
            mark, _ = self._outputs[handle.id]
            result = final_names(result, mark)
        return completed(node, handle.id, result)

    def has_outputs(self, task: int) -> bool:
        """Return whether a task has output files whose names wait for its acceptance."""
        return task in self._outputs

    def settle_outputs(self, task: int, *, wanted: bool) -> None:
        """Give the output files of an attempt their final names, or remove them.

        Raises:
            InputError: one cannot be renamed.

        """
        mark, files = self._outputs.pop(task)
        if wanted:
            accepted(files, mark)
        else:
            dropped(files, mark)

    def open(self) -> list[tuple[OpenJob, TaskInfo]]:
        """List the unfinished tasks of the pool, and those that ended lately."""
        selection = Selection(mine=True, limit=MOST_RECENT)
        found = [(job_of(info.name), info) for info in self.client.tasks(selection)]
        return [(job, info) for job, info in found if job is not None]

    def tidy(self, coming: Sequence[str]) -> None:
        """Remove old folders of commands.

        Args:
            coming: names of folders of jobs that hetd may not have yet.

        """
        unfinished = {
            folder_name(job.id, job.generation)
            for job, info in self.open()
            if info.finished is None
        }
        self.commands.tidy(unfinished | set(coming))

    def statuses(self, node: str, tasks: Mapping[int, JobStatus]) -> list[JobStatus]:
        """Complete the statuses of jobs by the present state of their tasks."""
        infos = self.client.tasks(Selection(ids=tuple(tasks))) if tasks else []
        return [
            replace(
                tasks[info.id],
                state=STATES.get(info.state, "staged"),
                node=node,
                resource=info.resource or "",
                progress=info.progress,
                reason=info.reason or "",
            )
            for info in infos
        ]

    def cancel(self, ids: Iterable[int], reason: str) -> None:
        """Cancel tasks; those that have ended meanwhile stay as they are."""
        told = (
            "" if reason == CANCELLED else reason
        )  # hetd says itself who cancelled them
        for task in ids:
            with suppress(HetError):
                self.client.cancel(task, reason=told)

    def release(self, task: int) -> None:
        """Let a parked task go on."""
        with suppress(HetError):
            self.client.release(task)

    def estimate(self, job: PoolJob) -> dict[str, NodeEstimate]:
        """Estimate a job on each resource that can run it.

        Of a call, only the name of the function is known.
        """
        if job.call:
            spec = TaskSpec(CALL, type=f"call/{job.app}", kinds=["cpu"])
            found = self.client.estimate_spec(spec)
        else:
            found = self.client.estimate(job.app, job.params)
        return {
            each.resource: NodeEstimate(each.remaining_s, each.confidence or 0.0)
            for each in found.prospects
            if each.remaining_s is not None
        }


def call_of(job: PoolJob, places: Mapping[str, str]) -> tuple[Any, tuple[Any, ...]]:
    """Return an application or function and its arguments, with paths for its inputs.

    Raises:
        InputError: the call cannot be read on this node.

    """
    if not job.call:
        return job.app, (with_paths(job.params, places),)
    try:
        # from a client of the pool: the same user's own program
        app, arguments, known = pickle.loads(job.call)  # noqa: S301
    except Exception as error:
        text = (
            f"{job.app}: cannot be read on this node: {type(error).__name__}: {error}"
        )
        raise InputError(text) from error
    if (
        known is not None
    ):  # the types of its parameters are in a module that is not here
        know_parameters(app if isinstance(app, type) else type(app), known)
    return app, tuple(with_paths(each, places) for each in arguments)


def with_paths(value: Any, places: Mapping[str, str]) -> Any:
    """Put paths in place of the marks of input files, in maps, lists and tuples too."""
    if isinstance(value, str):
        return places.get(value, value) if value.startswith(MARK) else value
    if isinstance(value, dict):
        return {key: with_paths(each, places) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(with_paths(each, places) for each in value)
    return value


def was_given_up(outcome: JobOutcome) -> bool:
    """Return whether a task was cancelled because its job should go on elsewhere."""
    return outcome.state == "cancelled" and outcome.text.endswith(MOVED)


def status_of(job: PoolJob, state: JobState, task: int = 0) -> JobStatus:
    """Return the status of a job before its node asked hetd."""
    return JobStatus(JobId(job.id), job.app, state, task=task)
