"""The OpenCL drivers of this machine, each by itself in processes of its own.

Drivers crash, hang, and clash with each other, so no test loads one before a child process
has tried it. What a driver said when it failed is why tests of it are skipped.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hardware.run_cases import Outcome, Request
from libtask.devices import icd
from libtask.devices.report import FoundDevice, Report
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from libtask.messages import Kind

PATIENCE_S = 280.0
"""A driver that takes longer hangs; the machine may be busy."""

TESTS = Path(__file__).parents[1]

Environment = tuple[tuple[str, str], ...]
"""Settings of a child process, besides those of this one."""


class ChildError(Exception):
    """A child process failed; the text is what it said last."""


class Driver(NamedTuple):
    """An OpenCL implementation: its name in tests, and the path of its shared library."""

    name: str
    path: str


def drivers() -> list[Driver]:
    """List the OpenCL drivers of this machine, whether they work or not.

    The FPGA vendor's wheel also has its runtime for CPUs, beside the emulator.
    """
    found = {
        name.removesuffix(".icd"): library for name, library in icd.drivers().items()
    }
    emulator = found.get("fpga-emulator")
    beside = Path(emulator).with_name("libintelocl.so") if emulator else Path()
    if emulator and beside.exists() and not _lists(found, beside):
        found["vendor-cpu"] = str(beside)
    return [Driver(name, library) for name, library in found.items()]


def _lists(found: Mapping[str, str], library: Path) -> bool:
    there = (Path(other) for other in found.values())
    return any(other.exists() and other.samefile(library) for other in there)


def alone(driver: Driver) -> Environment:
    """Return the settings with which a process loads this driver only."""
    return (("OCL_ICD_VENDORS", driver.path),)


def python(
    *arguments: str, settings: Environment = (), patience: float = PATIENCE_S
) -> str:
    """Run Python; return what it printed.

    Raises:
        ChildError: it failed, crashed or hung.

    """
    environment = {**os.environ, "PYTHONPATH": str(TESTS), **dict(settings)}
    try:
        ended = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"hangs: no end in {patience:g} s") from None
    if ended.returncode:
        raise ChildError(_last_words(ended.returncode, ended.stderr))
    return ended.stdout


def _last_words(status: int, text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    last = " | ".join((errors or lines)[-2:]) or "no message"
    if status > 0:
        return last
    return f"{signal.strsignal(-status) or f'signal {-status}'}: {last}"


@functools.cache
def devices(settings: Environment = ()) -> tuple[FoundDevice, ...]:
    """List what the drivers offer, as hetd's probe sees it.

    Raises:
        ChildError: the probe failed.

    """
    report = python("-m", "libtask.devices.probe", settings=settings)
    return tuple(msgspec.json.decode(report, type=Report).devices)


def run_cases(
    request: Request, settings: Environment = (), patience: float = PATIENCE_S
) -> list[Outcome]:
    """Run cases in a process of its own.

    Raises:
        ChildError: it failed, crashed or hung.

    """
    text = msgspec.json.encode(request).decode()
    program = ("-m", "hardware.run_cases", text)
    lines = python(*program, settings=settings, patience=patience).splitlines()
    return [msgspec.json.decode(line, type=Outcome) for line in lines]


def spec_of(device: FoundDevice, kind: Kind, number: int = 0) -> DeviceSpec:
    """Describe a device as a resource of a kind."""
    real = device.type == "gpu" or not _computes_on_cpu(device)
    return DeviceSpec(
        f"{kind}{number}",
        kind,
        driver="opencl",
        platform=device.platform,
        device=device.device,
        index=device.index,
        emulated=not real,
    )


def kinds_of(device: FoundDevice) -> Sequence[Kind]:
    """Return the kinds whose kernels a device can compile and run: of boards, none."""
    if _computes_on_cpu(device):
        return ("gpu", "fpga")
    return ("gpu",) if device.type == "gpu" else ()


def _computes_on_cpu(device: FoundDevice) -> bool:
    return device.type == "cpu" or "emulation" in device.platform.lower()


def refusal(spec: DeviceSpec, settings: Environment = ()) -> str:
    """Try a device; return the driver's words if it is unusable, else nothing."""
    return _refusal(msgspec.json.encode(spec).decode(), settings)


@functools.cache
def _refusal(text: str, settings: Environment) -> str:
    spec = msgspec.json.decode(text, type=DeviceSpec)
    trial = Request([spec], ("gaussian-blur",), "trial")
    try:
        python("-m", "libtask.devices.selftest", text, settings=settings)
        outcomes = run_cases(trial, settings)
    except ChildError as failure:
        return f"{spec.platform} / {spec.device}: {failure}"
    wrong = [outcome.error for outcome in outcomes if outcome.error]
    return (
        f"{spec.platform} / {spec.device}: wrong numbers: {wrong[0]}" if wrong else ""
    )


class Usable(NamedTuple):
    """What of a driver can be used, and what it said of the rest."""

    specs: list[DeviceSpec]
    refusals: list[str]


def usable(
    settings: Environment = (), kinds: Sequence[Kind] = ("gpu", "fpga")
) -> Usable:
    """Try each device of the drivers as each of these kinds that it can be."""
    try:
        found = devices(settings)
    except ChildError as failure:
        return Usable([], [str(failure)])
    specs = [
        spec_of(device, kind, number)
        for number, device in enumerate(found)
        for kind in kinds_of(device)
        if kind in kinds
    ]
    tried = [(spec, refusal(spec, settings)) for spec in specs]
    good = [spec for spec, words in tried if not words]
    refusals = list(dict.fromkeys(words for _, words in tried if words))
    return Usable(good, refusals if found else ["no device is offered"])


class Bits:
    """Digests of results, which have to be the same wherever a case ran."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, str]] = {}

    def differing(self, where: str, outcomes: Sequence[Outcome]) -> list[str]:
        """List the runs that are wrong, or gave other bits than the first run."""
        found = []
        for outcome in outcomes:
            here = f"{outcome.case} on {where} {outcome.route}"
            first = self._first.setdefault(outcome.case, (outcome.digest, here))
            if outcome.error:
                found.append(f"{here}: {outcome.error}")
            elif outcome.digest != first[0]:
                found.append(f"{here}: other bits than {first[1]}")
        return found
