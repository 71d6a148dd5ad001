"""OpenCL programs: built once for each device, cached in memory and on disk.

An entry on disk is the device's binary after its digest. If an entry is missing, corrupt
or refused by the driver, the program is built from source and the entry replaced;
processes do not wait for each other. pyopencl's own cache is not used: it needs a lock
file, which a killed worker leaves behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import os
import re
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyopencl

from libtask.devices.faults import opencl_errors
from libtask.devices.icd import CPU_TARGET, cache_folder, write_atomically
from libtask.errors import BinaryError, ProgramError
from libtask.phase import own_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.messages import DeviceSpec

LOG_LINES = 3
"""Lines of a build log in the text of an error."""
EXCERPT_LINES, LINE_CHARACTERS = 15, 200
"""Lines of a build log that a traceback shows below the error."""

DIGEST_BYTES = 32

TEMPORARY_SOURCE = re.compile(r"\S*/tempfile_\w+\.cl:")
"""Name of the source in PoCL's logs: a temporary file that is removed afterwards."""


class Program:
    """A built program, with its kernels created once each.

    Attributes:
        built: the pyopencl program.
        cached: whether it came from the cache on disk.

    """

    def __init__(
        self, built: pyopencl.Program, resource: str, *, cached: bool = False
    ) -> None:
        self.built = built
        self.cached = cached
        self._resource = resource
        self._kernels: dict[str, pyopencl.Kernel] = {}

    def kernel(self, name: str) -> pyopencl.Kernel:
        """Return a kernel of the program; cheap to call for each strip.

        Raises:
            ProgramError: the program has no kernel of that name.

        """
        kernel = self._kernels.get(name)
        if kernel is None:
            with opencl_errors(self._resource, f"looking for kernel {name!r}"):
                names = self.built.kernel_names.split(";")
                if name not in names:
                    there = ", ".join(names)
                    text = f"{self._resource}: no kernel {name!r} in the program; there are:"
                    raise ProgramError(f"{text} {there}")
                kernel = pyopencl.Kernel(self.built, name)
            self._kernels[name] = kernel
        return kernel


class Programs:
    """The programs of one open device."""

    def __init__(self, context: pyopencl.Context, spec: DeviceSpec) -> None:
        self._context = context
        self._spec = spec
        self._device = context.devices[0]
        self._loaded: dict[tuple[str, ...], Program] = {}

    def package(
        self, package: str, source: str, defines: dict[str, object], kernel: str = ""
    ) -> Program:
        """Return the program of a package's source file, or its prebuilt binary.

        Args:
            package: the package, and its file `source`.
            defines: macros.
            kernel: name of the kernel, for the report of a crash.

        """
        options = format_defines(defines)
        key = (package, source, *options)
        program = self._loaded.get(key)
        if program is None:
            file = f"{package}/{source}"
            with own_page.compiling(f"`{kernel}` of {file}" if kernel else file):
                program = self._load(package, source, options)
            self._loaded[key] = program
        return program

    def text(self, text: str, defines: dict[str, object]) -> Program:
        """Return the program of a source text."""
        options = format_defines(defines)
        key = ("", text, *options)
        program = self._loaded.get(key)
        if program is None:
            with own_page.compiling("its program"):
                program = self._from_source(text, options, "program text")
            self._loaded[key] = program
        return program

    def compile(self, text: str, defines: dict[str, object]) -> Program:
        """Return the program of a source text, compiled without the cache."""
        built = self._build(text, format_defines(defines), "program text")
        return Program(built, self._spec.name)

    def _load(self, package: str, source: str, options: list[str]) -> Program:
        binary = self._spec.binaries.get(package)
        if binary is not None:
            return self._from_board_binary(Path(binary))
        text = read_source(package, source)
        return self._from_source(text, options, f"{package}/{source}")

    def _from_board_binary(self, path: Path) -> Program:
        """Load a prebuilt binary, which configures the board.

        Raises:
            BinaryError: the file is missing or is not for this board.
            DeviceError: the board is lost, or another process holds it.

        """
        try:
            content = path.read_bytes()
        except OSError as error:
            text = f"{self._spec.name}: cannot read binary {path}: {error.strerror}"
            raise BinaryError(text) from error
        try:
            with opencl_errors(self._spec.name, f"loading {path}"):
                return Program(self._from_binary(content), self._spec.name)
        except ProgramError as error:
            raise BinaryError(str(error)) from error

    def _from_source(self, text: str, options: list[str], title: str) -> Program:
        entry = self._entry(text, options)
        built = self._cached(entry)
        if built is not None:
            return Program(built, self._spec.name, cached=True)
        built = self._build(text, options, title)
        self._keep(built, entry)
        return Program(built, self._spec.name)

    def _entry(self, text: str, options: list[str]) -> Path:
        platform, device = self._device.platform, self._device
        driver = (
            platform.name,
            platform.version,
            device.version,
            device.driver_version,
        )
        identity = repr((text, options, device.name, driver, _processor()))
        digest = hashlib.sha256(identity.encode()).hexdigest()
        return cache_folder() / "programs" / f"{digest}.bin"

    def _cached(self, entry: Path) -> pyopencl.Program | None:
        try:
            content = entry.read_bytes()
        except OSError:
            return None
        digest, binary = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        # Drivers crash on damaged binaries, so the digest is checked first.
        if digest != hashlib.sha256(binary).digest():
            return None
        try:
            return self._from_binary(binary)
        except pyopencl.Error:
            return None

    def _from_binary(self, binary: bytes) -> pyopencl.Program:
        program = pyopencl.Program(self._context, [self._device], [binary])
        with _quiet_compiler():
            program.build()
        return program

    def _build(self, text: str, options: list[str], title: str) -> pyopencl.Program:
        # The raw program: the public one builds through pyopencl's locking cache.
        raw = pyopencl._cl._Program(self._context, text)  # noqa: SLF001  see above
        try:
            with _quiet_compiler():
                raw.build(" ".join(options).encode(), [self._device])
        except pyopencl.Error as error:
            log = self._log_of(raw)
            summary = summarise(log) or " ".join(str(error).split())
            where = f"{self._spec.name}: {title} does not compile"
            failed = ProgramError(f"{where}: {summary}")
            for line in excerpt(log):
                failed.add_note(line)
            raise failed from error
        return pyopencl.Program(raw)

    def _log_of(self, program: Any) -> str:
        """Return the compiler's log; empty if the driver fails to provide it."""
        with contextlib.suppress(pyopencl.Error):
            what = pyopencl.program_build_info.LOG
            return str(program.get_build_info(self._device, what))
        return ""

    def _keep(self, built: pyopencl.Program, entry: Path) -> None:
        # A full disk or a driver without binaries must not fail the task.
        with contextlib.suppress(OSError, pyopencl.Error):
            binaries: Any = built.get_info(pyopencl.program_info.BINARIES)
            binary = binaries[0]
            entry.parent.mkdir(exist_ok=True)
            write_atomically(entry, hashlib.sha256(binary).digest() + binary)


def _processor() -> tuple[str, ...]:
    """Return the properties of the processor for which a driver of the CPU compiles.

    Machines with equal names of devices may share users' home directories.
    """
    target = os.environ.get(CPU_TARGET, "")
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as file:
        return (target, next((line for line in file if line.startswith("flags")), ""))
    return (target,)


def read_source(package: str, source: str) -> str:
    """Return the text of an OpenCL file in a Python package.

    Raises:
        ProgramError: the package or file does not exist.

    """
    try:
        return (importlib.resources.files(package) / source).read_text()
    except (ImportError, OSError) as error:
        raise ProgramError(f"no OpenCL source {source} in package {package}") from error


@contextmanager
def _quiet_compiler() -> Iterator[None]:
    # pyopencl warns of any log, which some compilers write at each success.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pyopencl.CompilerWarning)
        yield


def format_defines(defines: dict[str, object]) -> list[str]:
    """Return the build options for macros: True is 1, None is a bare name."""
    options = []
    for name, value in sorted(defines.items()):
        number = int(value) if isinstance(value, bool) else value
        options.append(f"-D{name}" if value is None else f"-D{name}={number}")
    return options


def summarise(log: str) -> str:
    """Return the first informative lines of a build log, in one line."""
    lines = [" ".join(line.split()) for line in _lines(log)]
    errors = [line for line in lines if "error" in line.lower()]
    return " | ".join((errors or lines)[:LOG_LINES])


def excerpt(log: str) -> list[str]:
    """Return the lines of a build log from its first error on, up to the maximum."""
    lines = _lines(log)
    errors = [place for place, line in enumerate(lines) if "error" in line.lower()]
    begin = errors[0] if errors else 0
    return [line[:LINE_CHARACTERS] for line in lines[begin : begin + EXCERPT_LINES]]


def _lines(log: str) -> list[str]:
    named = TEMPORARY_SOURCE.sub("line ", log)
    return [line.rstrip() for line in named.splitlines() if line.strip()]
