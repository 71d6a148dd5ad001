"""A scenario through a real daemon: its tasks as `synthetic` ones, which only wait.

Everything but the computing is real: processes, messages, commits to disk, checkpoints,
migrations. Called with a client of a daemon that has the scenario's resources.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from libtask.apps import Options, build, describe, resolve
from libtask.client.client import Selection
from libtask.errors import TaskFailedError
from libtask.messages import Sample

if TYPE_CHECKING:
    from hetsim.scenario import ResourceModel, Scenario, TypeModel
    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskInfo, TaskSpec

APP = "synthetic"
PATIENCE_S = 600.0
"""Seconds that one task may take; then something is broken."""

WARM_TASKS = 12
"""Tasks that wake enough workers before anything is measured."""


@dataclass(frozen=True, slots=True)
class LiveResult:
    """The result of a scenario on a real node.

    Attributes:
        makespan: seconds from the first submission to the end of the last task.
        migrations: how often a task went on elsewhere than it was.

    """

    makespan: float
    migrations: int


def scaled(scenario: Scenario, scale: float) -> Scenario:
    """Shrink all times, and the bytes that links take time for, by a factor.

    Nothing is shared any more: tasks that only wait do not slow each other down, so
    that each slot of a real node runs them at full speed.
    """
    replace = msgspec.structs.replace
    return replace(
        scenario,
        resources=[replace(each, sharing=None) for each in scenario.resources],
        types=[_scaled_type(each, scale) for each in scenario.types],
        tasks=[
            replace(each, arrival=(each.arrival or 0.0) / scale)
            for each in scenario.tasks
        ],
    )


def _scaled_type(kind: TypeModel, scale: float) -> TypeModel:
    return msgspec.structs.replace(
        kind,
        seconds={r: None if s is None else s / scale for r, s in kind.seconds.items()},
        state_bytes=int((kind.state_bytes or 0) / scale),
        migration_s=(kind.migration_s or 0.0) / scale,
    )


def warm_up(client: Client, resources: list[ResourceModel]) -> None:
    """Let workers start and load their libraries before anything is measured."""
    params = {"seconds": {each.name: 0.05 for each in resources}, "strips": 1}
    spec = describe(build(resolve(APP), params), APP, Options())
    for handle in client.submit_specs([spec] * WARM_TASKS):
        handle.wait(PATIENCE_S)


def run_live(client: Client, scenario: Scenario, policy: str) -> LiveResult:
    """Run a scenario in real time, under a policy.

    Raises:
        TaskFailedError: a task did not complete.

    """
    client.policy(policy)
    client.learn(_expectations(scenario))
    handles = _submit(client, scenario)
    for handle in handles:
        handle.wait(PATIENCE_S)
    ids = tuple(handle.id for handle in handles)
    return _measured(list(client.tasks(Selection(ids=ids, detail=True))))


def _expectations(scenario: Scenario) -> list[Sample]:
    return [
        Sample(f"{APP}/{kind.name}", resource, seconds)
        for kind in scenario.types
        for resource, seconds in kind.seconds.items()
        if seconds is not None
    ]


def _submit(client: Client, scenario: Scenario) -> list[TaskHandle]:
    """Submit the tasks as they arrive; those of one instant in one message."""
    specs = {kind.name: _spec(kind, scenario.resources) for kind in scenario.types}
    handles: list[TaskHandle] = []
    origin = time.monotonic()
    tasks = sorted(scenario.tasks, key=lambda task: task.arrival or 0.0)
    for arrival, together in groupby(tasks, key=lambda task: task.arrival or 0.0):
        time.sleep(max(0.0, origin + arrival - time.monotonic()))
        handles += client.submit_specs([specs[task.type] for task in together])
    return handles


def _spec(kind: TypeModel, resources: list[ResourceModel]) -> TaskSpec:
    links = {each.name: each.link_bytes_per_s for each in resources}
    params: dict[str, Any] = {
        "seconds": {r: s for r, s in kind.seconds.items() if s is not None},
        "strips": kind.strips,
        "state_bytes": int(kind.state_bytes or 0),
        "move_seconds": kind.migration_s or 0.0,
        "links": {name: rate for name, rate in links.items() if rate is not None},
        "label": kind.name,
    }
    return describe(build(resolve(APP), params), APP, Options(strip=1))


def _measured(tasks: list[TaskInfo]) -> LiveResult:
    for info in tasks:
        if info.state != "completed":
            raise TaskFailedError(f"task {info.id} {info.state}: {info.reason}")
    began = min(info.submitted for info in tasks)
    ended = max(info.finished or 0.0 for info in tasks)
    return LiveResult(ended - began, sum(info.migrations for info in tasks))
