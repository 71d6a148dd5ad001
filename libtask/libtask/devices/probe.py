"""The probe: `python -m libtask.devices.probe [LIBRARY]` prints OpenCL devices as JSON.

LIBRARY is the driver to query; without it, all drivers are queried. Discovery runs it in a
separate process, because a query can crash or hang. Only the report goes to standard
output; output of drivers goes to standard error.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pyopencl

from libtask.devices.opencl import every_device
from libtask.devices.report import DeviceType, FoundDevice, Report

DEVICE_UUID, UUID_BYTES = 0x106A, 16
"""CL_DEVICE_UUID_KHR and CL_UUID_SIZE_KHR, of the extension cl_khr_device_uuid."""


def main() -> None:
    """Write the report to the original standard output."""
    output = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(output, "wb") as file:
        file.write(msgspec.json.encode(probe(*sys.argv[1:2])))


def probe(library: str = "") -> Report:
    """Query a driver, or all of them, for their devices."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for device in every_device([library] if library else []):
        name = (device.platform.name, device.name)
        found.append(_describe(device, seen[name], library))
        seen[name] += 1
    return Report(found)


def _describe(device: pyopencl.Device, index: int, library: str) -> FoundDevice:
    return FoundDevice(
        platform=device.platform.name,
        device=device.name,
        type=_type(device),
        index=index,
        driver=library,
        version=device.driver_version,
        uuid=_uuid(device),
        memory_bytes=int(device.global_mem_size),
    )


def _uuid(device: pyopencl.Device) -> str:
    """Return the UUID of a device, which pyopencl does not support."""
    if "cl_khr_device_uuid" not in device.extensions.split():
        return ""
    loaded = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    loader = next((word for word in loaded if "libOpenCL" in word), None)
    if loader is None:
        return ""
    ask = ctypes.CDLL(loader).clGetDeviceInfo
    ask.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    found = ctypes.create_string_buffer(UUID_BYTES)
    status = ask(device.int_ptr, DEVICE_UUID, UUID_BYTES, found, None)
    return "" if status else found.raw.hex()


def _type(device: pyopencl.Device) -> DeviceType:
    bits = device.type
    # First, because simulators report every type.
    if bits & pyopencl.device_type.CPU:
        return "cpu"
    if bits & pyopencl.device_type.GPU:
        return "gpu"
    return "accelerator" if bits & pyopencl.device_type.ACCELERATOR else "other"


if __name__ == "__main__":
    main()
