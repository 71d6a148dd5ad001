"""Limits: parameters of the scheduler's mechanism, and what each user's tasks may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetsched.ids import Nanoseconds

FIRST_NS: Nanoseconds = 60 * 1_000_000_000
"""How long an application avoids a resource after its first failure there."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What one user's tasks may take.

    Attributes:
        running: tasks that run or are up for it at once; None: any number.
        share: weight among users whose tasks are alike to the policy; above 0.

    """

    running: int | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas of all users, by uid; `everybody` holds for the others."""

    everybody: Quota = Quota()
    single: Mapping[int, Quota] = field(default_factory=dict)

    def of(self, owner: int) -> Quota:
        return self.single.get(owner, self.everybody)

    @property
    def limited(self) -> bool:
        """Whether there is any limit to running tasks."""
        return any(
            q.running is not None for q in (self.everybody, *self.single.values())
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """Parameters of the mechanism.

    Attributes:
        attempts: bindings to a worker that a task may lose before it fails.
        stage: tasks staged ahead for each slot.
        stage_above_s: tasks expected to be shorter are not staged: it costs a message
            and saves less.
        quotas: what each user's tasks may take at first.
        avoid_ns: how long an application avoids a resource where it failed once.
        train: tasks that one slot may be given at once, if they are alike, of one owner
            and priority, and each is expected to take `train_task_s` at most and
            all of them `train_s`; 1: none.
        train_due_s: how long the first of them may take before the others are taken back.
        at_once: tasks that one handling of events deals with besides those that the
            events name: placed by the policy, dependents of one that ended, displaced
            by a drain or a new policy. The rest follows with the next, which a timer
            asks for. None: any number.

    """

    attempts: int = 3
    stage: int = 1
    stage_above_s: float = 0.005
    quotas: Quotas = field(default_factory=Quotas)
    avoid_ns: Nanoseconds = FIRST_NS
    at_once: int | None = None
    train: int = 1
    train_task_s: float = 0.0005
    train_s: float = 0.002
    train_due_s: float = 0.005
