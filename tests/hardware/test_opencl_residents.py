"""Results that stay on an OpenCL device: the same bits, and copied only where they must be."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl
import pytest

from libtask.devices import opencl
from libtask.devices.opencl import OpenCLDevice
from libtask.errors import DeviceMemoryError, InputError
from libtask.file_parts import recorded
from libtask.pickles import pickled, unpickled, write_pickled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.messages import DeviceSpec

VALUES = 1 << 16
SIZE = 8 * VALUES
NEXT = """
__kernel void next(__global const long *old, __global long *new) {
    size_t i = get_global_id(0);
    new[i] = 3 * old[i] + 1;
}
"""


@pytest.fixture(
    scope="module",
    params=[
        "pocl",
        pytest.param("fpga_emulator", marks=pytest.mark.fpga),
        pytest.param("gpu", marks=pytest.mark.gpu),
    ],
)
def opened(request: pytest.FixtureRequest) -> Iterator[OpenCLDevice]:
    spec: DeviceSpec = request.getfixturevalue(request.param)
    opened = OpenCLDevice(spec)
    yield opened
    opened.close()


@pytest.fixture
def device(opened: OpenCLDevice) -> OpenCLDevice:
    """The device, without anything that stayed there."""
    opened.give_way()
    opened.begin(0.1)
    opened.bytes_in = opened.residents.found = 0
    return opened


class Chain:
    """Calls on one device, each of which takes the result of the one before."""

    def __init__(self, device: OpenCLDevice, folder: Path) -> None:
        self.device = device
        self._path = folder / "result"
        self.device.begin(0.1)
        self.pass_on(np.arange(VALUES))

    def pass_on(self, array: Any) -> None:
        """Write a result as a worker does."""
        self.device.thaw()
        with recorded() as written:
            write_pickled(self._path, pickled(array))
            self.device.keep_results(written)
        self.device.withdraw()
        self.device.begin(0.1)

    def taken(self) -> Any:
        with self._path.open("rb") as file:
            return unpickled(file, self._path)

    def compute(self, array: Any) -> Any:
        new = np.empty_like(array)
        kernel: Any = self.device.program(NEXT).kernel("next")
        with (
            self.device.inputs(array) as (read,),
            self.device.results(new, copy_in=False) as (written,),
        ):
            kernel(self.device.queue, (VALUES,), None, read, written)
        return new


@pytest.fixture
def chain(device: OpenCLDevice, tmp_path: Path) -> Chain:
    return Chain(device, tmp_path)


def test_a_chain_uploads_its_first_array_only(chain: Chain) -> None:
    for _ in range(4):
        chain.pass_on(chain.compute(chain.taken()))

    expected = np.arange(VALUES)
    for _ in range(4):
        expected = 3 * expected + 1
    np.testing.assert_array_equal(chain.taken(), expected)
    assert chain.device.bytes_in == SIZE
    assert chain.device.residents.found == 3 * SIZE


def test_two_tasks_that_take_one_result_upload_it_once(chain: Chain) -> None:
    first, second = chain.compute(chain.taken()), chain.compute(chain.taken())

    np.testing.assert_array_equal(first, second)
    assert chain.device.bytes_in == SIZE


def test_an_array_that_the_host_changed_is_uploaded(chain: Chain) -> None:
    chain.pass_on(chain.compute(chain.taken()))
    array = chain.taken()
    array[7] = 0

    assert chain.compute(array)[7] == 1
    assert chain.device.bytes_in == 2 * SIZE
    assert chain.compute(chain.taken())[7] == 3 * (3 * 7 + 1) + 1


def test_an_array_that_the_device_changes_is_copied_there(chain: Chain) -> None:
    chain.pass_on(chain.compute(chain.taken()))
    array = chain.taken()

    with chain.device.resident(array) as (buffer,):
        pyopencl.enqueue_fill_buffer(chain.device.queue, buffer, b"\0", 0, 8)

    assert array[:3].tolist() == [0, 4, 7]
    assert chain.device.bytes_in == SIZE
    assert chain.compute(chain.taken())[:2].tolist() == [4, 13]


def test_results_change_no_more(device: OpenCLDevice) -> None:
    array = np.arange(8)

    with device.results(array):
        pass

    with pytest.raises(ValueError, match="read-only"):
        array += 1
    with pytest.raises(InputError, match="read-only"), device.resident(array):
        pass
    device.withdraw()
    array += 1
    assert device.residents.bytes == 0


@pytest.mark.parametrize("error", [GeneratorExit, ZeroDivisionError])
def test_results_are_not_final_if_the_block_did_not_end(
    device: OpenCLDevice, error: type[BaseException]
) -> None:
    array = np.arange(8)

    with contextlib.suppress(error), device.results(array):
        raise error

    array += 1
    assert device.residents.bytes == 0


def test_nothing_of_a_block_that_failed_stays(chain: Chain) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        chain.device.inputs(chain.taken()),
    ):
        raise ZeroDivisionError

    assert chain.device.residents.bytes == 0


def test_without_a_budget_nothing_stays(chain: Chain) -> None:
    chain.device.begin(0.0)

    chain.compute(chain.compute(chain.taken()))

    assert chain.device.residents.bytes == 0


class Short:
    """A driver whose memory is full for the next calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures = 0
        self._buffer = pyopencl.Buffer
        monkeypatch.setattr(pyopencl, "Buffer", self.allocate)
        monkeypatch.setattr(opencl, "MEMORY_PAUSE_S", 0.0)

    def allocate(self, *arguments: Any) -> Any:
        if self.failures:
            self.failures -= 1
            record = pyopencl._cl._ErrorRecord("", -4, "clCreateBuffer")
            raise pyopencl.MemoryError(record)
        return self._buffer(*arguments)


def test_what_stays_is_dropped_where_memory_is_short(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.pass_on(chain.compute(chain.taken()))
    short = Short(monkeypatch)

    short.failures = 1
    with chain.device.scratch(np.empty(4)):
        assert chain.device.residents.bytes == 0
    short.failures = opencl.MEMORY_RETRIES  # while another process gives way
    with chain.device.scratch(np.empty(4)):
        pass
    assert short.failures == 0

    short.failures = 100
    with pytest.raises(DeviceMemoryError), chain.device.scratch(np.empty(4)):
        pass
