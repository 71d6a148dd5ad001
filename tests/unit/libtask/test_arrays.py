"""`device.xp`: arrays of a task follow it between the CPU and an accelerator."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask.arrays import installed, on_arrays
from libtask.devices import arrays
from libtask.devices.arrays import ArrayDevice, ArrayLibrary, open_library
from libtask.errors import (
    DeviceError,
    DeviceMemoryError,
    InputError,
    TaskFailedError,
)
from libtask.file_parts import recorded
from libtask.messages import CheckpointRecord, DeviceSpec
from libtask.pickles import LEAST, pickled, unpickled, write_pickled
from libtask.snapshots.state import pack
from libtask.task import Task
from libtask.worker.execution import Completed, Execution, Stopped, StopRequest
from unit.recorded_execution import demand_at, go_on, strips_of_one

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.worker.execution import CheckpointCallback, Outcome

needs_strict = pytest.mark.skipif(
    importlib.util.find_spec("array_api_strict") is None,
    reason="needs array-api-strict",
)
needs_torch = pytest.mark.skipif(
    not installed("gpu", ["torch"]), reason="needs PyTorch and array-api-compat"
)
LIBRARIES = [
    pytest.param("array_api_strict", marks=needs_strict),
    pytest.param("torch", marks=needs_torch),
    "numpy",
]
CPU = DeviceSpec("cpu", "cpu")
GPU = DeviceSpec("gpu0", "gpu", driver="null", emulated=True)
STEPS = 12


@dataclass
class Walk(Task):
    """Rotates points, and adds up where they have been.

    Attributes:
        seen: the modules of the arrays in each strip.

    """

    points: int = 5

    def load(self) -> None:
        self.at = np.random.default_rng(1).random((self.points, 2))
        self.sums: list[Any] = [
            np.zeros((self.points, 2)),
            {"steps": np.zeros(1, np.int64)},
        ]
        self.alias = self.at
        self.label = "kept"
        self.words = np.array(["a", "b"])
        self.seen: list[str] = []

    def total(self) -> int:
        return STEPS


@Walk.on("cpu", "gpu")
def walk(task: Any, device: Any, checkpoint: Any) -> Iterator[None]:
    xp = device.xp
    turn = xp.asarray([[0.8, 0.6], [-0.6, 0.8]], dtype=xp.float64)
    for _ in checkpoint.strips():
        assert task.alias is task.at
        task.at = task.alias = task.at @ turn
        sums, counts = task.sums
        task.sums = [sums + task.at, {"steps": counts["steps"] + 1}]
        task.seen.append(type(task.at).__module__.partition(".")[0])
        yield


def loaded() -> Walk:
    task = Walk()
    task.load()
    return task


def run(
    task: Walk,
    device: ArrayDevice,
    done: int = 0,
    watch: CheckpointCallback = go_on,
) -> Outcome:
    checkpoint = strips_of_one(STEPS, done)
    implementation = Walk.implementations[device.spec.kind]
    return Execution(implementation, task, device, checkpoint, watch).run()


def unmoved() -> Walk:
    task = loaded()
    assert run(task, ArrayDevice(CPU, ())) == Completed()
    return task


def assert_same(task: Walk, expected: Walk) -> None:
    """Compare what is on the host."""
    assert type(task.at) is np.ndarray
    np.testing.assert_allclose(task.at, expected.at, rtol=1e-12)
    np.testing.assert_allclose(task.sums[0], expected.sums[0], rtol=1e-12)
    assert task.sums[1]["steps"].tolist() == [STEPS]
    assert task.alias is task.at
    assert task.label == "kept"
    assert task.words.tolist() == ["a", "b"]


# ---------------------------------------------------------------- moves


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_task_that_moves_back_and_forth_computes_the_same(library: str) -> None:
    task = loaded()
    places = [(CPU, 3), (GPU, 4), (CPU, 2), (GPU, STEPS)]

    done = 0
    for spec, strips in places:
        device = ArrayDevice(spec, (library,))
        watch = demand_at(strips, StopRequest.PREEMPT)
        outcome = run(task, device, done, watch)
        done += strips
        if done < STEPS:
            assert outcome == Stopped(CheckpointRecord(done, STEPS))
            assert type(task.at) is type(task.sums[0]) is np.ndarray

    assert_same(task, unmoved())
    assert task.seen == ["numpy"] * 3 + [library] * 4 + ["numpy"] * 2 + [library] * 3


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_snapshot_holds_host_arrays_and_the_task_continues_on_the_device(
    library: str,
) -> None:
    task = loaded()
    device = ArrayDevice(GPU, (library,))
    checkpoint = strips_of_one(STEPS)
    packed: list[list[Any]] = []

    def watch(_now: int) -> StopRequest | None:
        if checkpoint.done == 5:
            execution.settle()
            packed.append([array.copy() for array in pack(task).arrays])
        return None

    execution = Execution(Walk.implementations["gpu"], task, device, checkpoint, watch)

    assert execution.run() == Completed()
    assert_same(task, unmoved())
    halfway = loaded()
    run(halfway, ArrayDevice(CPU, ()), 0, demand_at(5, StopRequest.PREEMPT))
    (arrays_there,) = packed
    np.testing.assert_allclose(arrays_there[0], halfway.at, rtol=1e-12)
    assert execution.measures.transfer_in > 0
    assert execution.measures.transfer_out > 0


def test_on_the_cpu_nothing_is_copied() -> None:
    task = loaded()
    first = task.words
    device = ArrayDevice(CPU, ())

    assert run(task, device) == Completed()
    assert task.words is first
    assert (device.transfer_in, device.transfer_out) == (0.0, 0.0)


@needs_strict
def test_an_abandoned_task_is_not_copied_out() -> None:
    task = loaded()
    device = ArrayDevice(GPU, ("array_api_strict",))

    run(task, device, 0, demand_at(2, StopRequest.ABANDON))

    assert device.transfer_out == 0.0


# ---------------------------------------------------------------- errors


class Full(ArrayLibrary):
    """A library whose device is full, or lost."""

    memory_errors = (MemoryError,)
    device_errors = (ConnectionError,)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(MemoryError("no\nroom"), DeviceMemoryError), (ConnectionError(), DeviceError)],
)
def test_errors_of_the_library_are_those_of_the_device(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception]
) -> None:
    monkeypatch.setattr(arrays, "open_library", lambda _spec, _names: Full(np))

    def failing(_task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
        for _ in checkpoint.strips():
            yield
            raise raised

    device = ArrayDevice(GPU, ())
    wrapped = on_arrays(failing)
    execution = Execution(wrapped, loaded(), device, strips_of_one(3), go_on)

    with pytest.raises(expected, match=r"^gpu0: ") as caught:
        execution.run()
    assert "\n" not in str(caught.value)
    assert type(caught.value) is expected


def test_a_plain_function_is_refused() -> None:
    def plain(_task: Any, _device: Any, _checkpoint: Any) -> Any:
        return None

    wrapped = on_arrays(plain)
    device = ArrayDevice(CPU, ())

    with pytest.raises(TaskFailedError, match="plain is not a generator"):
        Execution(wrapped, loaded(), device, strips_of_one(3), go_on).run()


def test_an_environment_without_a_library_runs_the_task_on_the_cpu_only() -> None:
    @dataclass
    class Elsewhere(Walk):
        array_libraries = ("no_such_library",)

    assert Elsewhere().kinds() == ["cpu"]
    assert Elsewhere.libraries_on("gpu") == ("no_such_library",)
    with pytest.raises(InputError, match=r"gpu0: device.xp needs no_such_library"):
        open_library(GPU, Elsewhere.array_libraries)


def test_libraries_of_the_host_do_not_stand_in_for_real_devices() -> None:
    real = DeviceSpec("gpu0", "gpu", driver="opencl", uuid="0" * 32)

    with pytest.raises(DeviceError, match="numpy computes on the host only"):
        open_library(real, ("numpy",))


@needs_torch
def test_pytorch_without_the_device_is_an_error_of_the_device() -> None:
    real = DeviceSpec("gpu0", "gpu", driver="opencl", uuid="0" * 32)

    with pytest.raises(DeviceError, match="PyTorch does not find this device"):
        open_library(real, ("torch",))


def test_a_device_is_found_by_its_uuid() -> None:
    here = ["a" * 32, "0123456789abcdef" * 2]
    spec = DeviceSpec("gpu0", "gpu", uuid="GPU-01234567-89ab-cdef-0123-456789abcdef")

    assert arrays._number(spec, here, "") == 1
    assert arrays._digits(bytes.fromhex(here[1])) == here[1]
    assert arrays._number(DeviceSpec("gpu1", "gpu", index=1), here, "") == 1
    with pytest.raises(DeviceError, match="CuPy does not find this device"):
        arrays._number(DeviceSpec("gpu2", "gpu", index=2), here, "CuPy")


# ---------------------------------------------------------------- declarations


def test_one_implementation_serves_the_kinds_it_is_declared_for() -> None:
    @dataclass
    class Own(Walk):
        pass

    @Own.on("gpu")
    def by_hand(_task: Any, _device: Any, _checkpoint: Any) -> Iterator[None]:
        yield

    assert Walk.array_kinds == {"cpu", "gpu"}
    assert Walk.implementations["cpu"] is Walk.implementations["gpu"]
    assert Own.array_kinds == {"cpu"}
    assert Own.libraries_on("gpu") is None
    assert Own.implementations["gpu"] is by_hand


def test_an_unknown_kind_is_refused_where_it_is_declared() -> None:
    with pytest.raises(
        ValueError, match=r"Walk\.on: 'tpu': expected one of 'cpu', 'gpu'"
    ):
        Walk.on("tpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("kinds", [(), ("cpu", "fpga")])
def test_kinds_without_an_array_library_are_refused(kinds: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="one kind of device, or cpu and gpu"):
        Walk.on(*kinds)


# ---------------------------------------------------------------- results that stay


@dataclass
class Scaling(Task):
    """Doubles an array that it takes, and keeps the result on the device."""

    values: Any
    result_names = ("doubled",)

    def load(self) -> None:
        self.doubled = self.values

    def total(self) -> int:
        return 1


@Scaling.on("cpu", "gpu")
def scale(task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
    for _ in checkpoint.strips():
        task.values *= 2.0  # in place, also where a copy stays
        task.doubled = task.values + 0.0
        yield


def scaled(device: ArrayDevice, path: Path, spec: DeviceSpec = GPU) -> Any:
    """Double the array in a file; write the result there, as a worker does."""
    with path.open("rb") as file:
        task = Scaling(unpickled(file, path))
    task.load()
    device.begin(0.5)
    implementation = Scaling.implementations[spec.kind]
    assert Execution(implementation, task, device, strips_of_one(1), go_on).run() == (
        Completed()
    )
    with pytest.raises(ValueError, match="read-only"):
        task.doubled[0] = 1
    device.thaw()
    with recorded() as written:
        write_pickled(path, pickled(task.doubled))
        device.keep_results(written)
    device.withdraw()
    return task.doubled


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_result_is_not_copied_to_the_device_that_computed_it(
    library: str, tmp_path: Path
) -> None:
    values, path = np.arange(float(LEAST)), tmp_path / "result"
    write_pickled(path, pickled(values))
    device = ArrayDevice(GPU, (library,))

    for factor in (2, 4, 8):
        np.testing.assert_array_equal(scaled(device, path), factor * values)

    assert device.bytes_in == values.nbytes
    # the result and the attribute that began as the same array
    assert device.residents.found == 2 * values.nbytes
    device.close()
    np.testing.assert_array_equal(scaled(device, path), 16 * values)
    assert device.bytes_in == 2 * values.nbytes


def test_on_the_cpu_a_result_is_the_array_itself(tmp_path: Path) -> None:
    values, path = np.arange(float(LEAST)), tmp_path / "result"
    write_pickled(path, pickled(values))
    device = ArrayDevice(CPU, ())

    for factor in (2, 4):
        result = scaled(device, path, CPU)
        np.testing.assert_array_equal(result, factor * values)

    assert (device.bytes_in, device.residents.bytes) == (0, 0)
