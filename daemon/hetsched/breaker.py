"""The circuit breaker: an application that failed on a resource avoids it for some time.

A pair of an application and a resource is *closed* while no failure is known. A failure
*opens* it: tasks of that application and owner run elsewhere. Each consecutive failure
doubles the time. After that time the pair is *half-open*: one task may try it. The first
checkpoint there closes it; another failure opens it for longer.

Pairs are kept for each owner, so that one user's tasks never decide where another's run.
Pure: `SchedulerState` changes it, and gives tasks rows without the resources to avoid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hetsched.ids import Nanoseconds, TaskId
from hetsched.limits import FIRST_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetsched.events import Cause, TaskSubmitted

SECOND: Nanoseconds = 1_000_000_000
LONGEST_NS: Nanoseconds = 86_400 * SECOND
"""Longest time for which a pair stays open: each is tried at least once a day."""
PAIRS_OF_OWNER = 64
"""Pairs kept for one owner; beyond, the one with the earliest retry is removed."""
OWNERS = 1024
"""Owners with pairs; beyond, the one whose last failure is oldest is removed."""
LONGEST_REASON = 300
"""Characters kept of a reason."""

PERHAPS_FROM_OUTSIDE: frozenset[Cause] = frozenset({"killed", "stuck"})
"""Causes that need not be the program's fault: the task may be tried there again."""


class Pair(NamedTuple):
    """An application of an owner, and a resource."""

    owner: int
    app: str
    resource: str


class Fault(NamedTuple):
    """How a task failed on a resource, and of which version of its application."""

    version: str
    cause: Cause
    reason: str


@dataclass(slots=True)
class Circuit:
    """The failures of a pair.

    Attributes:
        fault: the last one.
        failures: in a row, without a checkpoint between them.
        failed_at: when the last one was.
        retry_at: when one task may try the pair.
        half_open: whether that time has come.
        trial: the task that may try it or runs there for that; None: none yet.

    """

    fault: Fault
    failures: int
    failed_at: Nanoseconds
    retry_at: Nanoseconds
    half_open: bool = False
    trial: TaskId | None = None


class Breaker:
    """Keeps the pairs that failed.

    Args:
        first_ns: how long a pair is open after its first failure.

    """

    def __init__(self, first_ns: Nanoseconds = FIRST_NS) -> None:
        self._first = first_ns
        self.circuits: dict[tuple[int, str], dict[str, Circuit]] = {}
        """Owner and application -> resource -> circuit; read only. Empty: all are closed."""
        self._owners: dict[int, int] = {}
        """Owner -> number of pairs; first the one whose last failure is oldest."""
        self.trials: dict[TaskId, Pair] = {}
        """Tasks that try a half-open pair; read only."""
        self._next: Nanoseconds | None = None
        self._next_known = True
        self._offers = 0
        """Number of half-open pairs that no task tries."""
        self.changed: dict[Pair, Circuit | None] = {}
        """Pairs that failed or were removed since `SchedulerState` last stored them."""

    def __bool__(self) -> bool:
        """Whether any pair is open or half-open."""
        return bool(self.circuits)

    def __iter__(self) -> Iterator[tuple[Pair, Circuit]]:
        for (owner, app), circuits in self.circuits.items():
            for resource, circuit in circuits.items():
                yield Pair(owner, app, resource), circuit

    # ------------------------------------------------------------ looking

    def find(self, task: TaskSubmitted, resource: str) -> Circuit | None:
        """Return the circuit of a task's application on a resource, if it has failed there."""
        circuit = self.circuits.get(key_of(task), {}).get(resource)
        if circuit is None or circuit.fault.version != task.version:
            return None
        return circuit

    def avoided(self, task: TaskSubmitted) -> frozenset[str]:
        """Return the resources that a task should avoid if it can run on others."""
        circuits = self.circuits.get(key_of(task))
        if circuits is None:
            return frozenset()
        return frozenset(
            name
            for name, circuit in circuits.items()
            if circuit.fault.version == task.version and circuit.trial != task.task
        )

    def next_retry(self) -> Nanoseconds | None:
        """Return the next instant at which a pair becomes half-open; None: there is none."""
        if not self._next_known:
            times = [each.retry_at for _, each in self if not each.half_open]
            self._next = min(times, default=None)
            self._next_known = True
        return self._next

    # ------------------------------------------------------------ failures

    def fail(
        self, pair: Pair, fault: Fault, since: Nanoseconds, now: Nanoseconds
    ) -> set[tuple[int, str]]:
        """Open a pair on which a task failed, for longer than the last time.

        Failures of tasks that ran there at the same time count as one.

        Args:
            pair: where and what failed.
            fault: how.
            since: when the task came to the resource.
            now: the present instant.

        Returns:
            the owners and applications whose pairs changed.

        """
        circuits = self.circuits.setdefault((pair.owner, pair.app), {})
        before = circuits.pop(pair.resource, None)
        if before is not None:
            self._withdraw(before)
        failures = 1
        if before is not None and before.fault.version == fault.version:
            failures = before.failures + (since >= before.failed_at)
        pause = min(LONGEST_NS, self._first << min(failures - 1, 62))
        circuit = Circuit(fault, failures, now, now + pause)
        circuits[pair.resource] = self.changed[pair] = circuit
        self._next_known = False
        self._owners[pair.owner] = self._owners.pop(pair.owner, 0) + (before is None)
        return {(pair.owner, pair.app), *self._make_room(pair)}

    def worked(self, pair: Pair, version: str, since: Nanoseconds) -> bool:
        """Close a pair on which a task reached a checkpoint; return whether that changed it.

        The checkpoint of a task that started there before the last failure does not count.
        """
        circuit = self.circuits.get((pair.owner, pair.app), {}).get(pair.resource)
        if circuit is None or circuit.fault.version != version:
            return False
        if since < circuit.failed_at:
            return False
        self._drop(pair)
        return True

    def forget(self, chosen: Callable[[Pair, Circuit], bool]) -> list[Pair]:
        """Close and return the pairs that `chosen` selects."""
        gone = [pair for pair, circuit in self if chosen(pair, circuit)]
        for pair in gone:
            self._drop(pair)
        return gone

    def supersede(self, task: TaskSubmitted) -> list[Pair]:
        """Close the pairs of other versions of a task's application."""
        if key_of(task) not in self.circuits:
            return []
        owner, app = key_of(task)
        return self.forget(
            lambda pair, circuit: (
                pair.owner == owner
                and pair.app == app
                and circuit.fault.version != task.version
            )
        )

    def restore(self, pair: Pair, circuit: Circuit) -> None:
        """Restore a pair that was stored before a restart."""
        circuits = self.circuits.setdefault((pair.owner, pair.app), {})
        circuits[pair.resource] = circuit
        self._owners[pair.owner] = self._owners.get(pair.owner, 0) + 1
        self._next_known = False

    # ------------------------------------------------------------ trials

    def expire(self, resource: str, now: Nanoseconds) -> None:
        """Let each pair of a resource be tried now, because the resource was repaired."""
        for pair, circuit in self:
            if pair.resource == resource and not circuit.half_open:
                circuit.retry_at = min(circuit.retry_at, now)
        self._next_known = False

    def due(self, now: Nanoseconds) -> list[Pair]:
        """Make the pairs whose time has come half-open, and return them."""
        found = [
            (pair, circuit)
            for pair, circuit in self
            if not circuit.half_open and circuit.retry_at <= now
        ]
        for _, circuit in found:
            circuit.half_open = True
            self._offers += 1
        self._next_known = False
        return [pair for pair, _ in found]

    def offers(self, task: TaskSubmitted) -> list[str]:
        """Return the resources on which this task may try a half-open pair."""
        if not self._offers or task.task in self.trials:
            return []
        return [
            name
            for name, circuit in self.circuits.get(key_of(task), {}).items()
            if circuit.half_open
            and circuit.trial is None
            and circuit.fault.version == task.version
        ]

    def give_trial(self, task: TaskSubmitted, resource: str) -> None:
        """Assign the trial of a half-open pair to this task."""
        circuit = self.circuits[key_of(task)][resource]
        circuit.trial = task.task
        self.trials[task.task] = Pair(*key_of(task), resource)
        self._offers -= 1

    def trial_of(self, task: TaskId) -> str | None:
        """Return the resource on which a task has a trial; None: it has none."""
        pair = self.trials.get(task)
        return None if pair is None else pair.resource

    def release(self, task: TaskId, now: Nanoseconds) -> bool:
        """Withdraw a task's trial; another task may try the pair after the first pause."""
        pair = self.trials.pop(task, None)
        if pair is None:
            return False
        circuit = self.circuits[pair.owner, pair.app][pair.resource]
        circuit.trial = None
        circuit.half_open = False
        circuit.retry_at = now + self._first
        self._next_known = False
        return True

    # ------------------------------------------------------------ parts

    def _withdraw(self, circuit: Circuit) -> None:
        """End the trial of a circuit that is removed."""
        if circuit.trial is not None:
            del self.trials[circuit.trial]
        elif circuit.half_open:
            self._offers -= 1

    def _drop(self, pair: Pair) -> None:
        self._next_known = False
        circuits = self.circuits[pair.owner, pair.app]
        self._withdraw(circuits.pop(pair.resource))
        if not circuits:
            del self.circuits[pair.owner, pair.app]
        self._owners[pair.owner] -= 1
        if not self._owners[pair.owner]:
            del self._owners[pair.owner]
        self.changed[pair] = None

    def _make_room(self, newest: Pair) -> Iterator[tuple[int, str]]:
        """Remove pairs beyond the limits, but not the newest."""
        if self._owners[newest.owner] > PAIRS_OF_OWNER:
            own = [
                (circuit.retry_at, pair)
                for pair, circuit in self
                if pair.owner == newest.owner and pair != newest
            ]
            _, first = min(own)
            self._drop(first)
            yield first.owner, first.app
        if len(self._owners) > OWNERS:
            owner = next(iter(self._owners))
            for pair in self.forget(lambda pair, _: pair.owner == owner):
                yield pair.owner, pair.app


def key_of(task: TaskSubmitted) -> tuple[int, str]:
    """Return owner and application of a task; the type where it names no application."""
    return task.owner, task.app or task.type
