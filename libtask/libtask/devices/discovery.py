"""Discovery: which OpenCL devices there are, and which of them compute right.

A driver can crash or hang whoever asks it, and one that answers may still be unable to
compile for this CPU. So each driver is asked in a child process of its own (`probe`),
and each device runs a self-test in another (`selftest`) before it is used. Where no GPU
or FPGA is, the first driver that passes emulates one. What was found stays in the user's
cache until the driver, the CPU, or this package changes. Called by hetd at its start
and by stand-alone programs; no driver is loaded here.
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
from libtask.devices.icd import CPU_TARGET, cache_folder, drivers
from libtask.devices.report import FoundDevice, Report
from libtask.messages import DeviceSpec, Kind
from libtask.processes import boot_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROBE = "libtask.devices.probe"
SELF_TEST = "libtask.devices.selftest"
"""Modules that the children run."""

ACCELERATORS: tuple[Kind, ...] = ("gpu", "fpga")

DRIVER_S = 40.0
"""For one answer of a driver: compilers take seconds, on a busy machine many."""

HANG_DAY_S = 86_400.0
"""For so long is believed that a driver hangs: it may have been the machine."""

POCL = "Portable Computing Language"
VENDOR_CPU = "Intel(R) OpenCL"
OCLGRIND = "Oclgrind"
"""Checks kernels while it interprets them, and calls itself a GPU; there only if the user
chose it by OCL_ICD_VENDORS."""
FPGA_PLATFORMS = ("fpga", "xilinx")
"""Parts of platform names: an accelerator of another platform is not an FPGA."""

ENVIRONMENT = (CPU_TARGET, "POCL_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that change what a driver does."""


class Verdict(msgspec.Struct, frozen=True):
    """What came of asking or testing a driver.

    Attributes:
        fault: what went wrong, in the driver's own words; empty: nothing.
        at: seconds since the epoch.
        hung: whether it gave no answer.

    """

    fault: str = ""
    at: float = 0.0
    hung: bool = False

    @property
    def holds(self) -> bool:
        return not self.hung or 0 <= time.time() - self.at < HANG_DAY_S  # noqa: TID251  an age on disk


class Listing(msgspec.Struct, frozen=True):
    """The devices of a driver, or why it could not be asked."""

    devices: list[FoundDevice] = []
    verdict: Verdict = Verdict()


@dataclass(frozen=True, slots=True)
class Offer:
    """A resource of this machine.

    Attributes:
        spec: how it is opened.
        verdict: of its self-test; with a fault it must not be used.
        rejected: drivers that failed in its place: "platform: what it said".

    """

    spec: DeviceSpec
    verdict: Verdict
    rejected: tuple[str, ...] = ()


def discover_devices(
    timeout_s: float = 2 * DRIVER_S, libraries: Iterable[str] | None = None
) -> list[Offer]:
    """List the GPUs and FPGAs of this machine, real or else emulated ones.

    Args:
        timeout_s: seconds for all; a driver that has no time left did not answer.
        libraries: drivers to ask; None: all that are installed.

    """
    return Discovery(timeout_s).offers(
        drivers().values() if libraries is None else libraries
    )


def forget() -> None:
    """Have every driver asked and tested again."""
    for entry in (cache_folder() / "drivers").glob("*"):
        entry.unlink(missing_ok=True)


class Discovery:
    """Asks and tests drivers, each in a child process.

    Args:
        timeout_s: seconds for all.
        folder: where verdicts are kept; None: in the user's cache.

    """

    def __init__(self, timeout_s: float, folder: Path | None = None) -> None:
        self._ends = time.monotonic() + timeout_s
        self._cache = Cache(folder or cache_folder() / "drivers")

    def offers(self, libraries: Iterable[str]) -> list[Offer]:
        """Ask these drivers; choose and test what is offered as resources."""
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
        """Choose and test what of these devices is offered as resources.

        Args:
            found: the devices.
            silent: drivers that could not be asked, and why: they may lack.

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
        """Return the verdict on a device: the cached one, or that of a self-test."""
        key = key_of("device", *_identities(spec.libraries), _described(spec))
        if not spec.emulated:  # a card that failed may be well after the next boot
            key = key_of(key, boot_id())
        known = self._cache.get(key, Verdict)
        if known is not None and known.holds:
            return known
        return self._cache.put(key, self._self_test(spec))

    def listing(self, library: str) -> Listing:
        """Ask a driver for its devices; what cannot come or go is not asked again."""
        key = key_of("driver", *_identities([library]))
        known = self._cache.get(key, Listing)
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
            ):  # a driver may offer several devices that fail alike
                rejected.append(fault)
        verdict = Verdict("; ".join(rejected), 0.0, hung=verdict.hung)
        return Offer(_spec(name, kind, candidates[0]), verdict)

    def _probe(self, library: str) -> Listing:
        verdict, output = self._run(PROBE, library)
        if verdict.fault:
            return Listing([], verdict)
        try:
            return Listing(msgspec.json.decode(output, type=Report).devices, verdict)
        except msgspec.MsgspecError as error:
            return Listing([], _verdict(f"its answer is not a report: {error}"))

    def _self_test(self, spec: DeviceSpec) -> Verdict:
        verdict, _ = self._run(SELF_TEST, msgspec.json.encode(spec).decode())
        # the name in front says nothing here
        return msgspec.structs.replace(
            verdict, fault=verdict.fault.removeprefix(f"{spec.name}: ")
        )

    def _run(self, module: str, argument: str) -> tuple[Verdict, bytes]:
        """Run a child; return what went wrong and its standard output."""
        left = min(DRIVER_S, self._ends - time.monotonic())
        # Files, not pipes: what a driver leaves running could hold a pipe open for ever.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            command = [sys.executable, "-m", module, argument]
            try:
                status = run_child(command, max(1.0, left), output, errors)
            except subprocess.TimeoutExpired:
                return _verdict(f"no answer in {max(1.0, left):.0f} s", hung=True), b""
            except OSError as error:
                return _verdict(f"cannot be asked: {error.strerror}", hung=True), b""
            if status == 0:
                return _verdict(""), _read(output)
            return _verdict(describe_failure(status, _read(errors))), b""


# ---------------------------------------------------------------- what is offered


def alternatives(kind: Kind, found: Sequence[FoundDevice]) -> list[list[FoundDevice]]:
    """List the resources of a kind, each with the devices that can be it, best first."""
    real = [device for device in found if _is_real(kind, device)]
    if real:
        same: dict[tuple[str, int], list[FoundDevice]] = {}
        for device in real:  # two drivers may offer one card
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
    """Whether a device stands in for another: a CPU, or an emulator of FPGAs."""
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
        libraries=[device.library] if device.library else [],
        version=device.version,
        uuid=device.uuid,
    )


def _nothing(kind: Kind, silent: Sequence[str]) -> Offer:
    """Tell of a kind for which no driver is left, and why."""
    spec = DeviceSpec(f"{kind}0", kind, "opencl", emulated=True)
    return Offer(spec, Verdict("; ".join(silent)))


def _with_libraries(spec: DeviceSpec, libraries: list[str]) -> DeviceSpec:
    """Let a process load the drivers of all resources: a task may move among them."""
    return msgspec.structs.replace(spec, libraries=libraries or spec.libraries)


# ---------------------------------------------------------------- identities


def _identities(libraries: Sequence[str]) -> tuple[str, ...]:
    """Return what changes when drivers, the CPU, or this package do."""
    variables = [os.environ.get(name, "") for name in ENVIRONMENT]
    package = importlib.metadata.version("hetd")
    every = sorted(libraries) or sorted(drivers().values())
    files = [repr(_file_identity(library)) for library in every]
    return (cpu_identity(), package, *variables, *files)


def _file_identity(library: str) -> tuple[str, int, int]:
    try:
        known = Path(library).stat()
    except OSError:  # a bare name, which the linker resolves
        return library, 0, 0
    return library, known.st_size, known.st_mtime_ns


def _described(spec: DeviceSpec) -> str:
    binaries = sorted(spec.binaries.items())
    return repr((spec.platform, spec.device, spec.index, spec.version, binaries))


# ---------------------------------------------------------------- children


def run_child(
    command: Sequence[str], timeout_s: float, output: IO[bytes], errors: IO[bytes]
) -> int:
    """Run in a process group of its own, which is killed when its time is over.

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
        # A child stuck inside a driver cannot be killed; nobody waits for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)
        raise


def describe_failure(status: int, errors: bytes) -> str:
    """Say how a child ended, with the most telling line of what it wrote."""
    told = telling_line(errors.decode(errors="replace"))
    if status > 0:
        return told.removeprefix("error: ") or f"exit status {status}"
    name = signal.strsignal(-status) or f"signal {-status}"
    return f"{name}: {told}" if told else name


def telling_line(text: str) -> str:
    """Return the first line that names an error, else the last one."""
    lines = [" ".join(line.split()) for line in text.split("\n") if line.strip()]
    errors = (line for line in lines if "error" in line.lower())
    return next(errors, lines[-1] if lines else "")[:300]


def _verdict(fault: str, *, hung: bool = False) -> Verdict:
    return Verdict(fault, time.time(), hung)  # noqa: TID251  an age on disk


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
