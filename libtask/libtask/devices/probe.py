"""The probe: `python -m libtask.devices.probe` prints the OpenCL devices as JSON.

hetd runs it in a process of its own, since asking a driver what it has can crash or
hang. Only the report goes to standard output; whatever drivers print there is sent to
standard error.
"""

from __future__ import annotations

import os
from collections import Counter

import msgspec
import pyopencl

from libtask.devices.opencl import every_device
from libtask.devices.report import DeviceType, FoundDevice, Report


def main() -> None:
    """Write the report to what standard output was when the process began."""
    output = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(output, "wb") as file:
        file.write(msgspec.json.encode(probe()))


def probe() -> Report:
    """Ask every driver for its devices."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for device in every_device():
        name = (device.platform.name, device.name)
        found.append(_describe(device, seen[name]))
        seen[name] += 1
    return Report(found)


def _describe(device: pyopencl.Device, index: int) -> FoundDevice:
    return FoundDevice(
        platform=device.platform.name,
        device=device.name,
        type=_type(device),
        index=index,
    )


def _type(device: pyopencl.Device) -> DeviceType:
    bits = device.type
    if bits & pyopencl.device_type.GPU:
        return "gpu"
    if bits & pyopencl.device_type.ACCELERATOR:
        return "accelerator"
    return "cpu" if bits & pyopencl.device_type.CPU else "other"


if __name__ == "__main__":
    main()
