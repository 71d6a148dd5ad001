"""OpenCL platforms: tells the loader where the drivers of this machine are.

Drivers come from three places: Python wheels (PoCL inside pyopencl, the FPGA
vendor's emulator), the system (`/etc/OpenCL/vendors`) and, in containers, a bare
NVIDIA library. The loader reads one folder, so `prepare` makes one with them all.
Called by whoever is about to make the process's first OpenCL call: the loader looks
once. Imports no OpenCL itself. What is not installed is simply absent.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import platformdirs

SYSTEM_FOLDERS = (Path("/etc/OpenCL/vendors"), Path(sys.prefix, "etc/OpenCL/vendors"))
"""The second is where conda puts drivers."""

NVIDIA_LIBRARY = "libnvidia-opencl.so.1"
NVIDIA_FOLDERS = (Path("/usr/local/nvidia/lib64"), Path("/usr/lib/wsl/lib"))
"""Where container runtimes and WSL mount the driver, outside the linker's cache."""

EMULATOR_LIBRARY = "libintelocl_emu.so"
EMULATOR_NEEDS = ("libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so")
"""Loaded before the emulator: its own search path does not reach a wheel's folder."""


@functools.cache
def prepare() -> Path | None:
    """Point the OpenCL loader of this process at every driver there is.

    Returns:
        The folder of `.icd` files; None where the user chose one himself.

    """
    _preload_emulator()
    # PoCL's single-threaded device is the stand-in where no FPGA emulator is.
    os.environ.setdefault("POCL_DEVICES", "pthread basic")
    os.environ.setdefault("POCL_CACHE_DIR", str(_folder("pocl")))
    if "OCL_ICD_VENDORS" in os.environ:
        return None
    folder = write_folder(drivers(), _folder("icd"))
    os.environ["OCL_ICD_VENDORS"] = str(folder)
    return folder


def drivers() -> dict[str, str]:
    """Find the drivers: `.icd` file name -> the library to load."""
    found: dict[str, str] = {}
    pocl = _pocl()
    if pocl is not None:
        found["pocl.icd"] = str(pocl)
    emulator = _emulator()
    if emulator is not None:
        found["fpga-emulator.icd"] = str(emulator)
    found |= _system_drivers(present=set(found.values()))
    nvidia = _nvidia()
    if nvidia and not any("nvidia" in library for library in found.values()):
        found["nvidia.icd"] = nvidia
    return found


def write_folder(files: dict[str, str], parent: Path) -> Path:
    """Write the `.icd` files into a folder named by their content.

    Any number of processes may do so at once: each writes what it finds missing, and
    a file appears whole or not at all.
    """
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    folder = parent / digest[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for name, library in files.items():
        if not (folder / name).exists():
            write_atomically(folder / name, f"{library}\n".encode())
    return folder


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that readers see whole or not at all, without waiting for the disk."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def cache_folder() -> Path:
    """Return this user's cache folder, or a temporary one where it is not writable.

    A service account often has no home directory.
    """
    folder = platformdirs.user_cache_path("hetd")
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder if os.access(folder, os.W_OK | os.X_OK) else _temporary_folder()


@functools.cache
def _temporary_folder() -> Path:
    # Not a fixed name: another user could have made it and put his libraries there.
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
def _emulator() -> Path | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        wheel = importlib.metadata.distribution("intel-opencl-rt")
        for file in wheel.files or []:
            path = Path(str(wheel.locate_file(file))).resolve()
            if path.name.startswith(EMULATOR_LIBRARY) and path.exists():
                return path
    return None


def _preload_emulator() -> None:
    library = _emulator()
    for name in EMULATOR_NEEDS if library else ():
        # Missing ones only make the loader skip the emulator.
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(_beside(library, name)), mode=ctypes.RTLD_GLOBAL)


def _beside(library: Path | None, name: str) -> Path | str:
    """Return the path of `name` in the library's folder, or else the bare name."""
    path = library.parent / name if library else Path(name)
    return path if path.exists() else name


def _system_drivers(present: set[str]) -> dict[str, str]:
    """Read the system's `.icd` files, without second copies of drivers at hand."""
    ours = {_family(library) for library in present}
    found = {}
    for folder in SYSTEM_FOLDERS:
        for file in sorted(folder.glob("*.icd")):
            library = _first_line(file)
            if library and _family(library) not in ours:
                found[f"system-{file.name}"] = library
    return found


def _family(library: str) -> str:
    # Two builds of PoCL in one process carry two LLVMs that clash.
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
