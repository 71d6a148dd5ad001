"""Discovery: finds the OpenCL devices and tests which of them compute correctly.

A driver can crash or hang its process, and a working driver may still be unable to
compile for this CPU. So each driver is queried in its own child process (`probe`), and
each device runs a self-test in another (`selftest`) before it is used. Without a GPU or
FPGA, the first driver that passes emulates one. Results stay in the user's cache until
the driver, the CPU, or this package changes. Used by hetd at its start and by
stand-alone programs; this process loads no driver.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from libtask.devices.cache import Cache, cpu_identity, key_of
from libtask.devices.icd import (
    CPU_TARGET,
    cache_folder,
    drivers,
    has_vendor_runtimes,
)
from libtask.devices.report import FoundDevice, Report
from libtask.messages import DeviceSpec, Kind
from libtask.processes import boot_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROBE = "libtask.devices.probe"
SELF_TEST = "libtask.devices.selftest"
"""Modules of the child processes."""

ACCELERATORS: tuple[Kind, ...] = ("gpu", "fpga")

DRIVER_S = 40.0
"""Timeout for one answer of a driver: compilers take seconds, more on a busy machine."""

HANG_DAY_S = 86_400.0
"""Validity of the result that a driver hangs, which a busy machine may have caused."""

POCL = "Portable Computing Language"
VENDOR_CPU = "Intel(R) OpenCL"
OCLGRIND = "Oclgrind"
"""An interpreter that checks kernels and reports itself as a GPU; present only if the user
selected it by OCL_ICD_VENDORS."""
FPGA_PLATFORMS = ("fpga", "xilinx")
"""Parts of names of FPGA platforms: accelerators of other platforms are not FPGAs."""

ENVIRONMENT = (CPU_TARGET, "POCL_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that change the behaviour of a driver."""


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of querying or testing a driver.

    Attributes:
        fault: the driver's own error message; empty: none.
        at: seconds since the epoch.
        hung: whether it did not answer.

    """

    fault: str = ""
    at: float = 0.0
    hung: bool = False

    @property
    def holds(self) -> bool:
        return not self.hung or 0 <= time.time() - self.at < HANG_DAY_S  # noqa: TID251  an age on disk


class Listing(msgspec.Struct, frozen=True):
    """The devices of a driver, or the error of the query."""

    devices: list[FoundDevice] = []
    verdict: Verdict = Verdict()


_VERDICTS = msgspec.json.Decoder(Verdict)
_LISTINGS = msgspec.json.Decoder(Listing)
_REPORTS = msgspec.json.Decoder(Report)


@dataclass(frozen=True, slots=True)
class Offer:
    """A resource of this machine.

    Attributes:
        spec: its device spec.
        verdict: outcome of its self-test; with a fault it must not be used.
        rejected: drivers that failed in its place: "platform: error".

    """

    spec: DeviceSpec
    verdict: Verdict
    rejected: tuple[str, ...] = ()


def discover_devices(
    timeout_s: float = 2 * DRIVER_S, libraries: Iterable[str] | None = None
) -> list[Offer]:
    """List the GPUs and FPGAs of this machine, real or emulated.

    Args:
        timeout_s: total seconds; a driver without time left counts as not answering.
        libraries: drivers to query; None: all installed ones.

    """
    return Discovery(timeout_s).offers(
        drivers().values() if libraries is None else libraries
    )


def forget() -> None:
    """Remove all cached results, so that every driver is queried and tested again."""
    for entry in (cache_folder() / "drivers").glob("*"):
        entry.unlink(missing_ok=True)


class Discovery:
    """Queries and tests drivers, each in a child process.

    Args:
        timeout_s: total seconds.
        folder: folder of cached results; None: the user's cache.

    """

    def __init__(self, timeout_s: float, folder: Path | None = None) -> None:
        self._ends = time.monotonic() + timeout_s
        self._cache = Cache(folder or cache_folder() / "drivers")

    def offers(self, libraries: Iterable[str]) -> list[Offer]:
        """Query these drivers; choose and test their devices as resources."""
        asked = list(libraries)
        with ThreadPoolExecutor(4) as pool:
            listings = list(pool.map(self.listing, asked))
        silent = [
            f"{Path(library).name}: {listing.verdict.fault}"
            for library, listing in zip(asked, listings, strict=True)
            if listing.verdict.fault
        ]
        found = [device for listing in listings for device in listing.devices]
        return self.chosen(found, silent)

    def chosen(
        self, found: Sequence[FoundDevice], silent: Sequence[str] = ()
    ) -> list[Offer]:
        """Choose and test resources among these devices.

        Args:
            found: the devices.
            silent: drivers that could not be queried, with the error.

        """
        wanted = [
            (f"{kind}{number}", kind, candidates)
            for kind in ACCELERATORS
            for number, candidates in enumerate(alternatives(kind, found))
        ]
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(self._offer, *each, silent) for each in wanted]
            offers = [future.result() for future in futures]
        if silent:
            there = {offer.spec.kind for offer in offers}
            lacking = [kind for kind in ACCELERATORS if kind not in there]
            offers += [_nothing(kind, silent) for kind in lacking]
        good = [offer.spec.libraries for offer in offers if not offer.verdict.fault]
        used = list(dict.fromkeys(library for each in good for library in each))
        return [
            Offer(_with_libraries(each.spec, used), each.verdict, each.rejected)
            for each in offers
        ]

    def test(self, spec: DeviceSpec) -> Verdict:
        """Return the verdict on a device, from the cache or a self-test."""
        key = key_of("device", *_identities(spec.libraries), _described(spec))
        if not spec.emulated:  # a failed card may work after the next boot
            key = key_of(key, boot_id())
        known = self._cache.get(key, _VERDICTS)
        if known is not None and known.holds:
            return known
        return self._cache.put(key, self._self_test(spec))

    def listing(self, library: str) -> Listing:
        """Query a driver for its devices; fixed devices are cached."""
        key = key_of("driver", *_identities([library]))
        known = self._cache.get(key, _LISTINGS)
        if known is not None and known.verdict.holds:
            return known
        listing = self._probe(library)
        stays = listing.verdict.fault or (
            listing.devices and all(_emulates(each) for each in listing.devices)
        )
        return self._cache.put(key, listing) if stays else listing

    # ------------------------------------------------------------ steps

    def _offer(
        self,
        name: str,
        kind: Kind,
        candidates: Sequence[FoundDevice],
        silent: Sequence[str],
    ) -> Offer:
        """Test the candidates for a resource until one passes."""
        rejected = list(silent) if any(_emulates(each) for each in candidates) else []
        for device in candidates:
            spec = _spec(name, kind, device)
            verdict = self.test(spec)
            if not verdict.fault:
                return Offer(spec, verdict, tuple(rejected))
            fault = f"{device.platform}: {verdict.fault}"
            if (
                fault not in rejected
            ):  # several devices of a driver may fail in the same way
                rejected.append(fault)
        rejected += _remedies(candidates)
        verdict = Verdict("; ".join(rejected), 0.0, hung=verdict.hung)
        return Offer(_spec(name, kind, candidates[0]), verdict)

    def _probe(self, library: str) -> Listing:
        verdict, output = self._run(PROBE, library)
        if verdict.fault:
            return Listing([], verdict)
        try:
            return Listing(_REPORTS.decode(output).devices, verdict)
        except msgspec.MsgspecError as error:
            return Listing([], _verdict(f"its answer is not a report: {error}"))

    def _self_test(self, spec: DeviceSpec) -> Verdict:
        verdict, _ = self._run(SELF_TEST, msgspec.json.encode(spec).decode())
        # drop the name of the resource
        return msgspec.structs.replace(
            verdict, fault=verdict.fault.removeprefix(f"{spec.name}: ")
        )

    def _run(self, module: str, argument: str) -> tuple[Verdict, bytes]:
        """Run a child; return what went wrong and its standard output."""
        left = min(DRIVER_S, self._ends - time.monotonic())
        # Files, not pipes: a process left by a driver could hold a pipe open forever.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            command = [sys.executable, "-m", module, argument]
            try:
                status = run_child(command, max(1.0, left), output, errors)
            except subprocess.TimeoutExpired:
                return _verdict(f"no answer in {max(1.0, left):.0f} s", hung=True), b""
            except OSError as error:
                return _verdict(f"cannot be queried: {error.strerror}", hung=True), b""
            if status == 0:
                return _verdict(""), _read(output)
            return _verdict(describe_failure(status, _read(errors))), b""


# ---------------------------------------------------------------- offers


def alternatives(kind: Kind, found: Sequence[FoundDevice]) -> list[list[FoundDevice]]:
    """List the resources of a kind, each with its candidate devices, best first."""
    real = [device for device in found if _is_real(kind, device)]
    if real:
        same: dict[tuple[str, int], list[FoundDevice]] = {}
        for device in real:  # two drivers may offer the same card
            same.setdefault((device.device, device.index), []).append(device)
        return list(same.values())
    emulators = [device for device in found if _emulates(device)]
    if kind == "gpu":
        emulators = [device for device in emulators if not _is_fpga(device)]
        emulators = [each for each in emulators if not _single_threaded(each)]
        emulators.sort(key=_rank_for_gpu)
    else:
        emulators.sort(key=_rank_for_fpga)
    return [emulators] if emulators else []


def _is_real(kind: Kind, device: FoundDevice) -> bool:
    if kind == "gpu":
        return device.type == "gpu" and device.platform != OCLGRIND
    return _is_fpga(device) and not _emulates(device)


def _is_fpga(device: FoundDevice) -> bool:
    platform = device.platform.lower()
    named = any(part in platform for part in FPGA_PLATFORMS)
    return device.type == "accelerator" and named


def _emulates(device: FoundDevice) -> bool:
    """Return whether a device emulates another: a CPU, or an emulator of FPGAs."""
    emulator = _is_fpga(device) and "emulation" in device.platform.lower()
    return device.type == "cpu" or device.platform == OCLGRIND or emulator


def _single_threaded(device: FoundDevice) -> bool:
    return device.device.startswith(("basic", "cpu-minimal"))


def _rank_for_gpu(device: FoundDevice) -> int:
    platforms = (POCL, VENDOR_CPU)
    known = device.platform in platforms
    return platforms.index(device.platform) if known else len(platforms)


def _rank_for_fpga(device: FoundDevice) -> tuple[bool, bool, int]:
    # a pipeline of an FPGA is closer to one thread than to many
    return not _is_fpga(device), not _single_threaded(device), _rank_for_gpu(device)


def _spec(name: str, kind: Kind, device: FoundDevice) -> DeviceSpec:
    return DeviceSpec(
        name=name,
        kind=kind,
        driver="opencl",
        platform=device.platform,
        device=device.device,
        index=device.index,
        emulated=_emulates(device),
        libraries=[device.driver] if device.driver else [],
        version=device.version,
        uuid=device.uuid,
        memory_bytes=device.memory_bytes,
    )


def _remedies(candidates: Sequence[FoundDevice]) -> list[str]:
    """Name the extra with other emulators, if it is not installed."""
    if has_vendor_runtimes() or not all(_emulates(each) for each in candidates):
        return []
    return ["the extra hetd[fpga-emulator] has emulators for more CPUs"]


def _nothing(kind: Kind, silent: Sequence[str]) -> Offer:
    """Return an offer for a kind without a working driver, with the reasons."""
    spec = DeviceSpec(f"{kind}0", kind, "opencl", emulated=True)
    return Offer(spec, Verdict("; ".join(silent)))


def _with_libraries(spec: DeviceSpec, libraries: list[str]) -> DeviceSpec:
    """Add the drivers of all resources to a spec: a task may move among them."""
    return msgspec.structs.replace(spec, libraries=libraries or spec.libraries)


# ---------------------------------------------------------------- identities


def _identities(libraries: Sequence[str]) -> tuple[str, ...]:
    """Return values that change when drivers, the CPU, or this package change."""
    variables = [os.environ.get(name, "") for name in ENVIRONMENT]
    package = importlib.metadata.version("hetd")
    every = sorted(libraries) or sorted(drivers().values())
    files = [repr(_file_identity(library)) for library in every]
    return (cpu_identity(), package, *variables, *files)


def _file_identity(library: str) -> tuple[str, int, int]:
    try:
        known = Path(library).stat()
    except OSError:  # a bare name that the linker resolves
        return library, 0, 0
    return library, known.st_size, known.st_mtime_ns


def _described(spec: DeviceSpec) -> str:
    binaries = sorted(spec.binaries.items())
    return repr((spec.platform, spec.device, spec.index, spec.version, binaries))


# ---------------------------------------------------------------- children


def run_child(
    command: Sequence[str], timeout_s: float, output: IO[bytes], errors: IO[bytes]
) -> int:
    """Run a child in its own process group, which is killed after the timeout.

    Raises:
        TimeoutExpired: it did not end in time.
        OSError: it could not be started.

    """
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
        # A child stuck inside a driver cannot be killed; do not wait for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)
        raise


def describe_failure(status: int, errors: bytes) -> str:
    """Describe the exit of a child, with the most informative line of its output."""
    told = telling_line(errors.decode(errors="replace"))
    if status > 0:
        return told.removeprefix("error: ") or f"exit status {status}"
    name = signal.strsignal(-status) or f"signal {-status}"
    return f"{name}: {told}" if told else name


def telling_line(text: str) -> str:
    """Return the first line that names an error, or the last line."""
    lines = [" ".join(line.split()) for line in text.split("\n") if line.strip()]
    errors = (line for line in lines if "error" in line.lower())
    return next(errors, lines[-1] if lines else "")[:300]


def _verdict(fault: str, *, hung: bool = False) -> Verdict:
    return Verdict(fault, time.time(), hung)  # noqa: TID251  an age on disk


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
