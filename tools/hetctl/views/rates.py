"""The present power and use of resources, from two readings, for `hetctl top` and `web`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libtask.messages import DeviceInfo


@dataclass(frozen=True, slots=True)
class Rate:
    """The present rate of a resource.

    Attributes:
        watts: power; None: not known.
        used: share of its slots with a task; None: not known yet.

    """

    watts: float | None = None
    used: float | None = None


class Rates:
    """The rate of each resource; it keeps the last reading, because a rate needs two."""

    def __init__(self) -> None:
        self._before: dict[str, DeviceInfo] = {}
        self._rates: dict[str, Rate] = {}

    def read(self, devices: Iterable[DeviceInfo]) -> None:
        """Add a reading of all resources."""
        now = {device.spec.name: device for device in devices}
        for name, device in now.items():
            before = self._before.get(name)
            # without a new reading, the last rate stays
            if before is not None and device.metered_s > before.metered_s:
                self._rates[name] = _between(before, device)
        self._before = now

    def of(self, resource: str) -> Rate:
        """Return the present rate of a resource."""
        return self._rates.get(resource, Rate())


def _between(before: DeviceInfo, device: DeviceInfo) -> Rate:
    passed = device.metered_s - before.metered_s
    # a segment may have failed since; that lowers modelled energy
    joules = max(0.0, _joules(device) - _joules(before))
    powered = device.measured or device.busy_watts > 0
    used = (_used(device) - _used(before)) / passed / device.slots
    return Rate(joules / passed if powered else None, min(max(used, 0.0), 1.0))


def _joules(device: DeviceInfo) -> float:
    """Return the energy of a resource, including time before first strips."""
    return device.busy_joules + device.idle_joules + device.starting_joules


def _used(device: DeviceInfo) -> float:
    """Return the seconds in which slots had tasks, including time before first strips."""
    return device.busy_s + device.starting_s
