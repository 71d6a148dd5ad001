"""Builders: tasks, resources, estimates and schedulers in a line each.

Times given to these are seconds; the scheduler's own are nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hetsched.estimates.table import EstimateTable
from hetsched.events import NodeStarted, TaskSubmitted
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.system import SECOND, Resource
from hetsched.tasks import State, TaskRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.policy import Policy

UNSTAGED = Limits(stage=0)
"""Nothing is staged ahead: shorter lists of actions to assert."""


def a_task(task: int = 1, task_type: str = "any", **fields: Any) -> TaskSubmitted:
    """Make a submission; by default every kind of resource can run it."""
    every = TaskSubmitted(TaskId(task), task_type, frozenset({"cpu", "gpu", "fpga"}))
    for name in ("kinds", "resources"):
        if name in fields:
            fields[name] = frozenset(fields[name])
    if "after" in fields:
        fields["after"] = tuple(TaskId(other) for other in fields["after"])
    for name in ("after_any", "after_notok"):
        if name in fields:
            fields[name] = frozenset(TaskId(other) for other in fields[name])
    return msgspec.structs.replace(every, **fields)


def a_resource(kind: str = "cpu", name: str | None = None, slots: int = 1) -> Resource:
    """Make a resource, named `cpu`, `gpu0` or `fpga0` if not otherwise."""
    return Resource(name or (kind if kind == "cpu" else f"{kind}0"), kind, slots)


def estimates(seconds: dict[str, dict[str, float]]) -> EstimateTable:
    """Make a table from task type -> resource -> seconds."""
    table = EstimateTable()
    for task_type, times in seconds.items():
        for resource, time in times.items():
            table.learn(task_type, resource, time, 1.0)
    return table


def ran_on(resource: str, epoch: int, progress: float = 0.0) -> TaskRuntime:
    """Return what is stored of a task that ran in a worker when the daemon stopped."""
    return TaskRuntime(
        State.RUNNING, resource, epoch, bound=True, progress=progress, furthest=progress
    )


def _new(task: TaskSubmitted) -> TaskRuntime:
    return TaskRuntime(State.HELD if task.hold else State.QUEUED)


class Harness:
    """A scheduler whose invariants are checked after every event."""

    def __init__(
        self,
        resources: Sequence[Resource],
        seconds: dict[str, dict[str, float]] | None = None,
        policy: str = "affinity",
        limits: Limits = UNSTAGED,
        **parameters: Any,
    ) -> None:
        self.scheduler = Scheduler(
            resources,
            estimates(seconds or {}),
            make_policy(policy, parameters),
            limits=limits,
        )

    def handle(self, event: Event, at: float = 0.0) -> list[Action]:
        """Handle an event at an instant (seconds), and check."""
        actions = self.scheduler.handle(event, int(at * SECOND))
        self.scheduler.check()
        return actions

    def change_policy(self, policy: Policy, at: float = 0.0) -> list[Action]:
        """Let another policy decide from an instant (seconds) on, and check."""
        actions = self.scheduler.change_policy(policy, int(at * SECOND))
        self.scheduler.check()
        return actions

    def restart(
        self, *tasks: TaskSubmitted | tuple[TaskSubmitted, TaskRuntime]
    ) -> list[Action]:
        """Take up what there was before the start, place it, and check.

        Args:
            tasks: with what was stored of them; tasks alone were never started.

        """
        known = [
            each if isinstance(each, tuple) else (each, _new(each)) for each in tasks
        ]
        actions = self.scheduler.restore(known, 0)
        return [*actions, *self.handle(NodeStarted())]

    def handle_all(self, *events: Event, at: float = 0.0) -> list[Action]:
        """Handle events of one instant together, and check."""
        actions = self.scheduler.handle_all(events, int(at * SECOND))
        self.scheduler.check()
        return actions


if TYPE_CHECKING:
    Start: TypeAlias = Callable[..., Harness]
    """Makes a scheduler: the fixture `a_scheduler`."""
