"""Energy accounting: the energy of each resource and of each task.

Between two changes of the tasks on a resource, its meter or else its model (busy or
idle watts times time) gives the energy. Running tasks share it: an accelerator runs one
task, on the CPU they share by the processor time that they used. Pure except for the
meters; time is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetd.devices.meter import MeterError
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetd.devices.meter import Meter
    from hetsched.ids import Nanoseconds
    from hetsched.system import Resource


@dataclass(frozen=True, slots=True)
class Charge:
    """Energy of a segment of a task; `measured`: whether a meter measured all of it."""

    joules: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Total:
    """Energy of a resource since the book was opened, while tasks ran and while not.

    Published sums must not shrink. The share of a segment before its first strip is
    therefore kept apart until that strip is done: a failed attempt counts neither as busy
    time nor as energy of a task.

    Attributes:
        starting_joules: drawn by segments before their first strip; `starting_s`: their
            time.
        seconds: how long it has been open.
        busy_s: seconds that its slots had tasks, summed over the slots.
        measured: by a meter from the beginning.

    """

    busy_joules: float
    idle_joules: float
    seconds: float
    busy_s: float
    measured: bool
    starting_joules: float = 0.0
    starting_s: float = 0.0


@dataclass(slots=True)
class _Share:
    """A running task's part; `used`: processor seconds reported since it was settled.

    Attributes:
        used_in_all: processor seconds of the segment, as reported.
        seconds: how long it has run.
        proven: whether it has finished a strip, or ended without an error.
        alone: its share of the energy drawn while no proven segment ran there, joules.
        alone_idle: the part of `alone` that idling would have drawn, joules.

    """

    joules: float = 0.0
    measured: bool = True
    used: float = 0.0
    used_in_all: float = 0.0
    seconds: float = 0.0
    proven: bool = False
    alone: float = 0.0
    alone_idle: float = 0.0


class _Account:
    """One resource."""

    def __init__(
        self,
        resource: Resource,
        meter: Meter | None,
        now: Nanoseconds,
        lost: Callable[[str, str], None],
    ) -> None:
        self.resource = resource
        self.running: dict[int, _Share] = {}
        self.busy = self.idle = self.busy_s = 0.0
        self.opened = self.at = now
        self.measured = meter is not None
        self.meter = meter
        self._lost = lost
        self._read = 0.0

    @property
    def known(self) -> bool:
        """Whether there are any figures of its power."""
        return self.meter is not None or self.resource.busy_watts > 0

    def settle(self, now: Nanoseconds) -> None:
        """Charge what was drawn since the last time."""
        seconds = (now - self.at) / SECOND
        if seconds <= 0:
            return
        self.at = now
        drawn = self._drawn(seconds)
        if not self.running:
            self.idle += drawn
            return
        proven = sum([share.proven for share in self.running.values()])
        # a task that waits for others has none: it lends its own
        self.busy_s += seconds * min(proven, self.resource.slots)
        if proven:
            self.busy += drawn
        self._divide(drawn, seconds, alone=not proven)

    def prove(self, share: _Share) -> None:
        """Count a segment that has computed, including its time before that."""
        if not share.proven:
            share.proven = True
            self.busy += share.alone
            self.busy_s += share.seconds

    def _drawn(self, seconds: float) -> float:
        if self.meter is not None:
            try:
                before, self._read = self._read, self.meter.joules()
            except MeterError as error:
                self._lost(self.resource.name, str(error))
                self.meter.close()
                self.meter = None
                self.measured = False
            else:
                return self._read - before
        busy = bool(self.running)
        watts = self.resource.busy_watts if busy else self.resource.idle_watts
        return watts * seconds

    def _divide(self, drawn: float, seconds: float, *, alone: bool) -> None:
        measured = self.meter is not None
        weights = [1.0]  # of a task alone
        if len(self.running) > 1:
            weights = [self._weight(each, seconds) for each in self.running.values()]
        whole = sum(weights)
        for share, weight in zip(self.running.values(), weights, strict=True):
            part = weight / whole if whole > 0 else 1 / len(weights)
            share.joules += drawn * part
            if alone:
                idle = drawn if measured else self.resource.idle_watts * seconds
                share.alone += drawn * part
                share.alone_idle += idle * part
            share.measured = share.measured and measured
            share.seconds += seconds
            share.used = 0.0

    def _weight(self, share: _Share, seconds: float) -> float:
        """Processor time in this period: as reported, or at the pace until now."""
        if self.resource.slots == 1:
            return 1.0
        if share.used > 0:
            return share.used
        if share.used_in_all > 0:
            return share.used_in_all / share.seconds * seconds
        return seconds  # as one core would use; nothing was reported yet


class EnergyBook:
    """Charges energy to tasks.

    Args:
        resources: with their figures of power.
        meters: of those that have one.
        now: when the book is opened.
        lost: called with name and reason when a meter is lost.

    """

    def __init__(
        self,
        resources: Sequence[Resource],
        meters: dict[str, Meter],
        now: Nanoseconds,
        lost: Callable[[str, str], None],
    ) -> None:
        self._accounts = {
            each.name: _Account(each, meters.get(each.name), now, lost)
            for each in resources
        }
        self.charged: dict[int, _Account] = {}
        """Tasks that are charged at present, by id."""

    def begin(self, task: int, resource: str, now: Nanoseconds) -> None:
        """Charge a task from now on."""
        account = self._accounts[resource]
        account.settle(now)
        account.running[task] = _Share()
        self.charged[task] = account

    def used(self, task: int, cpu_seconds: float) -> None:
        """Add processor seconds that a running task used in strips since the last report."""
        account = self.charged.get(task)
        if account is not None:
            share = account.running[task]
            account.prove(share)
            share.used += cpu_seconds
            share.used_in_all += cpu_seconds

    def used_in_all(self, task: int, cpu_seconds: float) -> None:
        """Set the processor seconds of the whole segment."""
        account = self.charged.get(task)
        if account is not None:
            share = account.running[task]
            share.used += max(0.0, cpu_seconds - share.used_in_all)
            share.used_in_all = max(cpu_seconds, share.used_in_all)
            account.prove(share)

    def end(
        self, task: int, now: Nanoseconds, *, failed: bool = False
    ) -> Charge | None:
        """Stop charging a task; return None if it was not charged or power is unknown.

        Args:
            task: the task.
            now: when its segment ended.
            failed: whether it was a failed attempt, which is not charged.

        """
        account = self.charged.pop(task, None)
        if account is None:
            return None
        account.settle(now)
        share = account.running.pop(task)
        if failed and not share.proven:
            account.idle += share.alone_idle
            return None
        account.prove(share)
        return Charge(share.joules, share.measured) if account.known else None

    def total(self, resource: str, now: Nanoseconds) -> Total:
        """Sum up a resource until now."""
        account = self._accounts[resource]
        account.settle(now)
        starting = [each for each in account.running.values() if not each.proven]
        return Total(
            account.busy,
            account.idle,
            (now - account.opened) / SECOND,
            account.busy_s,
            account.measured,
            sum(share.alone for share in starting),
            sum(share.seconds for share in starting),
        )

    def close(self) -> None:
        """Close the meters."""
        for account in self._accounts.values():
            if account.meter is not None:
                account.meter.close()
