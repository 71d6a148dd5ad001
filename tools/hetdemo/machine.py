"""The machine that the demo runs on, in lines: CPU, resources, drivers, what is missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hetdemo.progress import Names
    from libtask.messages import DeviceInfo

USABLE = ("up", "draining")
"""States of resources that can compute."""
KINDS = {"cpu": "CPU", "gpu": "GPU", "fpga": "FPGA"}
CPUINFO = Path("/proc/cpuinfo")


def offered(devices: Iterable[DeviceInfo]) -> list[DeviceInfo]:
    """Return the resources that the demo offers its tasks: those in use."""
    return [each for each in devices if each.state in USABLE]


def machine_lines(devices: Sequence[DeviceInfo], names: Names) -> Iterator[str]:
    """Describe the CPU, then each resource with its driver, then what is missing."""
    yield f"CPU: {cpu_model(_cpuinfo())}; {os.cpu_count()} processors"
    for device in devices:
        yield resource_line(device, names)
        for rejected in device.rejected:
            yield one_line(f"{names(device.spec.name)}: not used for it: {rejected}")
    for kind, name in KINDS.items():
        if all(device.spec.kind != kind for device in devices):
            yield f"no {name}: neither one nor a driver that emulates one was found"


def resource_line(device: DeviceInfo, names: Names) -> str:
    """Describe a resource: what it is, by which driver; or why it is not in use."""
    spec = device.spec
    what = f"{names(spec.name)}: {spec.device or KINDS[spec.kind]}"
    if spec.driver == "opencl":
        how = "emulated by" if spec.emulated else "driver"
        version = spec.version or "not known"
        what = f"{what}, {how} {spec.platform}, version {version}"
    if device.state not in USABLE:
        reason = device.reason or "no reason is known"
        what = f"{what}: not in use, {device.state}: {reason}"
    return one_line(what)


def cpu_model(cpuinfo: str) -> str:
    """Return the name of the CPU with its family and model numbers, which drivers go by."""
    first = cpuinfo.partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    known = {name.strip(): value.strip() for name, _, value in pairs}
    name = known.get("model name", "unknown")
    numbers = [
        f"{key.removeprefix('cpu ')} {known[key]}"
        for key in ("cpu family", "model")
        if key in known
    ]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _cpuinfo() -> str:
    try:
        return CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
