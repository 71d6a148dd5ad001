"""What the probe reports: the OpenCL devices of a driver, as plain data.

Apart from the probe, so that hetd reads a report without loading any driver.
"""

from __future__ import annotations

from typing import Literal

import msgspec

DeviceType = Literal["cpu", "gpu", "accelerator", "other"]


class FoundDevice(msgspec.Struct, frozen=True):
    """An OpenCL device as its driver describes it."""

    platform: str
    device: str
    type: DeviceType
    index: int = 0
    """Which of several devices with the same platform and device name."""
    library: str = ""
    """The driver that has it: path or name of a shared library."""
    version: str = ""
    """Of the driver, in its own words."""
    uuid: str = ""
    """Of the device, 32 hexadecimal digits (cl_khr_device_uuid); empty: it tells none."""


class Report(msgspec.Struct, frozen=True):
    """Every OpenCL device, each once, in the loader's order."""

    devices: list[FoundDevice]
