"""Discovery: finds the resources of this machine.

hetd loads no driver: child processes query and test them (`libtask.devices.discovery`),
and may crash, hang or print anything without harm. A resource whose drivers all failed
is listed as unusable, with their errors. Every figure of power, link and reconfiguration
here is *modelled*, a default that the configuration replaces.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from libtask.devices.discovery import Discovery, Offer, discover_devices
from libtask.messages import DeviceInfo, DeviceSpec, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger("hetd")

MOST_CPU_SLOTS = 16
"""More small tasks at once gain nothing: they wait for memory, and each costs a worker."""

WATTS: dict[Kind, tuple[float, float]] = {
    "cpu": (10.0, 3.0),
    "gpu": (250.0, 30.0),
    "fpga": (40.0, 20.0),
}
"""Modelled watts (busy, idle): of one core for the CPU, of one card for the others.
Round figures for server parts; emulated devices stand for the real kind."""

LINK_BYTES_PER_S: dict[Kind, float] = {"gpu": 12e9, "fpga": 6e9}
"""Modelled: what PCIe 3 reaches in practice with 16 lanes (GPU) and 8 (FPGA)."""

EMULATED_LINK_BYTES_PER_S = 4e9
"""Modelled: an emulated device's memory is the host's; a copy reads and writes it."""

RECONFIGURE_S = 2.0
"""Modelled: loading a full image into a board. Emulations are not configured."""


def discover(
    timeout_s: float, libraries: Iterable[str] | None = None
) -> list[DeviceInfo]:
    """List the resources of this machine: `cpu`, `gpu0`…, `fpga0`….

    Args:
        timeout_s: seconds that the drivers have to answer and to pass their tests.
        libraries: OpenCL drivers to query; None: all installed ones.

    """
    devices = [cpu(), *map(_info, discover_devices(timeout_s, libraries))]
    _log_faults(devices)
    return devices


def with_verdicts(devices: list[DeviceInfo], timeout_s: float) -> list[DeviceInfo]:
    """Test the OpenCL devices among configured resources like discovered ones."""
    discovery = Discovery(timeout_s)
    found = [_tested(device, discovery) for device in devices]
    _log_faults(found)
    return found


def cpu() -> DeviceInfo:
    """Describe the CPU: one slot per two cores, two slots at least.

    Two, since a strip has serial parts: one thread a slot would make each task slow to
    finish, all threads in one slot would leave cores idle in those parts.
    """
    cores = len(os.sched_getaffinity(0))
    slots = min(max(2, cores // 2), MOST_CPU_SLOTS)
    busy, idle = WATTS["cpu"]
    return DeviceInfo(
        spec=DeviceSpec(
            "cpu", "cpu", device=_cpu_model(), threads=max(1, cores // slots)
        ),
        slots=slots,
        busy_watts=busy * cores,
        idle_watts=idle * cores,
    )


def _info(offer: Offer) -> DeviceInfo:
    spec, fault = offer.spec, offer.verdict.fault
    busy, idle = WATTS[spec.kind]
    link = EMULATED_LINK_BYTES_PER_S if spec.emulated else LINK_BYTES_PER_S[spec.kind]
    board = spec.kind == "fpga" and not spec.emulated
    return DeviceInfo(
        spec=spec,
        state="unusable" if fault else "up",
        reason=fault,
        rejected=list(offer.rejected),
        busy_watts=busy,
        idle_watts=idle,
        link_bytes_per_s=link,
        reconfigure_s=RECONFIGURE_S if board else 0.0,
    )


def _tested(device: DeviceInfo, discovery: Discovery) -> DeviceInfo:
    if device.spec.driver != "opencl":
        return device
    fault = discovery.test(device.spec).fault
    state = "unusable" if fault else device.state
    return msgspec.structs.replace(device, state=state, reason=fault)


def _log_faults(devices: list[DeviceInfo]) -> None:
    for device in devices:
        name = device.spec.name
        if device.state == "unusable":
            log.warning("%s is unusable: %s", name, device.reason)
        for rejected in device.rejected:
            log.info("%s: driver not used: %s", name, rejected)


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "CPU"
