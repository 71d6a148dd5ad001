"""Discovery: which resources this machine has.

hetd loads no driver: a child process asks them, and may crash, hang or print nonsense
without harm. Then the machine has its CPU only, and the log says why. Every figure of
power, link and reconfiguration here is *modelled*, a default that the configuration
replaces.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from libtask.devices.report import FoundDevice, Report
from libtask.messages import DeviceInfo, DeviceSpec, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

log = logging.getLogger(__name__)

PROBE = (sys.executable, "-m", "libtask.devices.probe")

MOST_CPU_SLOTS = 16
"""More small tasks at once gain nothing: they wait for memory, and each costs a worker."""

FPGA_PLATFORMS = ("fpga", "xilinx")
"""Parts of platform names: an accelerator of another platform is no FPGA."""

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


def discover(timeout_s: float, probe: Sequence[str] = PROBE) -> list[DeviceInfo]:
    """List the resources of this machine: `cpu`, `gpu0`…, `fpga0`….

    Args:
        timeout_s: seconds that the drivers have to answer.
        probe: command that prints a `Report` as JSON.

    """
    report = Report([])
    try:
        report = ask_drivers(timeout_s, probe)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        reason = " ".join(str(error).split())
        log.warning("no OpenCL devices, only the CPU: probing failed: %s", reason)
    return [cpu(), *gpus(report.devices), *fpgas(report.devices)]


def ask_drivers(timeout_s: float, probe: Sequence[str] = PROBE) -> Report:
    """Run the probe and read its report.

    Raises:
        SubprocessError: it crashed, or did not answer in time.
        MsgspecError: it did not print a report.

    """
    # A file, not a pipe: what a driver leaves running could hold a pipe open for ever.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        status = _run(probe, timeout_s, output, errors)
        if status != 0:
            raise subprocess.SubprocessError(_describe_failure(status, _read(errors)))
        return msgspec.json.decode(_read(output), type=Report)


def cpu() -> DeviceInfo:
    """Describe the CPU: two slots at least, and else as many as give each two threads.

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


def gpus(found: list[FoundDevice]) -> list[DeviceInfo]:
    """Describe the GPUs; where there is none, PoCL's threads stand in for one."""
    real = _once([device for device in found if device.type == "gpu"])
    if real:
        return [_real(device, "gpu", number) for number, device in enumerate(real)]
    threaded = [device for device in _pocl(found) if not _single_threaded(device)]
    return [_emulated(device, "gpu") for device in threaded[:1]]


def fpgas(found: list[FoundDevice]) -> list[DeviceInfo]:
    """Describe the FPGAs; else the vendor's emulator stands in, else PoCL."""
    every = [device for device in found if _is_fpga(device)]
    emulators = [device for device in every if "emulation" in device.platform.lower()]
    boards = [device for device in every if device not in emulators]
    if boards:
        return [_real(device, "fpga", number) for number, device in enumerate(boards)]
    single_first = sorted(_pocl(found), key=_single_threaded, reverse=True)
    return [_emulated(device, "fpga") for device in [*emulators, *single_first][:1]]


def _run(
    command: Sequence[str], timeout_s: float, output: IO[bytes], errors: IO[bytes]
) -> int:
    """Run in a process group of its own, which is killed when its time is over."""
    child = subprocess.Popen(  # noqa: S603  our own interpreter and module
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
    )
    try:
        return child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        # A child stuck inside a driver cannot be killed; hetd does not wait for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)
        raise


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _describe_failure(status: int, errors: bytes) -> str:
    lines = errors.decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "no message")
    if status > 0:
        return f"exit status {status}: {last}"
    return f"{signal.strsignal(-status) or f'signal {-status}'}: {last}"


def _once(devices: list[FoundDevice]) -> list[FoundDevice]:
    """Keep the first platform of each device name: two drivers may offer one GPU."""
    platforms: dict[str, str] = {}
    for device in devices:
        platforms.setdefault(device.device, device.platform)
    return [d for d in devices if platforms[d.device] == d.platform]


def _pocl(found: Iterable[FoundDevice]) -> list[FoundDevice]:
    name = "Portable Computing Language"
    return [d for d in found if d.platform == name and d.type == "cpu"]


def _single_threaded(device: FoundDevice) -> bool:
    return device.device.startswith(("basic", "cpu-minimal"))


def _is_fpga(device: FoundDevice) -> bool:
    platform = device.platform.lower()
    named = any(part in platform for part in FPGA_PLATFORMS)
    return device.type == "accelerator" and named


def _real(device: FoundDevice, kind: Kind, number: int) -> DeviceInfo:
    busy, idle = WATTS[kind]
    return DeviceInfo(
        spec=_spec(device, kind, number, emulated=False),
        busy_watts=busy,
        idle_watts=idle,
        link_bytes_per_s=LINK_BYTES_PER_S[kind],
        reconfigure_s=RECONFIGURE_S if kind == "fpga" else 0.0,
    )


def _emulated(device: FoundDevice, kind: Kind) -> DeviceInfo:
    busy, idle = WATTS[kind]
    return DeviceInfo(
        spec=_spec(device, kind, 0, emulated=True),
        busy_watts=busy,
        idle_watts=idle,
        link_bytes_per_s=EMULATED_LINK_BYTES_PER_S,
    )


def _spec(
    device: FoundDevice, kind: Kind, number: int, *, emulated: bool
) -> DeviceSpec:
    return DeviceSpec(
        name=f"{kind}{number}",
        kind=kind,
        driver="opencl",
        platform=device.platform,
        device=device.device,
        index=device.index,
        emulated=emulated,
    )


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "CPU"
