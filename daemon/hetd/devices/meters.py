"""Finds the meter of each resource; resources without one use the power model."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hetd.devices.hwmon import Hwmon
from hetd.devices.meter import Meter, MeterError
from hetd.devices.nvml import NvmlFeed
from hetd.devices.rapl import Rapl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from libtask.messages import DeviceInfo

log = logging.getLogger("hetd")

MAKERS = {"nvidia": "nvml", "advanced micro": "hwmon", "amd ": "hwmon"}
"""Beginnings of OpenCL platform names, lower case -> kind of meter."""


class Finder:
    """Opens meters.

    Args:
        rapl: opens the CPU's; `nvml`: the feed of NVIDIA cards; `hwmon`: a chip's.

    """

    def __init__(
        self,
        rapl: Callable[[], Meter] = Rapl,
        nvml: Callable[[], NvmlFeed] = NvmlFeed,
        hwmon: Callable[[str, int], Meter] = Hwmon,
    ) -> None:
        self._rapl = rapl
        self._nvml = nvml
        self._hwmon = hwmon
        self._feed: NvmlFeed | None = None

    def find(self, devices: Sequence[DeviceInfo]) -> dict[str, Meter]:
        """Open the available meters; log why others are not available."""
        emulated = any(device.spec.emulated for device in devices)
        found: dict[str, Meter] = {}
        for device in devices:
            try:
                meter = self._open(device, devices, emulated=emulated)
            except MeterError as error:
                log.info("power of %s is modelled: %s", device.spec.name, error)
                continue
            if meter is not None:
                found[device.spec.name] = meter
        return found

    def _open(
        self, device: DeviceInfo, devices: Sequence[DeviceInfo], *, emulated: bool
    ) -> Meter | None:
        """Open a device's meter; None: the device is emulated or has no known meter."""
        spec = device.spec
        if spec.driver == "cpu" and spec.kind == "cpu":
            if emulated:
                # Its counter would charge tasks on the CPU for what emulations compute.
                raise MeterError("emulated devices compute on the CPU")
            return self._rapl()
        if spec.driver != "opencl" or spec.emulated or spec.kind != "gpu":
            return None
        kind = maker_of(spec.platform)
        alike = [d for d in devices if maker_of(d.spec.platform) == kind]
        return self._open_card(kind, alike.index(device))

    def _open_card(self, kind: str, number: int) -> Meter | None:
        if kind == "nvml":
            self._feed = self._feed or self._nvml()
            return self._feed.card(number)
        return self._hwmon("amdgpu", number) if kind == "hwmon" else None


def maker_of(platform: str) -> str:
    """Return the kind of meter of an OpenCL platform's cards; empty: none is known."""
    name = platform.lower()
    return next((kind for start, kind in MAKERS.items() if name.startswith(start)), "")
