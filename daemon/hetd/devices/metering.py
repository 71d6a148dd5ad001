"""Metering: charges energy to the segments of tasks, from the node's records."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from hetd.devices.energy import EnergyBook
from hetsched.system import SECOND
from hetsched.tasks import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.devices.meter import Meter
    from hetd.tasks.page import TaskPage
    from hetd.timers import Timers
    from hetsched.actions import Record
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.system import Resource
    from libtask.messages import DeviceInfo

log = logging.getLogger("hetd")

LONGEST = 10 * SECOND
"""Longest time between two readings: counters wrap around, within a minute on some
machines, and a child's pipe must not fill."""


class Metering:
    """Tracks which task runs on which resource, and charges its energy."""

    def __init__(
        self,
        resources: Sequence[Resource],
        meters: dict[str, Meter],
        timers: Timers,
    ) -> None:
        now = timers.clock.now()
        self._names = [resource.name for resource in resources]
        self._book = EnergyBook(resources, meters, now, _tell_lost)
        self.used = self._book.used
        self.used_in_all = self._book.used_in_all
        self._timers = timers
        timers.at(now + LONGEST, self._read)

    def note(self, record: Record, page: TaskPage, now: Nanoseconds) -> None:
        """Process a change of state, before the journal does."""
        if record.state is State.RUNNING:
            if record.event in ("dispatched", "restored", "found"):
                self._book.begin(record.task, record.resource or "", now)
        elif record.task in self._book.charged:
            self._end(page, now)

    def describe(self, device: DeviceInfo, now: Nanoseconds) -> DeviceInfo:
        """Add the energy of a resource since the start to its description."""
        total = self._book.total(device.spec.name, now)
        return msgspec.structs.replace(
            device,
            busy_joules=total.busy_joules,
            idle_joules=total.idle_joules,
            starting_joules=total.starting_joules,
            metered_s=total.seconds,
            busy_s=total.busy_s,
            starting_s=total.starting_s,
            measured=total.measured,
        )

    def close(self) -> None:
        """Close the meters."""
        self._book.close()

    def _read(self, now: Nanoseconds) -> Sequence[Event]:
        self._timers.at(now + LONGEST, self._read)
        for name in self._names:
            self._book.total(name, now)
        return ()

    def _end(self, page: TaskPage, now: Nanoseconds) -> None:
        failed = bool(page.segments) and page.segments[-1].failed_attempt
        charge = self._book.end(page.id, now, failed=failed)
        if charge is not None and page.segments:
            last = msgspec.structs.replace(
                page.segments[-1], joules=charge.joules, measured=charge.measured
            )
            page.replace_last(last)


def _tell_lost(name: str, reason: str) -> None:
    log.warning(
        "lost the meter of %s, its power is modelled from now on: %s", name, reason
    )
