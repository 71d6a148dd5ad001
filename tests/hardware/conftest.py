"""Fixtures of the tests that need a driver.

Each skips where its device is absent, or unusable: then with the driver's words. That
there is a usable one for each kind is what `test_drivers.py` asserts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hardware.drivers import Bits, ChildError, devices, refusal, spec_of
from libtask.devices import open_device
from libtask.devices.discovery import POCL
from libtask.devices.report import FoundDevice
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from libtask.devices import Device
    from libtask.messages import Kind

Place = Callable[[FoundDevice], bool]
"""Whether a device is of a certain driver."""


def _pocl_threads(device: FoundDevice) -> bool:
    return device.platform == POCL and not device.device.startswith("basic")


def _pocl_single(device: FoundDevice) -> bool:
    return device.platform == POCL and device.device.startswith("basic")


def _vendor_cpu(device: FoundDevice) -> bool:
    return device.platform == "Intel(R) OpenCL" and device.type == "cpu"


def _emulator(device: FoundDevice) -> bool:
    return "FPGA Emulation" in device.platform


def _real_gpu(device: FoundDevice) -> bool:
    return device.type == "gpu"


KINDS: dict[str, Kind] = {
    "pocl": "gpu",
    "vendor_cpu": "gpu",
    "pocl_fpga": "fpga",
    "fpga_emulator": "fpga",
    "gpu": "gpu",
}


@pytest.fixture(scope="session")
def pocl() -> DeviceSpec:
    """PoCL's threaded device, as an emulated GPU."""
    return _first_usable("gpu", [_pocl_threads], "PoCL is not installed")


@pytest.fixture(scope="session")
def vendor_cpu() -> DeviceSpec:
    """The FPGA vendor's runtime for CPUs, as an emulated GPU."""
    return _first_usable("gpu", [_vendor_cpu], "no vendor's runtime for CPUs is found")


@pytest.fixture(scope="session")
def pocl_fpga() -> DeviceSpec:
    """PoCL's single-threaded device, as the FPGA of machines without the emulator."""
    return _first_usable("fpga", [_pocl_single], "PoCL is not installed")


@pytest.fixture(scope="session")
def fpga_emulator() -> DeviceSpec:
    """The FPGA vendor's emulator."""
    reason = "the extra fpga-emulator is not installed"
    return _first_usable("fpga", [_emulator], reason)


@pytest.fixture(scope="session")
def gpu() -> DeviceSpec:
    """A real GPU."""
    return _first_usable("gpu", [_real_gpu], "no GPU with an OpenCL driver")


@pytest.fixture(scope="session")
def emulated_gpu() -> DeviceSpec:
    """The first usable driver of those that stand in for a GPU."""
    places = [_pocl_threads, _vendor_cpu]
    return _first_usable("gpu", places, "no driver stands in for a GPU")


@pytest.fixture(scope="session")
def emulated_fpga() -> DeviceSpec:
    """The first usable driver of those that stand in for an FPGA."""
    places = [_emulator, _pocl_single, _vendor_cpu]
    return _first_usable("fpga", places, "no driver stands in for an FPGA")


@pytest.fixture(
    scope="session",
    params=[
        "pocl",
        "vendor_cpu",
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


@pytest.fixture(scope="session")
def bits() -> Bits:
    """Digests of all cases that ran so far."""
    return Bits()


def _first_usable(kind: Kind, places: Sequence[Place], reason: str) -> DeviceSpec:
    """Return the first device at these places that passes its trial, or skip."""
    try:
        found = devices()
    except ChildError as failure:
        pytest.skip(f"the drivers cannot be asked: {failure}")
    refusals = []
    for device in [device for place in places for device in found if place(device)]:
        spec = spec_of(device, kind)
        words = refusal(spec)
        if not words:
            return spec
        refusals.append(words)
    pytest.skip("; ".join(refusals) or reason)
