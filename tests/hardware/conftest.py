"""Fixtures of the tests that need a driver: each skips where its device is absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.discovery import fpgas, gpus
from libtask.devices import open_device
from libtask.devices.probe import probe
from libtask.messages import DeviceInfo, DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.devices import Device

POCL = "Portable Computing Language"
KINDS = {"pocl": "gpu", "pocl_fpga": "fpga", "fpga_emulator": "fpga", "gpu": "gpu"}


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


@pytest.fixture(
    scope="session",
    params=[
        "pocl",
        "pocl_fpga",
        pytest.param("fpga_emulator", marks=pytest.mark.fpga),
        pytest.param("gpu", marks=pytest.mark.gpu),
    ],
)
def spec(request: pytest.FixtureRequest) -> DeviceSpec:
    """Each of the devices in turn."""
    found: DeviceSpec = request.getfixturevalue(request.param)
    assert found.kind == KINDS[request.param]
    return found


@pytest.fixture(scope="module")
def device(spec: DeviceSpec) -> Iterator[Device]:
    """Each of the devices in turn, open."""
    opened = open_device(spec)
    yield opened
    opened.close()


def _first(infos: list[DeviceInfo], reason: str) -> DeviceSpec:
    if not infos:
        pytest.skip(reason)
    return infos[0].spec
