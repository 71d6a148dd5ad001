"""The report of the probe: the OpenCL devices of a driver, as plain data.

Separate from the probe, so that hetd decodes a report without loading a driver.
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
    """Index among devices with the same platform and device name."""
    driver: str = msgspec.field(default="", name="library")
    """Its driver: path or name of a shared library."""
    version: str = ""
    """Version of the driver, as the driver reports it."""
    uuid: str = ""
    """UUID, 32 hexadecimal digits (cl_khr_device_uuid); empty: not reported."""
    memory_bytes: int = 0
    """Its global memory (CL_DEVICE_GLOBAL_MEM_SIZE); 0: not reported."""


class Report(msgspec.Struct, frozen=True):
    """Every OpenCL device, each once, in the loader's order."""

    devices: list[FoundDevice]
