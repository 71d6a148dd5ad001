"""A trial: `python -m libtask.devices.trial SPEC` computes a little on a device.

SPEC is a `DeviceSpec` as JSON. The exit status is 0 where the result is right; else
one line on standard error says what went wrong. hetd runs it in a process of its own
before it uses a device again that failed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from libtask.devices import open_device
from libtask.errors import DeviceError, HetError
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from libtask.devices.opencl import OpenCLDevice

NUMBERS = 4096
SOURCE = """
__kernel void trial(__global int *numbers) {
    const size_t i = get_global_id(0);
    numbers[i] = 3 * numbers[i] + (int)i;
}
"""


def main() -> int:
    """Try the device that the command line describes; return the exit status."""
    try:
        spec = msgspec.json.decode(sys.argv[1], type=DeviceSpec)
        try_device(spec)
    except (IndexError, msgspec.MsgspecError, HetError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def try_device(spec: DeviceSpec) -> None:
    """Compute on a device, and check the result.

    Raises:
        DeviceError: it cannot be opened, fails, or computes wrong.

    """
    device: Any = open_device(spec)
    try:
        numbers = np.arange(NUMBERS, dtype=np.int32)
        expected = numbers.copy()
        if spec.driver == "opencl" and not spec.binaries:
            expected = 4 * numbers
            _compute(device, numbers)
        else:  # boards run what was built for them: only copies can be tried
            with device.resident(numbers):
                device.mark()()
    finally:
        device.close()
    if not np.array_equal(numbers, expected):
        raise DeviceError(f"{spec.name}: computes wrong numbers")


def _compute(device: OpenCLDevice, numbers: np.ndarray[Any, Any]) -> None:
    kernel = device.program(SOURCE).kernel("trial")
    with device.resident(numbers) as (buffer,):
        kernel(device.queue, (NUMBERS,), None, buffer)
        device.mark()()


if __name__ == "__main__":
    sys.exit(main())
