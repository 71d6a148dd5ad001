"""OpenCL platforms: configures the loader with the drivers of this machine.

Drivers come from three places: Python wheels (PoCL inside pyopencl, the FPGA
vendor's emulator and CPU runtime), the system (`/etc/OpenCL/vendors`) and, in containers, a bare
NVIDIA library. The loader reads one folder, so `prepare` creates one with all of them.
Call it before the process's first OpenCL call: the loader reads the folder once. This
module does not import OpenCL. Drivers that are not installed are left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libtask.errors import InputError
from libtask.user_folders import user_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SYSTEM_FOLDERS = (Path("/etc/OpenCL/vendors"), Path(sys.prefix, "etc/OpenCL/vendors"))
"""The second is the folder of conda's drivers."""

NVIDIA_LIBRARY = "libnvidia-opencl.so.1"
NVIDIA_FOLDERS = (Path("/usr/local/nvidia/lib64"), Path("/usr/lib/wsl/lib"))
"""Folders where container runtimes and WSL mount the driver, outside the linker's cache."""

VENDOR_WHEEL = "intel-opencl-rt"
EMULATOR_LIBRARY = "libintelocl_emu.so"
VENDOR_CPU_LIBRARY = "libintelocl.so"
"""The FPGA vendor's emulator and its OpenCL runtime for CPUs, both in one wheel."""

VENDOR_NEEDS = ("libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so")
"""Loaded before the vendor's runtimes: their own search path does not reach a wheel."""

CPU_TARGET = "CL_CONFIG_CPU_TARGET_ARCH"
"""Environment variable that names the CPU for which the vendor's runtimes compile."""

CPU_TARGETS = (
    ("AVX512_SKX", "skx"),
    ("AVX2", "core-avx2"),
    ("AVX", "corei7-avx"),
    ("SSE42", "corei7"),
)
"""CPU feature -> target with that feature, the widest first. All of these were seen to
compile every kernel of ours."""


class _Loader:
    """Whether the OpenCL loader of this process was configured; it reads its folder once."""

    prepared = False


def prepare(libraries: Sequence[str] = ()) -> None:
    """Configure the OpenCL loader of this process; only the first call has an effect.

    Args:
        libraries: the drivers to load; empty: all installed ones, each once.

    """
    if _Loader.prepared:
        return
    _Loader.prepared = True
    wanted = libraries or _without_second_builds(drivers().values())
    chosen = {f"{number}.icd": path for number, path in enumerate(wanted)}
    _prepare_vendor_runtimes(chosen.values())
    _prepare_caches()
    # PoCL's single-threaded device replaces a missing FPGA emulator.
    os.environ.setdefault("POCL_DEVICES", "pthread basic")
    os.environ.setdefault("POCL_CACHE_DIR", str(_folder("pocl")))
    if libraries or "OCL_ICD_VENDORS" not in os.environ:
        os.environ["OCL_ICD_VENDORS"] = str(write_folder(chosen, _folder("icd")))


def _prepare_caches() -> None:
    """Give pyopencl and drivers a cache folder; without a home directory they would fail."""
    try:
        user_folder("cache")
    except InputError:
        os.environ["XDG_CACHE_HOME"] = str(_temporary_folder())


def drivers() -> dict[str, str]:
    """Find the drivers: `.icd` file name -> the library to load.

    If the user set OCL_ICD_VENDORS, only its drivers are used.
    """
    named = os.environ.get("OCL_ICD_VENDORS")
    if named is not None:
        return _drivers_named(Path(named))
    found: dict[str, str] = {}
    for name, library in (
        ("pocl.icd", _pocl()),
        ("fpga-emulator.icd", _vendor_library(EMULATOR_LIBRARY)),
        ("vendor-cpu.icd", _vendor_library(VENDOR_CPU_LIBRARY)),
    ):
        if library is not None:
            found[name] = str(library)
    found |= _system_drivers()
    nvidia = _nvidia()
    if nvidia and not any("nvidia" in library for library in found.values()):
        found["nvidia.icd"] = nvidia
    return found


def cpu_target() -> str | None:
    """Name the CPU for the vendor's runtimes by the features in CPUID.

    By default they misidentify a CPU that is newer than they are, and their compiler
    aborts the process (seen on an AMD EPYC of family 26).
    """
    # numpy reads CPUID, and whether the system saves the wide registers
    compiled: Any = importlib.import_module("numpy._core._multiarray_umath")
    features: dict[str, bool] = compiled.__cpu_features__
    return next((target for name, target in CPU_TARGETS if features.get(name)), None)


def _prepare_vendor_runtimes(libraries: Iterable[str]) -> None:
    for library in libraries:
        if not Path(library).name.startswith("libintelocl"):
            continue
        target = cpu_target()
        if target is not None:
            os.environ.setdefault(CPU_TARGET, target)
        for name in VENDOR_NEEDS:
            # Missing ones only make the loader skip the runtime.
            with contextlib.suppress(OSError):
                ctypes.CDLL(_beside(Path(library), name), mode=ctypes.RTLD_GLOBAL)


def _drivers_named(place: Path) -> dict[str, str]:
    """Find the drivers of OCL_ICD_VENDORS: a folder, an `.icd` file, or a library."""
    if place.is_dir():
        files = {file.name: _first_line(file) for file in sorted(place.glob("*.icd"))}
        return {name: library for name, library in files.items() if library}
    if place.suffix == ".icd":
        return {place.name: _first_line(place)} if place.is_file() else {}
    return {f"{place.name}.icd": str(place)}


def write_folder(files: dict[str, str], parent: Path) -> Path:
    """Write the `.icd` files into a folder named by their content.

    Several processes may do so concurrently: each writes the missing files, and every
    file appears atomically.
    """
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    folder = parent / digest[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for name, library in files.items():
        if not (folder / name).exists():
            write_atomically(folder / name, f"{library}\n".encode())
    return folder


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically, without flushing it to disk."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def cache_folder() -> Path:
    """Return this user's cache folder, or a temporary one if it is not writable.

    A service account often has no home directory.
    """
    try:
        folder = user_folder("cache")
    except InputError:
        return _temporary_folder()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder if os.access(folder, os.W_OK | os.X_OK) else _temporary_folder()


@functools.cache
def _temporary_folder() -> Path:
    # Not a fixed name: another user could have created it with their own libraries.
    return Path(tempfile.mkdtemp(prefix="hetd-"))


def _folder(name: str) -> Path:
    folder = cache_folder() / name
    folder.mkdir(exist_ok=True)
    return folder


def _pocl() -> Path | None:
    for package in ("pyopencl", "pocl_binary_distribution"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        libraries = sorted(Path(spec.origin).parent.glob(".libs/libpocl*.so*"))
        if libraries:
            return libraries[0]
    return None


@functools.cache
def has_vendor_runtimes() -> bool:
    """Whether the FPGA vendor's emulator is installed, as an extra of hetd."""
    return _vendor_library(EMULATOR_LIBRARY) is not None


def _vendor_library(name: str) -> Path | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        wheel = importlib.metadata.distribution(VENDOR_WHEEL)
        for file in wheel.files or []:
            path = Path(str(wheel.locate_file(file)))
            if path.name == name and path.exists():
                return path.resolve()
    return None


def _beside(library: Path, name: str) -> str:
    """Return the path of `name` in the library's folder, or else the bare name."""
    path = library.parent / name
    return str(path) if path.exists() else name


def _system_drivers() -> dict[str, str]:
    """Read the system's `.icd` files."""
    found = {}
    for folder in SYSTEM_FOLDERS:
        for file in sorted(folder.glob("*.icd")):
            library = _first_line(file)
            missing = library.startswith("/") and not Path(library).exists()
            if library and not missing:
                found[f"system-{file.name}"] = library
    return found


def _without_second_builds(libraries: Iterable[str]) -> list[str]:
    """Leave out other builds of a driver: two of PoCL in a process have LLVMs that clash."""
    first: dict[str, str] = {}
    for library in libraries:
        first.setdefault(_family(library), library)
    return list(first.values())


def _family(library: str) -> str:
    name = Path(library).name
    return "libpocl" if name.startswith("libpocl") else name.partition(".so")[0]


def _first_line(file: Path) -> str:
    try:
        lines = file.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return lines[0].strip()


def _nvidia() -> str | None:
    paths = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for folder in (*NVIDIA_FOLDERS, *(Path(path) for path in paths if path)):
        if (folder / NVIDIA_LIBRARY).exists():
            return str(folder / NVIDIA_LIBRARY)
    # Reading the linker's cache takes microseconds; asking `ldconfig -p`, milliseconds.
    with contextlib.suppress(OSError):
        if NVIDIA_LIBRARY.encode() in Path("/etc/ld.so.cache").read_bytes():
            return NVIDIA_LIBRARY
    return None
