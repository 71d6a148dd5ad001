"""Devices that need no driver, and the folder that tells OpenCL of the drivers."""

from __future__ import annotations

import importlib
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
    monkeypatch.setattr(icd, "_vendor_library", lambda _name: None)
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    return system


@pytest.mark.usefixtures("no_drivers")
def test_without_drivers_the_folder_is_empty(tmp_path: Path) -> None:
    assert drivers() == {}
    assert list(write_folder(drivers(), tmp_path / "icd").iterdir()) == []


def test_system_drivers_are_listed_after_those_of_wheels(
    no_drivers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_drivers / "pocl.icd").write_text("libpocl.so.2.12\n")
    (no_drivers / "amd.icd").write_text("libamdocl64.so\nanother line\n")
    (no_drivers / "empty.icd").touch()
    (no_drivers / "gone.icd").write_text("/no/such/driver.so\n")
    monkeypatch.setattr(icd, "_pocl", lambda: Path("/wheel/libpocl-21062cec.so"))

    assert list(drivers().items()) == [
        ("pocl.icd", "/wheel/libpocl-21062cec.so"),
        ("system-amd.icd", "libamdocl64.so"),
        ("system-pocl.icd", "libpocl.so.2.12"),
    ]


def test_the_user_may_name_the_only_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.icd").write_text("libmine.so\n")
    (tmp_path / "empty.icd").touch()
    mine = {"mine.icd": "libmine.so"}

    for place, expected in (
        (tmp_path, mine),
        (tmp_path / "mine.icd", mine),
        (tmp_path / "gone.icd", {}),
        ("libother.so", {"libother.so.icd": "libother.so"}),
    ):
        monkeypatch.setenv("OCL_ICD_VENDORS", str(place))
        assert drivers() == expected


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
    monkeypatch.setattr(icd._Loader, "prepared", False)
    for name in ("OCL_ICD_VENDORS", "POCL_DEVICES", "POCL_CACHE_DIR", icd.CPU_TARGET):
        monkeypatch.setenv(name, "")  # so that monkeypatch takes back what is set
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return os.environ


@pytest.mark.usefixtures("no_drivers")
def test_prepare_points_the_loader_at_the_folder(
    environment: dict[str, str], tmp_path: Path
) -> None:
    prepare()

    assert Path(environment["OCL_ICD_VENDORS"]).parent == tmp_path / "hetd/icd"
    assert environment["POCL_CACHE_DIR"] == str(tmp_path / "hetd/pocl")


@pytest.mark.usefixtures("no_drivers")
def test_prepare_leaves_what_the_user_set(environment: dict[str, str]) -> None:
    chosen = {"OCL_ICD_VENDORS": "/mine", "POCL_DEVICES": "x", "POCL_CACHE_DIR": "/y"}
    environment |= chosen

    prepare()

    assert {name: environment[name] for name in chosen} == chosen


def loaded(environment: dict[str, str]) -> list[str]:
    """List the drivers that the OpenCL loader would load."""
    folder = Path(environment["OCL_ICD_VENDORS"])
    return sorted(file.read_text().strip() for file in folder.glob("*.icd"))


def test_prepare_loads_the_drivers_that_are_wanted_and_only_once(
    environment: dict[str, str],
) -> None:
    prepare(["liba.so", "/b.so"])
    prepare(["libc.so"])  # the loader has looked by now

    assert loaded(environment) == ["/b.so", "liba.so"]


def test_prepare_loads_one_build_of_each_driver(
    no_drivers: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_drivers / "pocl.icd").write_text("libpocl.so.2.12\n")
    (no_drivers / "amd.icd").write_text("libamdocl64.so\n")
    monkeypatch.setattr(icd, "_pocl", lambda: Path("/wheel/libpocl-21062cec.so"))

    prepare()

    assert loaded(environment) == ["/wheel/libpocl-21062cec.so", "libamdocl64.so"]


compiled: Any = importlib.import_module("numpy._core._multiarray_umath")
FEATURES = {"SSE42": True, "AVX": True, "AVX2": True, "AVX512_SKX": True}


@pytest.mark.parametrize(
    ("lacking", "target"),
    [
        ([], "skx"),
        (["AVX512_SKX"], "core-avx2"),
        (["AVX512_SKX", "AVX2"], "corei7-avx"),
        (["AVX512_SKX", "AVX2", "AVX"], "corei7"),
        (list(FEATURES), None),
    ],
)
def test_the_vendors_runtimes_are_told_a_cpu_that_they_know(
    lacking: list[str],
    target: str | None,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features = {name: name not in lacking for name in FEATURES}
    monkeypatch.setattr(compiled, "__cpu_features__", features)

    prepare(["/opt/vendor/libintelocl_emu.so"])

    assert environment.get(icd.CPU_TARGET) == target


def test_what_the_user_says_of_the_cpu_stays(environment: dict[str, str]) -> None:
    environment[icd.CPU_TARGET] = "core-avx2"

    prepare(["/opt/vendor/libintelocl.so"])

    assert environment[icd.CPU_TARGET] == "core-avx2"


def test_other_drivers_are_told_nothing(environment: dict[str, str]) -> None:
    prepare(["/usr/lib/libpocl.so"])

    assert icd.CPU_TARGET not in environment


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


def test_a_build_log_is_shown_from_its_first_error_on() -> None:
    programs = pytest.importorskip("libtask.devices.programs")
    noise = [f"note {number}" for number in range(40)]
    log = "\n".join(
        [
            "Compilation started",
            *noise,
            "pocl/tempfile_Ab1.cl:3:7: error: no",
            "  ^",
            *noise,
        ]
    )

    shown = programs.excerpt(log)

    assert shown[:2] == ["line 3:7: error: no", "  ^"]
    assert len(shown) == programs.EXCERPT_LINES
    assert programs.excerpt("") == []
    assert programs.excerpt("x" * 900) == ["x" * programs.LINE_CHARACTERS]
