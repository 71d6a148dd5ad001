"""Copies through pinned memory: the same bytes as the driver's own copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyopencl
import pytest

from libtask.devices import opencl, staging
from libtask.devices.opencl import OpenCLDevice
from libtask.devices.staging import StagedCopies

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from libtask.messages import DeviceSpec

CHUNK = 4096


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize(
    "size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 1, 100_003]
)
def test_all_bytes_arrive_in_both_directions(
    device: OpenCLDevice, size: int, lanes: int
) -> None:
    copies = StagedCopies(device.context, lanes, CHUNK)
    sent = _bytes(size)
    buffer = pyopencl.Buffer(device.context, pyopencl.mem_flags.READ_WRITE, size)

    copies.copy_in(buffer, sent)
    read = np.zeros_like(sent)
    pyopencl.enqueue_copy(device.queue, read, buffer)
    received = np.zeros_like(sent)
    copies.copy_out(received, buffer)
    copies.close()

    np.testing.assert_array_equal(read, sent)
    np.testing.assert_array_equal(received, sent)


def test_the_error_of_a_lane_is_raised_and_the_lanes_work_on(
    device: OpenCLDevice,
) -> None:
    copies = StagedCopies(device.context, 3, CHUNK)
    sent = _bytes(8 * CHUNK)
    flags = pyopencl.mem_flags.READ_WRITE
    short = pyopencl.Buffer(device.context, flags, CHUNK)
    right = pyopencl.Buffer(device.context, flags, sent.size)

    with pytest.raises(pyopencl.Error):
        copies.copy_in(short, sent)
    with pytest.raises(pyopencl.Error):
        copies.copy_out(sent.copy(), short)
    copies.copy_in(right, sent)
    received = np.zeros_like(sent)
    copies.copy_out(received, right)
    copies.close()

    np.testing.assert_array_equal(received, sent)


def test_a_device_copies_large_arrays_so(
    spec: DeviceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any shape and type; an emulated device does only here."""
    monkeypatch.setattr(opencl, "STAGED_BYTES", CHUNK)
    monkeypatch.setattr(staging, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(16)))
    device = OpenCLDevice(msgspec.structs.replace(spec, emulated=False))
    large = np.arange(30_000, dtype=np.float64).reshape(100, 300)
    small = np.arange(3, dtype=np.int16)
    expected = large.copy(), small.copy()

    with device.resident(large, small):
        large[:], small[:] = 0, 0
        device.refresh()
        np.testing.assert_array_equal(large, expected[0])
        large[:], small[:] = 0, 0
    copied_so = device.__dict__["_staged"] is not None
    device.close()

    assert copied_so
    np.testing.assert_array_equal(large, expected[0])
    np.testing.assert_array_equal(small, expected[1])


def test_few_cores_leave_copies_to_the_driver(
    device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(7)))

    assert staging.staged_copies(device.context) is None


def _bytes(size: int) -> NDArray[np.uint8]:
    return np.random.default_rng(size).integers(0, 255, size, dtype=np.uint8)
