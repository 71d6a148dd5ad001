"""Limits: parameters of the scheduler's mechanism, and the quotas of users."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetsched.ids import Nanoseconds

FIRST_NS: Nanoseconds = 60 * 1_000_000_000
"""Time for which an application avoids a resource after its first failure there."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of one user.

    Attributes:
        running: tasks that may run, or wait for a slot, at once; None: any number.
        share: weight among users whose tasks of equal priority wait; above 0.

    """

    running: int | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas of all users, by uid; `everybody` applies to the others."""

    everybody: Quota = Quota()
    single: Mapping[int, Quota] = field(default_factory=dict)

    def of(self, owner: int) -> Quota:
        return self.single.get(owner, self.everybody)

    @property
    def limited(self) -> bool:
        """Whether the running tasks of any user are limited."""
        return any(
            q.running is not None for q in (self.everybody, *self.single.values())
        )


class Needs(msgspec.Struct, frozen=True):
    """Needs of a task while it runs, in addition to its slot.

    Attributes:
        cores: processor cores of the host.
        memory_bytes: host memory.
        device_bytes: memory of the device that it runs on.

    """

    cores: int = 0
    memory_bytes: int = 0
    device_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity of a node for the needs of its tasks; None: it is not counted.

    Attributes:
        cores: processor cores.
        memory_bytes: host memory.

    """

    cores: int | None = None
    memory_bytes: int | None = None

    def bound(self, needs: Needs | None) -> Needs | None:
        """Return needs that the node can meet: a task of an earlier start may need more."""
        if needs is None:
            return None
        cores, memory = needs.cores, needs.memory_bytes
        if self.cores is not None:
            cores = min(cores, self.cores)
        if self.memory_bytes is not None:
            memory = min(memory, self.memory_bytes)
        return Needs(cores, memory, needs.device_bytes)


@dataclass(frozen=True, slots=True)
class Limits:
    """Parameters of the mechanism.

    Attributes:
        attempts: bindings to a worker that a task may lose before it fails.
        stage: tasks staged ahead for each slot.
        stage_above_s: tasks expected to be shorter are not staged, because that costs a
            message and saves less.
        quotas: the quotas of users at the start.
        avoid_ns: how long an application avoids a resource after its first failure there.
        train: most tasks of a train: tasks of one row, owner and priority that one worker
            has in one slot; 1: no trains.
        train_task_s: longest expected time of each task of a train, seconds;
            `train_s`: of all its tasks, where it has more than two.
        train_due_s: an unstarted task of a train is overdue this long after its dispatch
            and twice the expected time of those before it, seconds; `train_stuck_s`: and
            the train is stuck this long after the last start and twice the time of one.
        at_once: number of tasks that one call handles in addition to those that its events
            name: placed by the policy, dependents of one that ended, displaced by a drain
            or a new policy. The others follow in the next call, for which the actions
            contain a `SetTimer`. None: any number.
        capacity: what the tasks that run may need together.
        lend: slots that tasks which wait for others may lend at once, for each slot of a
            resource: the depth to which calls may wait for calls.

    """

    attempts: int = 3
    stage: int = 1
    stage_above_s: float = 0.005
    quotas: Quotas = field(default_factory=Quotas)
    avoid_ns: Nanoseconds = FIRST_NS
    at_once: int | None = None
    train: int = 1
    train_task_s: float = 0.05
    train_s: float = 0.004
    train_due_s: float = 0.005
    train_stuck_s: float = 0.02
    capacity: Capacity = field(default_factory=Capacity)
    lend: int = 16
