"""Recovery: describe the unfinished tasks in the journal to the scheduler at the start.

A worker may still hold a task that ran or waited in it. The task keeps its epoch, so that
the worker is recognized when it registers. Acknowledged requests (cancel, hold, move) are
repeated.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from hetd.tasks.task_types import kept_type
from hetd.tasks.worker_key import key_of
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.limits import Needs
from hetsched.system import SECOND, Resource
from libtask import messages as m
from libtask.apps import is_value, short_name
from libtask.documents import ALL_CORES, MAX_CORES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.clock import Clock
    from hetd.tasks.page import TaskPage
    from hetsched.ids import Nanoseconds


def pending_requests(page: TaskPage, resources: frozenset[str]) -> Iterator[e.Event]:
    """Yield the pending requests of a user for a task.

    Args:
        page: what the journal knows of it.
        resources: the present resources.

    """
    task, runtime = TaskId(page.id), page.runtime
    if runtime.pinned is not None and runtime.pinned in resources:
        yield e.TaskMoved(task, runtime.pinned)
    if runtime.holding:
        yield e.TaskHeld(task, runtime.requeuing)
    if runtime.cancelling is not None:
        yield e.TaskCancelled(task, runtime.cancelling)


GENERIC = frozenset({m.CALL, m.COMMAND})
"""Applications that run any function, or any program: their types tell which."""
NO_TASKS: frozenset[TaskId] = frozenset()
LONGEST_NAME = 1024
"""Characters of an application's path that tell it from others, from the end."""
MERGE_S = 0.5
"""Seconds until another worker has loaded a part of a task: with imports, if it is new."""
FILE_BYTES_PER_S = 500e6
"""At which the result of a part is written to a file, and read: that of a common SSD."""
WEIGHTY = 8192
"""Bytes of parameters that take as long to write as all else of a change."""


def submission(
    page: TaskPage, migration_s: float, clock: Clock, *, notok_met: bool
) -> e.TaskSubmitted:
    """Describe a task to the scheduler.

    Args:
        page: what the journal knows of it.
        migration_s: seconds that a move takes in addition to copying.
        clock: the daemon's; deadlines use its monotonic part.
        notok_met: whether a task of `after_notok` has ended without completing.

    """
    spec = page.spec
    return e.TaskSubmitted(
        task=TaskId(page.id),
        type=kept_type(spec.type, spec.app, page.owner),
        kinds=_one_set(tuple(spec.kinds)),
        owner=page.owner,
        resources=_one_set(tuple(spec.resources)),
        seconds=tuple(spec.seconds.items()),
        priority=spec.priority,
        after=tuple(map(TaskId, m.dependencies(spec))),
        after_any=_set_of_tasks(spec.after_any),
        after_notok=_set_of_tasks(spec.after_notok),
        notok_met=notok_met,
        job=spec.job,
        inputs=tuple(
            [e.TaskInput(TaskId(each.task), each.bytes) for each in spec.inputs]
        ),
        hold=spec.hold,
        work=spec.work,
        input_bytes=spec.input_bytes,
        state_bytes=spec.state_bytes,
        deadline=_deadline(page, clock),
        strips=_strips(spec),
        served=page.holder is not None and page.holder.own,
        migration_s=migration_s,
        app=_application(spec),
        version=spec.version,
        preemptible=spec.preemptible,
        # its program takes longer to start than a train lasts, and may be stopped there
        single=spec.app == m.COMMAND or spec.resume or bool(spec.resumes),
        workers=key_of(spec),
        needs=_needs(spec),
        time_limit_s=math.inf if spec.time_limit_s is None else spec.time_limit_s,
        retries=spec.retries,
        begin=_begin(page, clock),
        array=spec.array,
        at_once=spec.at_once,
        weight=_weight(spec),
        parallel=spec.parallel,
        merge_s=MERGE_S + 2 * spec.state_bytes / FILE_BYTES_PER_S,
        part_of=TaskId(spec.part.task) if spec.part else None,
        start=spec.part.start / spec.part.total if spec.part else 0.0,
    )


def running_s(page: TaskPage, now: float) -> float:
    """Return the seconds for which a task has run by `now` (epoch seconds)."""
    return sum(
        max((now if each.finish is None else each.finish) - each.start, 0.0)
        for each in page.segments
    )


def _needs(spec: m.TaskSpec) -> Needs | None:
    """Return what a task needs; None: nothing is counted for it."""
    cores = MAX_CORES if spec.cores == ALL_CORES else spec.cores
    if not (cores or spec.memory_bytes or spec.device_bytes):
        return None
    return Needs(cores, spec.memory_bytes, spec.device_bytes)


def _weight(spec: m.TaskSpec) -> int:
    """Return how many steps a change of a task takes, by the size of its parameters."""
    if not spec.params:
        return 1
    return 1 + len(msgspec.msgpack.encode(spec.params)) // WEIGHTY


def _application(spec: m.TaskSpec) -> str:
    """Name what a task runs: its application; of calls the function, of commands the program."""
    if spec.app in GENERIC:
        return spec.type[-LONGEST_NAME:]
    name = short_name(spec.app) if is_value(spec.app) else spec.app
    return name[-LONGEST_NAME:]


@lru_cache(1024)
def _one_set(names: tuple[str, ...]) -> frozenset[str]:
    """Return a set of names; equal sets share one object, to save memory."""
    return frozenset(names)


def _set_of_tasks(ids: list[int]) -> frozenset[TaskId]:
    """Return a set of tasks; nearly all are empty, and share one, to save memory."""
    return frozenset(map(TaskId, ids)) if ids else NO_TASKS


def _begin(page: TaskPage, clock: Clock) -> Nanoseconds:
    """Convert the time at which a task may begin; 0: none, or the task has begun before."""
    if page.spec.begin is None or page.started is not None:
        return 0
    return max(clock.now() + int((page.spec.begin - clock.wall()) * SECOND), 0)


def _deadline(page: TaskPage, clock: Clock) -> Nanoseconds | None:
    """Convert a deadline to the monotonic clock, nanoseconds."""
    if page.deadline is None:
        return None
    return clock.now() + int((page.deadline - clock.wall()) * SECOND)


def _strips(spec: m.TaskSpec) -> int | None:
    """Return the number of equal strips of a task, or None if the size is not fixed."""
    if spec.iterations is None:
        return None
    if spec.iterations <= 1:
        return 1
    size = max(0, spec.strip or 0)
    return -(-spec.iterations // size) if size else None


def resource(device: m.DeviceInfo, queue_limit: int) -> Resource:
    """Describe a device to the scheduler."""
    return Resource(
        name=device.spec.name,
        kind=device.spec.kind,
        slots=device.slots,
        busy_watts=device.busy_watts,
        idle_watts=device.idle_watts,
        link_bytes_per_s=device.link_bytes_per_s,
        reconfigure_s=device.reconfigure_s,
        queue_limit=queue_limit,
        shared=device.shared,
        memory_bytes=device.spec.memory_bytes or None,
    )
