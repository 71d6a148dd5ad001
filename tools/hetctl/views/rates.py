"""What resources do now, from two readings of their sums; for `hetctl top` and `web`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libtask.messages import DeviceInfo


@dataclass(frozen=True, slots=True)
class Rate:
    """What a resource does now.

    Attributes:
        watts: None: nothing is known of its power.
        used: share of its slots that had a task; None: not known yet.

    """

    watts: float | None = None
    used: float | None = None


class Rates:
    """The rate of each resource; remembers the last reading, as a rate takes two."""

    def __init__(self) -> None:
        self._before: dict[str, DeviceInfo] = {}
        self._rates: dict[str, Rate] = {}

    def read(self, devices: Iterable[DeviceInfo]) -> None:
        """Take a reading of all resources in."""
        now = {device.spec.name: device for device in devices}
        for name, device in now.items():
            before = self._before.get(name)
            # without news in between, what was known holds
            if before is not None and device.metered_s > before.metered_s:
                self._rates[name] = _between(before, device)
        self._before = now

    def of(self, resource: str) -> Rate:
        """Return what a resource does now."""
        return self._rates.get(resource, Rate())


def _between(before: DeviceInfo, device: DeviceInfo) -> Rate:
    passed = device.metered_s - before.metered_s
    # a stretch may have failed since, of which modelled energy is less
    joules = max(0.0, _joules(device) - _joules(before))
    powered = device.measured or device.busy_watts > 0
    used = (_used(device) - _used(before)) / passed / device.slots
    return Rate(joules / passed if powered else None, min(max(used, 0.0), 1.0))


def _joules(device: DeviceInfo) -> float:
    """Return all that a resource has drawn, also before first strips."""
    return device.busy_joules + device.idle_joules + device.starting_joules


def _used(device: DeviceInfo) -> float:
    """Return the seconds in which its slots had tasks, also before first strips."""
    return device.busy_s + device.starting_s
