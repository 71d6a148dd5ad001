"""The self-test: `python -m libtask.devices.selftest SPEC [--forget]` tests a device.

SPEC is a `DeviceSpec` as JSON. With --forget, discovery's cached results are removed.
The exit status is 0 if the results are correct; else one line on standard error
describes the error. It runs in a separate process, because a driver may crash or hang,
before a device is used for the first time or after a failure.

The program is compiled each time and uses the features of kernels: rounding, vectors of
integers and floats, local memory with barriers, loops of a single work-item, doubles
where the device has them, several commands in an in-order queue, and events.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from libtask.devices import open_device
from libtask.devices.discovery import forget
from libtask.errors import DeviceError, HetError
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from libtask.devices.opencl import OpenCLDevice

NUMBERS = 4096
GROUP = 16
"""Work-items that share local memory; every device supports this number."""
ROUNDS = 8

SOURCE = """
#if FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
#else
typedef float real;
#endif

__kernel void round_vectors(__global float4 *values, __global int4 *counts) {
    const size_t i = get_global_id(0);
    const float4 value = values[i];
    values[i] = rint(value * 0.5f) + floor(value) - fmax(value, (float4)(1.0f));
    counts[i] = convert_int4(rint(value)) * 3 + (counts[i] >> 1);
}

__kernel void sum_groups(__global int *counts, __local int *part) {
    const size_t i = get_global_id(0), mine = get_local_id(0);
    part[mine] = counts[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t width = get_local_size(0) / 2; width > 0; width /= 2) {
        if (mine < width)
            part[mine] += part[mine + width];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    counts[i] = (counts[i] + part[0]) & 1023;
}

__kernel void smooth(__global real *line, __global float *values, const int count) {
    real before = 0;
    for (int i = 0; i < count; i++) {
        const float rounded = rint(values[i] * 0.25f);
        before = (before + line[i]) / 2 + rounded;
        line[i] = before;
    }
}
"""


def main() -> int:
    """Test the device on the command line; return the exit status."""
    try:
        spec = msgspec.json.decode(sys.argv[1], type=DeviceSpec)
        if "--forget" in sys.argv[2:]:
            forget()
        test_device(spec)
    except (IndexError, msgspec.MsgspecError, HetError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def test_device(spec: DeviceSpec) -> None:
    """Compute on a device, and check the result.

    Raises:
        DeviceError: it cannot be opened, does not compile, fails, or its results are wrong.

    """
    device: Any = open_device(spec)
    try:
        if spec.driver == "opencl" and not spec.binaries:
            right = _compute(device)
        else:  # boards need prebuilt programs: only copies can be tested
            right = _copy(device)
    finally:
        device.close()
    if not right:
        raise DeviceError(f"{spec.name}: computes wrong numbers")


def _copy(device: Any) -> bool:
    numbers = np.arange(NUMBERS, dtype=np.int32)
    with device.resident(numbers):
        device.mark()()
    return bool(np.array_equal(numbers, np.arange(NUMBERS)))


def _compute(device: OpenCLDevice) -> bool:
    """Run every kernel several times; return whether all arrays are as expected."""
    import pyopencl

    values, counts, line = _arrays(device)
    expected = [each.copy() for each in (values, counts, line)]
    program = device.compile(SOURCE, FP64=line.dtype == np.float64)
    local: Any = pyopencl.LocalMemory(GROUP * counts.itemsize)
    with device.resident(values, counts, line) as (on_values, on_counts, on_line):
        for _ in range(ROUNDS):
            vectors = program.kernel("round_vectors")
            vectors(device.queue, (NUMBERS // 4,), None, on_values, on_counts)
            sums = program.kernel("sum_groups")
            sums(device.queue, (NUMBERS,), (GROUP,), on_counts, local)
            smooth = program.kernel("smooth")
            count = np.int32(NUMBERS)
            done = smooth(device.queue, (1,), (1,), on_line, on_values, count)
            done.wait()
        device.mark()()
    for _ in range(ROUNDS):
        _expect(*expected)
    pairs = zip((values, counts, line), expected, strict=True)
    return all(np.allclose(got, wanted, rtol=1e-5) for got, wanted in pairs)


def _arrays(device: OpenCLDevice) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    doubles = "cl_khr_fp64" in device.context.devices[0].extensions
    steps = np.arange(NUMBERS)
    return (
        (steps % 97 - 48.5).astype(np.float32),
        (steps % 13).astype(np.int32),
        (steps % 7).astype(np.float64 if doubles else np.float32),
    )


def _expect(values: NDArray[Any], counts: NDArray[Any], line: NDArray[Any]) -> None:
    """Compute the result of one round of the kernels in place."""
    old = values.copy()
    values[:] = np.rint(old * np.float32(0.5)) + np.floor(old) - np.maximum(old, 1)
    counts[:] = np.rint(old).astype(np.int32) * 3 + (counts >> 1)
    sums = counts.reshape(-1, GROUP).sum(axis=1, dtype=np.int32).repeat(GROUP)
    counts[:] = (counts + sums) & 1023
    rounded = np.rint(values * np.float32(0.25))
    before = line.dtype.type(0)
    for i in range(NUMBERS):
        before = (before + line[i]) / 2 + rounded[i]
        line[i] = before


if __name__ == "__main__":
    sys.exit(main())
