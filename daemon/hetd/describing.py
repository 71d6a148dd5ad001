"""What hetd knows of tasks and devices, as the scheduler takes it. Called by the node."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

import msgspec

from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.system import SECOND, Resource

if TYPE_CHECKING:
    from hetd.clock import Clock
    from hetd.entry import Entry
    from hetsched.ids import Nanoseconds
    from libtask import messages as m


COMMAND = "command"
GENERIC = frozenset({"call", COMMAND})
"""Applications that run any function, or any program: their types tell which."""
LONGEST_NAME = 1024
"""Characters of an application's path that tell it from others, from the end."""
WEIGHTY = 8192
"""Bytes of parameters that take as long to write as all else of a change."""


def submission(entry: Entry, migration_s: float, clock: Clock) -> e.TaskSubmitted:
    """Describe a task to the scheduler.

    Args:
        entry: what the journal knows of it.
        migration_s: seconds that a move takes besides copying.
        clock: the daemon's; deadlines are told by its monotonic part.

    """
    spec = entry.spec
    return e.TaskSubmitted(
        task=TaskId(entry.id),
        type=spec.type or spec.app,
        kinds=_one_set(tuple(spec.kinds)),
        owner=entry.owner,
        resources=_one_set(tuple(spec.resources)),
        priority=spec.priority,
        after=cast("tuple[TaskId, ...]", tuple(spec.after)),
        hold=spec.hold or entry.state == "held",
        work=spec.work,
        input_bytes=spec.input_bytes,
        state_bytes=spec.state_bytes,
        deadline=_deadline(entry, clock),
        strips=_strips(spec),
        served=entry.holder is not None and entry.holder.own,
        migration_s=migration_s,
        app=_application(spec),
        version=spec.version,
        preemptible=spec.preemptible,
        # its program takes longer to start than a train lasts, and may be stopped there
        single=spec.app == COMMAND,
        weight=1 + len(msgspec.msgpack.encode(spec.params)) // WEIGHTY,
    )


def _application(spec: m.TaskSpec) -> str:
    """Name what a task runs: its application; of calls the function, of commands the program."""
    name = spec.type if spec.app in GENERIC else spec.app
    return name[-LONGEST_NAME:]


@lru_cache(1024)
def _one_set(names: tuple[str, ...]) -> frozenset[str]:
    """Make a set of names; one object for all tasks with the same, of so many tasks."""
    return frozenset(names)


def _deadline(entry: Entry, clock: Clock) -> Nanoseconds | None:
    """Tell by the monotonic clock when a task is due."""
    if entry.deadline is None:
        return None
    return clock.now() + int((entry.deadline - clock.wall()) * SECOND)


def _strips(spec: m.TaskSpec) -> int | None:
    """Count the equal strips of a task, where its user fixed their size."""
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
    )
