"""Drivers of this machine that pass their self-tests, and faulty ones made of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from libtask.devices.discovery import Discovery
from libtask.devices.icd import drivers

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.devices.discovery import Offer
    from libtask.devices.report import FoundDevice
    from libtask.messages import Kind

HERE = Path(__file__).parent
DISCOVERY_S = 100.0
POCL = "Portable Computing Language"
EMULATOR = "Intel(R) FPGA Emulation Platform for OpenCL(TM)"


def offered(
    kind: Kind,
    wanted: Callable[[FoundDevice], bool] = lambda _device: True,
    *,
    emulated: bool = False,
) -> Offer:
    """Return what a driver of this machine offers of a kind; skip where none passes.

    Args:
        kind: gpu or fpga.
        wanted: which devices may be it.
        emulated: whether real ones do not count.

    """
    discovery = Discovery(DISCOVERY_S)
    asked = [discovery.listing(library) for library in drivers().values()]
    devices = [each for listing in asked for each in listing.devices if wanted(each)]
    if emulated:
        devices = [each for each in devices if each.type != "gpu"]
    offers = discovery.chosen(devices)
    found = next((offer for offer in offers if offer.spec.kind == kind), None)
    if found is None:
        pytest.skip(f"no OpenCL driver for a {kind} like that is installed")
    if found.verdict.fault:
        pytest.skip(f"no driver for a {kind} passes: {found.verdict.fault}")
    return found


def driver_of(offer: Offer) -> FoundDevice:
    """Return the device that an offer uses, with its driver's library."""
    discovery = Discovery(DISCOVERY_S)
    listings = [discovery.listing(library) for library in offer.spec.libraries]
    named = (offer.spec.platform, offer.spec.device)
    devices = [device for listing in listings for device in listing.devices]
    return next(each for each in devices if (each.platform, each.device) == named)


class FaultyDrivers:
    """Makes drivers that pass everything on to a working one, but for one fault.

    Args:
        folder: for the libraries.

    Skips where there is no C compiler.

    """

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler (cc) to build a faulty driver with")
        self._folder = folder
        self._built = folder / "faulty_icd.so"
        source = str(HERE / "faulty_icd.c")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._built), source]
        subprocess.run([*command, "-ldl"], check=True)

    def make(
        self,
        base: str,
        fault: str,
        platform: str = POCL,
        device: str = "pthread-faulty",
        text: str = "",
    ) -> str:
        """Make a driver; return its library.

        Args:
            base: library of the driver that does the work.
            fault: one of those that `faulty_icd.c` lists.
            platform: name under which it shows its platform; empty: its own.
            device: name under which it shows its device; empty: its own.
            text: programs with it in their source are those that fail.

        """
        stem = Path(base).name.partition(".so")[0]
        number = len(list(self._folder.glob("*.conf")))
        library = self._folder / f"{stem}-{number}-{fault}.so"
        shutil.copy(self._built, library)
        lines = [base, fault, text, platform, device]
        conf = library.with_name(f"{library.name}.conf")
        conf.write_text("\n".join(lines) + "\n")
        return str(library)
