"""Fixtures of the tests that need a driver: each skips where its device is absent."""

from __future__ import annotations

import pytest

from hetd.discovery import fpgas, gpus
from libtask.devices.probe import probe
from libtask.messages import DeviceInfo, DeviceSpec

POCL = "Portable Computing Language"


@pytest.fixture(scope="session")
def pocl() -> DeviceSpec:
    """PoCL's threaded device, as an emulated GPU."""
    on_pocl = [device for device in probe().devices if device.platform == POCL]
    return _first(gpus(on_pocl), "PoCL is not installed (pyopencl[pocl])")


@pytest.fixture(scope="session")
def pocl_fpga() -> DeviceSpec:
    """PoCL's single-threaded device, as the FPGA of machines without the emulator."""
    on_pocl = [device for device in probe().devices if device.platform == POCL]
    return _first(fpgas(on_pocl), "PoCL is not installed (pyopencl[pocl])")


@pytest.fixture(scope="session")
def fpga_emulator() -> DeviceSpec:
    """The FPGA vendor's emulator."""
    emulators = [device for device in probe().devices if "Emulation" in device.platform]
    return _first(fpgas(emulators), "the extra fpga-emulator is not installed")


@pytest.fixture(scope="session")
def gpu() -> DeviceSpec:
    """A real GPU."""
    real = [device for device in probe().devices if device.type == "gpu"]
    return _first(gpus(real), "no GPU with an OpenCL driver")


def _first(infos: list[DeviceInfo], reason: str) -> DeviceSpec:
    if not infos:
        pytest.skip(reason)
    return infos[0].spec
