"""Late binding: a task is given to a resource when a slot is free, not before.

Nothing waits in a local queue, so nothing is wrong about a queue: only the task's own
time is uncertain. A slot takes the task of the greatest value: what its completion is
worth (`prices`), times the probability of it (`Chances`), for each second of the slot.
Called by the policy `fair-deadline`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetsched.planning.outlook import CHECKPOINT_S, Outlook
from hetsched.policy import Place, Preempt
from hetsched.queues import NEVER
from hetsched.system import SECOND, System
from hetsched.tasks import TaskRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.ids import Nanoseconds
    from hetsched.system import Resource
    from hetsched.tasks import Row


WORTHWHILE = 1e-3
"""A running task that is in less danger than this is left alone."""

EVEN = 0.5
"""A type worth less than this share of another does not go before it."""

HIGHEST = 3.0
"""Greatest logarithm of a price: a type that cannot meet its deadlines must not starve
the others for good."""

PROMISE = 0.9
"""The part of a completion that a running task counts for."""

ROOT_2 = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class Chances:
    """Estimates the probability that tasks meet their deadlines.

    Attributes:
        spread: standard deviation of an execution time, as a share of its expectation.
        margin: standard deviations that must be left for a task to count as safe.

    """

    spread: float = 0.1
    margin: float = 2.0

    def safe_time(self, expected: Nanoseconds) -> Nanoseconds:
        """Return the time within which a task is done with near certainty."""
        return round(expected * (1.0 + self.margin * self.spread))

    def within(self, slack: Nanoseconds, expected: Nanoseconds) -> float:
        """Estimate the chance that a task which starts now is done within `slack`."""
        return self._normal(slack - expected, expected)

    def of_running(self, task: TaskRecord, system: System) -> float:
        """Estimate the chance that a running task meets its deadline where it is."""
        deadline = due(task)
        if deadline == NEVER:
            return 1.0
        whole = system.fit(task.row).expected.get(task.assigned_to)
        if whole is None:
            return 0.0
        paced = _pace(task, whole)
        left = round(paced * task.left)
        end = max(task.progress_at + left, system.now)
        return self._normal(deadline - end, max(left, 1))

    def _normal(self, spare: Nanoseconds, uncertain: Nanoseconds) -> float:
        deviation = max(self.spread * uncertain, 1.0)
        return 0.5 * (1.0 + math.erf(spare / deviation / ROOT_2))


def due(task: TaskRecord) -> Nanoseconds:
    """Return the deadline of a task; `NEVER` where it has none."""
    deadline = task.submitted.deadline
    return NEVER if deadline is None else deadline


def time_elsewhere(task: TaskRecord, system: System, resource: str) -> Nanoseconds:
    """Return the time until a running task is done if it moves to an idle resource now."""
    expected = system.fit(task.row).expected[resource]
    here = task.assigned_to
    costs = Outlook(system, 1.0, 1.0).transfer(task, here, resource)
    costs += until_checkpoint(task, system)
    return round(expected * system.left(task) + costs * SECOND)


def until_checkpoint(task: TaskRecord, system: System) -> float:
    """Return the seconds until a running task comes to a checkpoint, at most."""
    strips = task.submitted.strips
    if strips is None:
        return CHECKPOINT_S
    return system.seconds(task.row, task.assigned_to) / strips


def _pace(task: TaskRecord, expected: Nanoseconds) -> float:
    """Return the time of the whole task at its pace since it came here."""
    seen = task.progress_at - task.since
    done = task.progress - task.progress_then
    return seen / done if seen > 0 and done > 0.0 else expected


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """A task that a free slot could take.

    Attributes:
        value: worth of its completion for each nanosecond of the slot.

    """

    value: float
    task: TaskRecord
    resource: str
    moves: bool = False


@dataclass(frozen=True, slots=True)
class LateBinding:
    """Binds waiting tasks, and running ones that move, to free slots.

    Attributes:
        gain: see `prices`.
        least_chance: a task that is not safe is not started with less, times its worth.
        patience: leave a task for a resource that takes less energy, where that can do
            it in time after all that wait.
        rescue: running tasks may move to where they still make their deadline.

    """

    system: System
    chances: Chances
    gain: float
    least_chance: float
    patience: bool
    rescue: bool

    def fill(self) -> Iterator[Place | Preempt]:
        """Give every free slot the task that is worth most to it."""
        system = self.system
        while free := [n for n in system.usable() if _free(system, n) > 0]:
            worth = prices(system, self.gain)
            offer = self._best_offer(free, worth)
            if offer is None:
                return
            if offer.moves:
                yield Preempt(offer.task.id, offer.resource)
            else:
                yield Place(self._before(offer, worth).id, offer.resource)

    def _best_offer(self, free: list[str], worth: dict[str, float]) -> SlotOffer | None:
        """Find the best offer, relative to the most that its resource could achieve."""
        backlog = self._backlog() if self.patience else {}
        best: tuple[float, SlotOffer] | None = None
        for name in free:
            most = self._most(name, worth)
            for offer in self._offers(self.system.resources[name], worth, backlog):
                rank = offer.value / most
                if best is None or rank > best[0]:
                    best = rank, offer
        return None if best is None else best[1]

    def _offers(
        self, resource: Resource, worth: dict[str, float], backlog: dict[str, int]
    ) -> Iterator[SlotOffer]:
        for row in self.system.unplaced.rows():
            expected = self.system.fit(row).expected.get(resource.name)
            if expected is None:
                continue
            task, chance = self._candidate(row, expected)
            # A gamble is for a type that has fallen behind: it costs energy.
            if chance < 1.0 and chance * worth[row.type] < self.least_chance:
                continue
            if not self._left(task, resource, backlog):
                value = worth[row.type] * chance / max(expected, 1)
                yield SlotOffer(value, task, resource.name)
        if self.rescue:
            yield from self._rescues(resource, worth)

    def _candidate(self, row: Row, expected: Nanoseconds) -> tuple[TaskRecord, float]:
        """Choose of a row the safe task that is due first, else the one due last."""
        order = self.system.unplaced.deadlines_of(row)
        now = self.system.now
        found = order.first_from(now + self.chances.safe_time(expected))
        if found is not None:
            return found[2], 1.0
        deadline, _, task = order.latest()
        return task, self.chances.within(deadline - now, expected)

    def _rescues(
        self, resource: Resource, worth: dict[str, float]
    ) -> Iterator[SlotOffer]:
        """SlotOffer running tasks that may miss their deadline where they are."""
        for task in movable(self.system):
            if resource.name not in self.system.fit(task.row).expected:
                continue
            needed = time_elsewhere(task, self.system, resource.name)
            saved = 1.0 - self.chances.of_running(task, self.system)
            safe = self.system.now + self.chances.safe_time(needed) <= due(task)
            if task.resource != resource.name and safe and saved > WORTHWHILE:
                value = worth[task.row.type] * saved / max(needed, 1)
                yield SlotOffer(value, task, resource.name, moves=True)

    # ------------------------------------------------------------ order

    def _before(self, offer: SlotOffer, worth: dict[str, float]) -> TaskRecord:
        """Find a task that misses its deadline behind the one offered, not the reverse.

        Types that are far ahead are left out: their short tasks would always get in.
        """
        system, safe_time = self.system, self.chances.safe_time
        chosen = offer.task
        own = system.fit(chosen.row).expected[offer.resource]
        lost = []
        for row in system.unplaced.rows():
            expected = system.fit(row).expected.get(offer.resource)
            if expected is None:
                continue
            order = system.unplaced.deadlines_of(row)
            found = order.first_from(system.now + safe_time(expected))
            if found is None or found[2] is chosen:
                continue
            waits = system.now + own + safe_time(expected)
            goes = system.now + expected + safe_time(own)
            even = worth[row.type] >= EVEN * worth[chosen.row.type]
            if even and found[0] < waits and due(chosen) >= goes:
                lost.append(found)
        return min(lost, key=lambda entry: entry[:2])[2] if lost else chosen

    # ------------------------------------------------------------ energy

    def _left(
        self, task: TaskRecord, resource: Resource, backlog: dict[str, int]
    ) -> bool:
        """Whether a task is better left for a resource that takes less energy."""
        deadline = due(task)
        if deadline == NEVER or not backlog:
            return False
        expected = self.system.fit(task.row).expected
        energy = resource.busy_watts * expected[resource.name]
        for name, seconds in expected.items():
            if self.system.resources[name].busy_watts * seconds < energy:
                late = backlog[name] + self.chances.safe_time(seconds) - seconds
                if late <= deadline:
                    return True
        return False

    def _backlog(self) -> dict[str, Nanoseconds]:
        """Return for each resource when it would have completed all that wait."""
        system = self.system
        rows = [
            (system.fit(row).expected, len(system.unplaced.deadlines_of(row)))
            for row in system.unplaced.rows()
        ]
        return {
            name: self._free_at(name)
            + sum(count * expected.get(name, 0) for expected, count in rows)
            // system.states[name].slots
            for name in system.usable()
        }

    def _free_at(self, name: str) -> Nanoseconds:
        """Return when a slot of a resource is expected to be free."""
        system = self.system
        state = system.states[name]
        if len(state.running) < state.slots:
            return system.now
        ends = [
            task.since + system.fit(task.row).expected.get(name, 0)
            for task in state.running.values()
        ]
        return max(system.now, min(ends, default=system.now))

    def _most(self, name: str, worth: dict[str, float]) -> float:
        """Value of the waiting type that suits a resource best."""
        system = self.system
        values = [
            worth[row.type] / max(system.fit(row).expected[name], 1)
            for row in system.unplaced.rows()
            if name in system.fit(row).expected
        ]
        return max(values, default=1e-9)


def movable(system: System) -> Iterator[TaskRecord]:
    """Running tasks with a deadline that come to a checkpoint before their end."""
    for state in system.states.values():
        for task in state.running.values():
            divisible = task.submitted.strips != 1 and task.preemptible
            if divisible and due(task) < NEVER and task.id not in system.departing:
                yield task


def _free(system: System, name: str) -> int:
    """Count the slots that no task takes or is about to take."""
    return system.spare(name) - system.inbound(name)


def prices(system: System, gain: float) -> dict[str, float]:
    """Price a completion of each type: a type that has fallen behind is worth more.

    A price moves with every task, so that types stay together without a limit below
    which they count as suffering: three that starve beside a favoured one are seen, and
    two and two.

    Args:
        system: its tally shows which types are behind.
        gain: how much one task behind, or ahead, changes the logarithm of the price.

    """
    tally = system.tally
    have = _completed_or_running(system)
    mean = sum(have.values()) / max(sum(tally.arrived.values()), 1)
    return {
        name: math.exp(_bounded(gain * (mean * arrived - have.get(name, 0.0))))
        for name, arrived in tally.arrived.items()
    }


def _completed_or_running(system: System) -> dict[str, float]:
    have: dict[str, float] = dict(system.tally.on_time)
    for state in system.states.values():
        for task in state.running.values():
            have[task.row.type] = have.get(task.row.type, 0.0) + PROMISE
    return have


def _bounded(logarithm: float) -> float:
    return max(-HIGHEST, min(HIGHEST, logarithm))
