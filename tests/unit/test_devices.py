"""Devices that need no driver, and the folder that tells OpenCL of the drivers."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import threadpoolctl

from libtask.devices import icd, open_device
from libtask.devices.cpu import CpuDevice
from libtask.devices.icd import cache_folder, drivers, prepare, write_folder
from libtask.devices.null import NullDevice
from libtask.messages import DeviceSpec, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def threads_restored() -> Iterator[None]:
    """Leave the other tests the threads they had."""
    with threadpoolctl.threadpool_limits(limits=2):
        yield


@pytest.mark.parametrize("kind", ["cpu", "gpu", "fpga"])
def test_a_null_device_hands_out_arrays_and_records_calls(kind: Kind) -> None:
    device = open_device(DeviceSpec("null0", kind, driver="null"))
    grid, weights = np.ones(3), np.ones(2)

    with device.resident(grid) as (held,), device.inputs(weights) as (read,):
        device.mark()()
    with pytest.raises(GeneratorExit), device.scratch(grid) as (spare,):
        raise GeneratorExit
    device.close()

    assert (held is grid, read is weights, spare is grid) == (True, True, True)
    assert isinstance(device, NullDevice)
    assert list(device.calls) == [
        "resident",
        "inputs",
        "mark",
        "wait",
        "leave inputs",
        "leave resident",
        "scratch",
        "leave scratch",
        "close",
    ]
    assert (device.transfer_in, device.transfer_out) == (0, 0)


@pytest.mark.usefixtures("threads_restored")
def test_the_cpu_works_on_the_arrays_themselves() -> None:
    device = open_device(DeviceSpec("cpu", "cpu", threads=1))
    grid = np.zeros(3)

    with device.resident(grid) as (held,), device.scratch(grid) as (spare,):
        held[:] += 1
        device.mark()()
    with device.inputs(grid) as (read,):
        pass

    assert isinstance(device, CpuDevice)
    assert held is spare is read is grid
    np.testing.assert_array_equal(grid, np.ones(3))
    assert (device.transfer_in, device.transfer_out) == (0, 0)


@pytest.mark.usefixtures("threads_restored")
def test_the_cpu_limits_blas_to_the_budget() -> None:
    open_device(DeviceSpec("cpu", "cpu", threads=1))

    pools = threadpoolctl.threadpool_info()

    assert {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"} == {1}


LIMITED_LATER = """
import sys
from libtask.devices import open_device
from libtask.messages import DeviceSpec

device = open_device(DeviceSpec("cpu", "cpu", threads=1))
for library in ("numba", "cv2", "scipy.linalg"):
    assert library not in sys.modules, f"opening the CPU imported {library}"

import cv2, numba, numpy, scipy.linalg, threadpoolctl

@numba.njit(parallel=True)
def total(values):
    result = 0.0
    for i in numba.prange(values.size):
        result += values[i]
    return result

with device.resident(numpy.ones(10)) as (values,):
    pools = threadpoolctl.threadpool_info()
    assert total(values) == 10
assert numba.threading_layer() == "workqueue", numba.threading_layer()
assert numba.get_num_threads() == 1, numba.get_num_threads()
assert cv2.getNumThreads() == 1, cv2.getNumThreads()
blas = [pool for pool in pools if pool["user_api"] == "blas"]
assert len(blas) > 1 and all(pool["num_threads"] == 1 for pool in blas), blas
"""


def test_libraries_imported_by_the_first_strip_are_limited_too() -> None:
    # Other threading layers are the user's right; this test is about ours.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}

    done = subprocess.run(
        [sys.executable, "-c", LIMITED_LATER],
        env=environment | {"NUMBA_NUM_THREADS": "2"},
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr


def test_a_folder_of_drivers_is_named_by_its_content(tmp_path: Path) -> None:
    files = {"a.icd": "/lib/a.so", "b.icd": "libb.so.1"}

    folder = write_folder(files, tmp_path / "icd")

    assert write_folder(dict(reversed(files.items())), tmp_path / "icd") == folder
    assert write_folder({"a.icd": "/lib/a.so"}, tmp_path / "icd") != folder
    written = {file.name: file.read_text() for file in folder.iterdir()}
    assert written == {"a.icd": "/lib/a.so\n", "b.icd": "libb.so.1\n"}


def test_a_folder_that_lost_a_file_gets_it_back(tmp_path: Path) -> None:
    files = {"a.icd": "/lib/a.so", "b.icd": "libb.so.1"}
    folder = write_folder(files, tmp_path)
    (folder / "a.icd").unlink()

    write_folder(files, tmp_path)

    assert (folder / "a.icd").read_text() == "/lib/a.so\n"


MANY = {f"{number}.icd": f"/lib/{number}.so" for number in range(50)}


def read(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text().strip() for file in folder.glob("*.icd")}


def test_processes_may_write_the_folder_at_once(tmp_path: Path) -> None:
    fresh = multiprocessing.get_context("spawn")
    parents = [tmp_path / str(number // 8) for number in range(64)]
    with ProcessPoolExecutor(4, mp_context=fresh) as pool:
        folders = pool.map(write_folder, [MANY] * len(parents), parents)
        # each is read as soon as one process says that it is whole
        seen = [read(folder) for folder in folders]

    assert seen == [MANY] * len(parents)
    assert not list(tmp_path.glob("*/*/.new-*"))


@pytest.fixture
def no_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take away every driver; return an empty system folder."""
    system = tmp_path / "vendors"
    system.mkdir()
    monkeypatch.setattr(icd, "SYSTEM_FOLDERS", (system,))
    monkeypatch.setattr(icd, "NVIDIA_FOLDERS", (tmp_path / "nvidia",))
    monkeypatch.setattr(icd, "NVIDIA_LIBRARY", "libnvidia-of-this-test.so.1")
    monkeypatch.setattr(icd, "_pocl", lambda: None)
    monkeypatch.setattr(icd, "_emulator", lambda: None)
    return system


@pytest.mark.usefixtures("no_drivers")
def test_without_drivers_the_folder_is_empty(tmp_path: Path) -> None:
    assert drivers() == {}
    assert list(write_folder(drivers(), tmp_path / "icd").iterdir()) == []


def test_system_drivers_are_listed_but_no_second_pocl(
    no_drivers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_drivers / "pocl.icd").write_text("/usr/lib/libpocl.so.2.12\n")
    (no_drivers / "amd.icd").write_text("libamdocl64.so\nanother line\n")
    (no_drivers / "empty.icd").touch()

    assert drivers() == {
        "system-pocl.icd": "/usr/lib/libpocl.so.2.12",
        "system-amd.icd": "libamdocl64.so",
    }
    monkeypatch.setattr(icd, "_pocl", lambda: Path("/wheel/libpocl-21062cec.so"))
    assert drivers() == {
        "pocl.icd": "/wheel/libpocl-21062cec.so",
        "system-amd.icd": "libamdocl64.so",
    }


def test_a_bare_nvidia_library_is_found_once(
    no_drivers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "nvidia" / "libnvidia-of-this-test.so.1"
    library.parent.mkdir()
    library.touch()
    assert drivers() == {"nvidia.icd": str(library)}

    monkeypatch.setattr(icd, "NVIDIA_FOLDERS", ())
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{library.parent}")
    assert drivers() == {"nvidia.icd": str(library)}

    (no_drivers / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    assert drivers() == {"system-nvidia.icd": "libnvidia-opencl.so.1"}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An environment without OpenCL settings; what the test adds is taken back."""
    for name in ("OCL_ICD_VENDORS", "POCL_DEVICES", "POCL_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # so that monkeypatch takes back what is set
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return os.environ


@pytest.mark.usefixtures("no_drivers")
def test_prepare_points_the_loader_at_the_folder(
    environment: dict[str, str], tmp_path: Path
) -> None:
    folder = prepare.__wrapped__()

    assert folder is not None
    assert folder.parent == tmp_path / "hetd/icd"
    assert environment["OCL_ICD_VENDORS"] == str(folder)
    assert environment["POCL_CACHE_DIR"] == str(tmp_path / "hetd/pocl")


@pytest.mark.usefixtures("no_drivers")
def test_prepare_leaves_what_the_user_set(environment: dict[str, str]) -> None:
    chosen = {"OCL_ICD_VENDORS": "/mine", "POCL_DEVICES": "x", "POCL_CACHE_DIR": "/y"}
    environment |= chosen

    assert prepare.__wrapped__() is None

    assert {name: environment[name] for name in chosen} == chosen


@pytest.mark.usefixtures("environment")
def test_without_a_home_the_cache_is_a_private_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    folder = icd.cache_folder()
    icd._temporary_folder.cache_clear()

    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cache_folder() != folder
    icd._temporary_folder.cache_clear()
