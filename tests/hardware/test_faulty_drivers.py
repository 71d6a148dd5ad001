"""Drivers that fail to build, abort, hang, or compute wrong numbers cost nobody a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hardware.faulty_drivers import EMULATOR, POCL, FaultyDrivers, driver_of, offered
from libtask.devices import discovery
from libtask.devices.discovery import discover_devices
from libtask.devices.icd import has_vendor_runtimes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(300)

FAULTS = {
    "build-fails": "unknown target CPU 'generic'",
    "build-aborts": "Aborted: **Internal compiler error** Cannot select",
    "wrong-numbers": "computes wrong numbers",
    "some-kernels": "unknown target CPU 'generic'",
    "some-abort": "Aborted: **Internal compiler error**",
}
"""Fault, and what is told of it. Without a text, programs with any text are meant."""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultyDrivers:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return FaultyDrivers(tmp_path)


def test_at_least_one_driver_passes_for_each_kind() -> None:
    for kind in ("gpu", "fpga"):
        assert offered(kind).verdict.fault == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_another_driver_takes_the_place_of_one_that_fails(
    fault: str, faulty: FaultyDrivers
) -> None:
    base = driver_of(offered("gpu", emulated=True))
    broken = faulty.make(base.driver, fault)

    gpu, fpga = discover_devices(libraries=[broken, base.driver])

    assert (gpu.verdict.fault, gpu.spec.platform) == ("", base.platform)
    assert gpu.spec.libraries == [base.driver]
    assert gpu.rejected[0].startswith(f"{POCL}: ")
    assert FAULTS[fault] in gpu.rejected[0]
    assert fpga.spec.libraries == [base.driver]


def test_a_good_driver_of_this_making_passes(faulty: FaultyDrivers) -> None:
    base = driver_of(offered("gpu", emulated=True))

    gpu, _ = discover_devices(libraries=[faulty.make(base.driver, "good")])

    assert (gpu.verdict.fault, gpu.spec.platform) == ("", POCL)


def test_a_driver_that_aborts_as_it_is_loaded_is_left_out(
    faulty: FaultyDrivers,
) -> None:
    base = driver_of(offered("gpu", emulated=True))
    broken = faulty.make(base.driver, "load-aborts")

    gpu, _ = discover_devices(libraries=[broken, base.driver])

    assert gpu.verdict.fault == ""
    assert "this CPU is not supported" in gpu.rejected[0]


def test_a_compiler_that_hangs_is_ended(
    faulty: FaultyDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = driver_of(offered("gpu", emulated=True))
    broken = faulty.make(base.driver, "build-hangs")
    monkeypatch.setattr(discovery, "DRIVER_S", 8.0)

    gpu, _ = discover_devices(libraries=[broken])

    hint = "; the extra hetd[fpga-emulator] has emulators for more CPUs"
    silent = f"{POCL}: no answer in 8 s{'' if has_vendor_runtimes() else hint}"
    assert (gpu.verdict.fault, gpu.verdict.hung) == (silent, True)


def test_without_a_driver_that_passes_each_says_why(faulty: FaultyDrivers) -> None:
    base = driver_of(offered("gpu", emulated=True))
    emulator = driver_of(offered("fpga"))
    threads = faulty.make(base.driver, "build-fails")
    pipeline = faulty.make(emulator.driver, "build-aborts", EMULATOR, "Emulator")

    gpu, fpga = discover_devices(libraries=[threads, pipeline])

    assert FAULTS["build-fails"] in gpu.verdict.fault
    assert FAULTS["build-aborts"] in fpga.verdict.fault
