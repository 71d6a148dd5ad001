"""Other machines' CPUs: QEMU gives a process another CPU's identity and features.

With the first of these, PoCL's compiler refuses the CPU and the FPGA vendor's emulator,
left to itself, aborts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from libtask.devices import discovery
from libtask.devices.discovery import Discovery
from libtask.devices.icd import CPU_TARGET, drivers

if TYPE_CHECKING:
    from libtask.devices.discovery import Offer

pytestmark = pytest.mark.timeout(600)

CPUS = ("EPYC,family=26,model=2", "EPYC", "Haswell", "Nehalem")
"""The last one has no AVX."""
TESTS = Path(__file__).parents[1]


@pytest.fixture(params=CPUS)
def cpu(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Let children of this process run on another CPU, with a cache of their own."""
    qemu = shutil.which("qemu-x86_64")
    if qemu is None:
        pytest.skip("qemu-x86_64 is not installed (Debian: qemu-user)")
    name: str = request.param
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {qemu} -cpu {name} {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(wrapper))
    monkeypatch.setattr(discovery, "DRIVER_S", 200.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for variable in (CPU_TARGET, "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    return name


def test_both_emulations_are_found_and_compute(cpu: str) -> None:
    offers = Discovery(400).offers(drivers().values())

    faults = {offer.spec.name: offer.verdict.fault for offer in offers}
    assert faults == {"gpu0": "", "fpga0": ""}, cpu
    for offer in offers:
        assert blurred(offer) == "", f"{offer.spec.platform} on {cpu}"


def blurred(offer: Offer) -> str:
    """Run a real kernel on a device; return what went wrong."""
    spec = msgspec.json.encode(offer.spec).decode()
    path = os.pathsep.join([str(TESTS), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-m", "hardware.blur_once", spec],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if ended.returncode == 0 else ended.stderr[-500:]
