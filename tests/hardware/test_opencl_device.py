"""OpenCL devices on the drivers of this machine: PoCL, the FPGA emulator, a real GPU."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyopencl
import pytest

from libtask.devices import open_device
from libtask.devices.faults import opencl_errors
from libtask.devices.icd import cache_folder
from libtask.devices.opencl import OpenCLDevice
from libtask.errors import (
    BinaryError,
    DeviceError,
    DeviceMemoryError,
    InputError,
    ProgramError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from libtask.messages import DeviceSpec

DOUBLE = """
__kernel void twice(__global float *values) {
    size_t i = get_global_id(0);
    values[i] = FACTOR * values[i];
}
"""


@pytest.fixture
def device(spec: DeviceSpec, private_cache: Path) -> Iterator[OpenCLDevice]:
    opened = open_device(spec)
    assert isinstance(opened, OpenCLDevice)
    yield opened
    opened.close()


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder() / "programs"


def double(device: OpenCLDevice, buffer: pyopencl.Buffer) -> None:
    kernel: Any = device.program(DOUBLE, FACTOR=2).kernel("twice")
    kernel(device.queue, (buffer.size // 4,), None, buffer)


class Doubling(NamedTuple):
    """A generator that doubles `values` at each strip."""

    device: OpenCLDevice
    values: NDArray[np.float32]

    def run(self) -> Iterator[None]:
        with self.device.resident(self.values) as (buffer,):
            for _ in range(3):
                double(self.device, buffer)
                yield


def is_released(buffer: pyopencl.Buffer) -> bool:
    try:
        buffer.release()
    except pyopencl.LogicError:
        return True
    return False


def test_a_finished_run_copies_out_all_its_strips(device: OpenCLDevice) -> None:
    values = np.arange(1000, dtype=np.float32)

    for _ in Doubling(device, values).run():
        device.mark()()

    np.testing.assert_array_equal(values, 8 * np.arange(1000, dtype=np.float32))
    assert device.transfer_in > 0
    assert device.transfer_out > 0


def test_a_preempted_run_copies_out_the_strips_done(device: OpenCLDevice) -> None:
    values = np.ones((30, 7), np.float32)
    run: Any = Doubling(device, values).run()

    next(run)
    next(run)
    run.close()

    np.testing.assert_array_equal(values, np.full((30, 7), 4, np.float32))


def test_a_run_that_fails_copies_nothing_out(device: OpenCLDevice) -> None:
    values = np.ones(10, np.float32)
    run: Any = Doubling(device, values).run()

    next(run)
    with pytest.raises(ZeroDivisionError):
        run.throw(ZeroDivisionError())

    np.testing.assert_array_equal(values, np.ones(10, np.float32))
    assert device.transfer_out == 0


@pytest.mark.parametrize("error", [GeneratorExit, ZeroDivisionError])
@pytest.mark.parametrize("hold", ["resident", "inputs", "scratch"])
def test_buffers_are_released_whatever_ends_the_block(
    device: OpenCLDevice, hold: str, error: type[BaseException]
) -> None:
    with (
        contextlib.suppress(error),
        getattr(device, hold)(np.ones(4), np.ones((2, 2))) as buffers,
    ):
        sizes = [buffer.size for buffer in buffers]
        raise error

    assert sizes == [32, 32]
    assert [is_released(buffer) for buffer in buffers] == [True, True]


def test_inputs_are_not_copied_out(device: OpenCLDevice) -> None:
    source, target = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    source.flags.writeable = False

    with device.inputs(source) as (read,), device.resident(target) as (written,):
        pyopencl.enqueue_copy(device.queue, written, read)

    np.testing.assert_array_equal(target, np.arange(8))


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.ones((4, 4))[:, ::2], "not C-contiguous"),
        (np.ones((3, 0)), "empty"),
        (np.frombuffer(b"12345678"), "read-only"),
    ],
    ids=["strided", "empty", "read-only"],
)
def test_arrays_that_cannot_be_copied_are_refused(
    device: OpenCLDevice, array: NDArray[Any], text: str
) -> None:
    with (
        pytest.raises(InputError, match=text),
        device.resident(np.ones(2), array),
    ):
        pass


@pytest.mark.parametrize("way", ["resident", "results", "inputs", "scratch"])
def test_what_is_no_array_is_refused(device: OpenCLDevice, way: str) -> None:
    with (
        pytest.raises(TypeError, match="expected a NumPy array, got a list"),
        getattr(device, way)([1.0, 2.0]),
    ):
        pass


def test_more_memory_than_the_device_has(device: OpenCLDevice, tmp_path: Path) -> None:
    sparse = np.memmap(tmp_path / "sparse", np.uint8, "w+", shape=(1 << 40,))

    with (
        pytest.raises(DeviceError, match="out of memory") as caught,
        device.resident(np.ones(2), sparse),
    ):
        pass

    assert caught.value.retry


def test_an_invalid_call_is_the_programs_fault(device: OpenCLDevice) -> None:
    kernel: Any = device.program(DOUBLE, FACTOR=2).kernel("twice")
    with (
        pytest.raises(ProgramError, match="INVALID_WORK_GROUP_SIZE"),
        device.resident(np.ones(8, np.float32)) as (buffer,),
    ):
        kernel(device.queue, (8,), (1 << 20,), buffer)


def test_a_plain_number_as_an_argument_is_named(device: OpenCLDevice) -> None:
    kernel: Any = device.program(DOUBLE, FACTOR=2).kernel("twice")

    with (
        pytest.raises(ProgramError, match="argument 1 of a kernel; pass a buffer, or"),
        device.resident(np.ones(8, np.float32)),
    ):
        kernel(device.queue, (8,), None, 3)


def test_a_missing_kernel_is_named(device: OpenCLDevice) -> None:
    text = "no kernel 'thrice' in the program; there are: twice"
    with pytest.raises(ProgramError, match=text):
        device.program(DOUBLE, FACTOR=2).kernel("thrice")


def test_a_build_failure_carries_the_compilers_words(device: OpenCLDevice) -> None:
    with pytest.raises(ProgramError) as caught:
        device.program("__kernel void broken() { missing_name = 1; }")

    text = str(caught.value)
    assert f"{device.spec.name}: program text does not compile: " in text
    assert "undeclared identifier 'missing_name'" in text
    assert "\n" not in text
    assert "tempfile" not in text


def test_kernels_of_a_package(
    device: OpenCLDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "doubling").mkdir()
    (tmp_path / "doubling/__init__.py").touch()
    (tmp_path / "doubling/twice.cl").write_text(DOUBLE)
    monkeypatch.syspath_prepend(tmp_path)

    kernel = device.kernel("doubling", "twice.cl", "twice", FACTOR=2)

    assert kernel is device.kernel("doubling", "twice.cl", "twice", FACTOR=2)
    assert kernel is not device.kernel("doubling", "twice.cl", "twice", FACTOR=3)
    with pytest.raises(ProgramError, match=r"no OpenCL source no\.cl in package doubl"):
        device.kernel("doubling", "no.cl", "twice")


def build_in_a_new_process_as_it_were(spec: DeviceSpec) -> bool:
    """Build on a fresh device, check that it computes; return whether it was cached."""
    device = OpenCLDevice(spec)
    values = np.ones(4, np.float32)
    with device.resident(values) as (buffer,):
        double(device, buffer)
    cached = device.program(DOUBLE, FACTOR=2).cached
    device.close()
    np.testing.assert_array_equal(values, np.full(4, 2, np.float32))
    return cached


def test_the_second_build_comes_from_disk(
    spec: DeviceSpec, private_cache: Path
) -> None:
    assert not build_in_a_new_process_as_it_were(spec)
    assert build_in_a_new_process_as_it_were(spec)
    assert [file.suffix for file in private_cache.iterdir()] == [".bin"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied"])
def test_a_damaged_cache_entry_is_rebuilt(
    spec: DeviceSpec, private_cache: Path, damage: str
) -> None:
    build_in_a_new_process_as_it_were(spec)
    [entry] = private_cache.iterdir()
    whole = entry.read_bytes()
    flipped = whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]
    entry.write_bytes({"cut": whole[:99], "flipped": flipped, "emptied": b""}[damage])

    assert not build_in_a_new_process_as_it_were(spec)
    assert build_in_a_new_process_as_it_were(spec)


def test_a_program_for_another_processor_is_not_taken(
    spec: DeviceSpec, private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_in_a_new_process_as_it_were(spec)

    # The driver read it when it was loaded: for this process nothing else changes.
    monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", "another")

    assert not build_in_a_new_process_as_it_were(spec)
    assert len(list(private_cache.iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_done_without(
    spec: DeviceSpec, private_cache: Path
) -> None:
    private_cache.touch()  # a file where the folder should be

    assert not build_in_a_new_process_as_it_were(spec)


def test_a_prebuilt_binary_is_loaded(
    spec: DeviceSpec, private_cache: Path, tmp_path: Path
) -> None:
    build_in_a_new_process_as_it_were(spec)
    [entry] = private_cache.iterdir()
    image = tmp_path / "board.aocx"
    image.write_bytes(entry.read_bytes()[32:])
    board = OpenCLDevice(msgspec.structs.replace(spec, binaries={"any": str(image)}))

    kernel: Any = board.kernel("any", "ignored.cl", "twice")

    assert kernel.num_args == 1
    board.close()


@pytest.mark.parametrize("content", [None, b"not a binary"], ids=["absent", "garbage"])
def test_a_bad_prebuilt_binary_is_named(
    spec: DeviceSpec, tmp_path: Path, content: bytes | None
) -> None:
    image = tmp_path / "board.aocx"
    if content is not None:
        image.write_bytes(content)
    board = OpenCLDevice(msgspec.structs.replace(spec, binaries={"any": str(image)}))

    with pytest.raises(BinaryError, match=r"board\.aocx"):
        board.kernel("any", "ignored.cl", "twice")
    board.close()


@pytest.mark.parametrize("change", [{"device": "Unobtainium"}, {"index": 99}])
def test_an_unknown_device_lists_those_there_are(
    spec: DeviceSpec, change: dict[str, Any]
) -> None:
    with pytest.raises(DeviceError) as caught:
        OpenCLDevice(msgspec.structs.replace(spec, **change))

    assert f"{spec.platform} / {spec.device}" in str(caught.value).partition("are:")[2]


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (-2, DeviceError, "lost"),
        (-36, DeviceError, "lost"),
        (-9999, DeviceError, "lost"),
        (-5, DeviceError, "out of resources or lost"),
        (-4, DeviceMemoryError, "out of memory"),
        (-6, DeviceMemoryError, "out of memory"),
        (-61, DeviceMemoryError, "out of memory"),
        (-11, ProgramError, "does not fit"),
        (-38, ProgramError, "does not fit"),
        (-54, ProgramError, "does not fit"),
    ],
)
def test_errors_are_read_by_their_code(
    code: int, kind: type[DeviceError], text: str
) -> None:
    record = pyopencl._cl._ErrorRecord("", code, "clFinish")

    with (
        pytest.raises(DeviceError, match=rf"gpu0: .*\({code}\) while t.*{text}") as e,
        opencl_errors("gpu0", "testing"),
    ):
        raise pyopencl.LogicError(record)

    assert type(e.value) is kind
    assert e.value.retry is (kind is not ProgramError)


FORKED = """
import os, sys
import numpy as np, pyopencl
import msgspec
from libtask.devices import open_device
from libtask.messages import DeviceSpec

def compute(spec):
    device = open_device(spec)
    values = np.ones(100, np.float32)
    text = "__kernel void f(__global float *v) { v[get_global_id(0)] += 1; }"
    with device.resident(values) as (buffer,):
        device.program(text).kernel("f")(device.queue, (100,), None, buffer)
        device.mark()()
    device.close()
    return values.sum() == 200

specs = msgspec.json.decode(sys.argv[1], type=list[DeviceSpec])
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if all(compute(spec) for spec in specs) else 1)
    children.append(pid)
statuses = [os.waitpid(pid, 0)[1] for pid in children]
sys.exit(any(statuses))
"""


def test_both_emulations_work_in_each_forked_worker(
    emulated_gpu: DeviceSpec, emulated_fpga: DeviceSpec, private_cache: Path
) -> None:
    specs = msgspec.json.encode([emulated_gpu, emulated_fpga, emulated_gpu]).decode()

    done = subprocess.run(
        [sys.executable, "-c", FORKED, specs], check=False, timeout=90
    )

    assert done.returncode == 0
