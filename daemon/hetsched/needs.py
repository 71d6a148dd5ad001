"""Needs of tasks: processor cores, host memory and device memory, counted for every policy.

A task with needs starts only when what it needs is free. Until then it is *blocked*: it waits,
in order, hidden from policies. The first blocked task has a *reservation*: the instant at
which, by the expected times of the running tasks, its needs will be free. Later tasks start
before it only if they are expected to end by then, or leave enough for it. That is EASY
backfilling: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995, section 3; A. Mu'alem and
D. Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling
the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001, section 2.2.

Only running tasks take up capacity. A task that was admitted and waits in the run queue of a
busy resource holds nothing that another one waits for, so no two tasks wait for each other; it
is blocked again if its needs are not free when it is its turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.ids import Nanoseconds
from hetsched.queues import ExpectedUse, Turns, blocked_key
from hetsched.system import LONGEST_S, SECOND
from hetsched.tasks import TaskRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hetsched.ids import TaskId
    from hetsched.limits import Capacity, Needs
    from hetsched.system import System

MOST_EXAMINED = 100
"""Groups of equal blocked tasks that are examined, in order, when something becomes free."""


class Room:
    """Free cores, host memory and device memory.

    Args:
        cores: free processor cores; infinite: not counted.
        memory_bytes: free host memory; infinite: not counted.
        devices: resource -> its memory; absent: not counted. A task that needs more than
            a device has may run there alone: it is one of an earlier start.

    Attributes:
        device_bytes: resource -> free device memory.

    """

    __slots__ = ("cores", "device_bytes", "devices", "memory_bytes")

    def __init__(
        self, cores: float, memory_bytes: float, devices: dict[str, int]
    ) -> None:
        self.cores = cores
        self.memory_bytes = memory_bytes
        self.devices = devices
        self.device_bytes = devices.copy()

    def copy(self) -> Room:
        room = Room(self.cores, self.memory_bytes, self.devices)
        room.device_bytes = self.device_bytes.copy()
        return room

    def holds(self, needs: Needs, resources: Collection[str]) -> bool:
        """Whether there is room for these needs on at least one of the resources."""
        if needs.cores > self.cores or needs.memory_bytes > self.memory_bytes:
            return False
        if not needs.device_bytes:
            return True
        free = self.device_bytes
        return any(
            r not in free or free[r] >= min(needs.device_bytes, self.devices[r])
            for r in resources
        )

    def take(self, needs: Needs, resource: str | None) -> None:
        """Take up room; without a resource, none of a device's memory."""
        self._change(needs, resource, -1)

    def give(self, needs: Needs, resource: str | None) -> None:
        """Give back what was taken."""
        self._change(needs, resource, 1)

    def _change(self, needs: Needs, resource: str | None, sign: int) -> None:
        self.cores += sign * needs.cores
        self.memory_bytes += sign * needs.memory_bytes
        if needs.device_bytes and resource in self.device_bytes:
            taken = min(needs.device_bytes, self.devices[resource])
            self.device_bytes[resource] += sign * taken


@dataclass(frozen=True, slots=True)
class Reservation:
    """The reservation of the first blocked task.

    Attributes:
        at: instant at which its needs are expected to be free.
        room: what is expected to be free then, with what it needs itself.

    """

    task: TaskRecord
    at: Nanoseconds
    room: Room


class NeedsLedger:
    """Counts what running tasks need, and decides which blocked tasks may start."""

    def __init__(self, system: System, capacity: Capacity) -> None:
        self._system = system
        self.capacity = capacity
        devices = {
            name: resource.memory_bytes
            for name, resource in system.resources.items()
            if resource.memory_bytes is not None
        }
        cores = math.inf if capacity.cores is None else capacity.cores
        memory = math.inf if capacity.memory_bytes is None else capacity.memory_bytes
        self.room = Room(cores, memory, devices)
        self._holding: dict[TaskId, TaskRecord] = {}
        self.pledged: dict[TaskId, TaskRecord] = {}
        """Tasks admitted in this call, before the policy has placed them: room is held for
        them. Read only."""
        self._version = 0
        self.to_review = True
        """Whether something changed since no more blocked tasks could be admitted."""
        self._releases = 0
        self._reserved_at = (-1, -1)
        self._reservation: Reservation | None = None

    # ------------------------------------------------------------ running tasks

    def enter(self, task: TaskRecord, resource: str) -> None:
        """Count the needs of a task that starts to run."""
        if task.needs is None:
            return
        self._withdraw_pledge(task)
        self.room.take(task.needs, resource)
        self._holding[task.id] = task
        self._change()

    def leave(self, task: TaskRecord, resource: str) -> None:
        """Stop counting a task that does not run any more."""
        if task.needs is None:
            return
        del self._holding[task.id]
        self.room.give(task.needs, resource)
        self.release()

    def release(self) -> None:
        """Note that blocked tasks may be able to start: something became free or usable."""
        self._releases += 1
        self._change()

    # ------------------------------------------------------------ blocked tasks

    def block(self, task: TaskRecord, resource: str | None = None) -> None:
        """Let a task wait, hidden from policies, until what it needs is free.

        Args:
            task: in no queue.
            resource: where it had a free slot. If there is no room for it there, it is not
                examined again before something becomes free: its policy might place it
                there again and again.

        """
        self._withdraw_pledge(task)
        task.gated = -1
        if resource is not None and task.needs is not None:
            fits = self.room.holds(task.needs, (resource,))
            task.gated = -1 if fits else self._releases
        self._system.blocked.push(task)
        self._change()

    def unblock(self, task: TaskRecord) -> None:
        """Remove a task that is withdrawn; it may have kept later ones from starting."""
        self._system.blocked.remove(task)
        self.release()

    def may_start(self, task: TaskRecord, resource: str | None = None) -> bool:
        """Whether a task's needs are free, and the reservation of an earlier one is kept.

        Args:
            task: a waiting task.
            resource: where it would run; None: wherever it can run now.

        """
        if task.needs is None:
            return True
        self._withdraw_pledge(task)
        return self._may_start(task, resource)

    def admit(self, most: int) -> Iterator[TaskRecord]:
        """Admit and yield blocked tasks that may start, in order; at most `most`."""
        if not self.to_review:
            return
        for task in self._startable():
            if most <= 0:
                return
            most -= 1
            self._system.blocked.remove(task)
            self._pledge(task)
            yield task
        self.to_review = False

    @property
    def may_admit(self) -> bool:
        """Whether a blocked task may start."""
        if not self.to_review or not self._system.blocked:
            return False
        if next(self._startable(), None) is not None:
            return True
        self.to_review = False
        return False

    def pledged_to(self, resource: str) -> list[TaskRecord]:
        """List the tasks admitted in this call that wait for a resource, in order."""
        there = [t for t in self.pledged.values() if t.resource == resource]
        return sorted(there, key=blocked_key)

    def end_pledges(self) -> None:
        """Stop holding room for admitted tasks that did not start."""
        for task in list(self.pledged.values()):
            self._withdraw_pledge(task)

    def reservation(self) -> Reservation | None:
        """Return the reservation of the first blocked task that some usable resource can run."""
        stamp = (self._system.now, self._version)
        if self._reserved_at != stamp:
            self._reserved_at = stamp
            self._reservation = self._reserve()
        return self._reservation

    # ------------------------------------------------------------ parts

    def _startable(self) -> Iterator[TaskRecord]:
        """Iterate over blocked tasks that may start, in order.

        The caller removes each from the blocked tasks before it asks for the next. Where
        the first of several equal tasks may not start, the others may not, either.
        """
        blocked = self._system.blocked
        use = ExpectedUse()
        turns: Turns[object] = Turns(use)
        for task in blocked.heads():
            turns.offer(blocked_key(task), task, blocked.group_of(task))
        examined = 0
        while turns and examined < MOST_EXAMINED:
            task, group = turns.take()
            if task.gated == self._releases or not self._may_start(task, None):
                examined += 1
                continue
            yield task
            use.charge(task)
            following = blocked.head_of(group)
            if following is not None:
                turns.offer(blocked_key(following), following, group)

    def _may_start(self, task: TaskRecord, resource: str | None) -> bool:
        places: Collection[str] = (
            self._system.affinities(task.row) if resource is None else (resource,)
        )
        if not places or not self.room.holds(task.needs, places):  # type: ignore[arg-type]  # callers checked
            return False
        kept = self.reservation()
        return (
            kept is None
            or not blocked_key(kept.task) < blocked_key(task)
            or self._spares(kept, task, places)
        )

    def _spares(
        self, kept: Reservation, task: TaskRecord, places: Collection[str]
    ) -> bool:
        """Whether a task that starts now leaves what is reserved for an earlier one."""
        # The longest, as its policy may place it on any of them.
        seconds = max(self._remaining(task, place) for place in places)
        if self._system.now + round(seconds * SECOND) <= kept.at:
            return True
        if task.needs is None or kept.task.needs is None:
            return True
        (place, *others) = places
        room = kept.room.copy()
        room.take(task.needs, None if others else place)
        return room.holds(kept.task.needs, self._system.affinities(kept.task.row))

    def _reserve(self) -> Reservation | None:
        system = self._system
        able = [t for t in system.blocked.heads() if system.affinities(t.row)]
        task = min(able, key=blocked_key, default=None)
        if task is None or task.needs is None:
            return None
        places = system.affinities(task.row)
        room, at = self.room.copy(), system.now
        for end, _, other in sorted(self._expected_ends()):
            if end > at and room.holds(task.needs, places):
                break
            if other.needs is not None:
                where = None if other.id in self.pledged else other.resource
                room.give(other.needs, where)
            at = end
        return Reservation(task, at, room)

    def _expected_ends(self) -> Iterator[tuple[Nanoseconds, TaskId, TaskRecord]]:
        now = self._system.now
        for task in self._holding.values():
            seconds = self._remaining(task, task.assigned_to)
            yield now + round(seconds * SECOND), task.id, task
        for task in self.pledged.values():
            seconds = self._system.fit(task.row).least_s
            yield now + round(seconds * SECOND), task.id, task

    def _remaining(self, task: TaskRecord, resource: str) -> float:
        """Return the seconds that a task is expected to run, at most those it may run."""
        system = self._system
        whole = system.estimates.seconds(task.row, system.resources[resource])
        left = whole * system.left(task) if whole < math.inf else LONGEST_S
        return min(left, task.submitted.time_limit_s, LONGEST_S)

    def _pledge(self, task: TaskRecord) -> None:
        if task.needs is None:
            return
        self.room.take(task.needs, None)
        self.pledged[task.id] = task
        self._change()

    def _withdraw_pledge(self, task: TaskRecord) -> None:
        if task.needs is not None and self.pledged.pop(task.id, None) is not None:
            self.room.give(task.needs, None)
            self._change()

    def _change(self) -> None:
        self._version += 1
        self.to_review = True
