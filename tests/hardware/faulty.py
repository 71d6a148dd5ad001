"""Runs one thing on a device for each fault, and prints what came of it, a line each.

    python faulty.py SPEC FAULTS FUNCTION:CODE...

In a process of its own, as the library that makes the faults is preloaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np

from libtask.devices.opencl import OpenCLDevice
from libtask.devices.selftest import test_device as self_test
from libtask.errors import HetError
from libtask.messages import DeviceSpec

SOURCE = "__kernel void add(__global int *n) { n[get_global_id(0)] += %d; }"


def compute(spec: DeviceSpec, number: int) -> None:
    """Build a program that no cache knows, and run it."""
    device = OpenCLDevice(spec)
    try:
        with device.resident(np.zeros(64, np.int32)) as (buffer,):
            kernel = device.program(SOURCE % number).kernel("add")
            kernel(device.queue, (64,), None, buffer)
            device.mark()()
    finally:
        device.close()


def outcome(spec: DeviceSpec, number: int) -> str:
    try:
        compute(spec, number)
        self_test(spec)
    except HetError as error:
        return f"{error.code}: {error}"
    return "right"


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=DeviceSpec)
    faults = Path(sys.argv[2])
    for number, fault in enumerate(sys.argv[3:]):
        faults.write_text(fault.replace(":", " ") + "\n")
        print(outcome(spec, number))  # noqa: T201  what the test reads


if __name__ == "__main__":
    main()
