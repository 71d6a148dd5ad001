"""OpenCL devices: GPUs, FPGAs, and the emulations of both.

A worker opens one at a time. The queue is in order, so an implementation enqueues a
strip and returns; only copies and `mark` wait. Buffers are released at the end of their
block in every case, so that the next task finds the device's memory free.
"""

from __future__ import annotations

import contextlib
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pyopencl

from libtask.devices.faults import opencl_errors
from libtask.devices.icd import prepare
from libtask.devices.programs import Program, Programs
from libtask.errors import DeviceError, InputError
from libtask.phase import Phase, own_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from libtask.messages import DeviceSpec

Doing = Literal["copying in", "copying out", "copying a snapshot out"]
PHASES: dict[Doing, Phase] = {
    "copying in": Phase.COPYING_IN,
    "copying out": Phase.COPYING_OUT,
    "copying a snapshot out": Phase.SNAPSHOT,
}


class OpenCLDevice:
    """One open OpenCL device: context, in-order queue, programs.

    Attributes:
        spec: the device spec.
        context: pyopencl context of this one device.
        queue: its in-order command queue.
        transfer_in: seconds spent copying to the device since it was opened.
        transfer_out: the same for copying back.
        copies_out: number of copies back that were started.

    Raises:
        DeviceError: it does not exist; the message lists the existing devices.

    """

    pipelined = True
    """Calls only enqueue; see `Device.pipelined`."""

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec = spec
        self.transfer_in = 0.0
        self.transfer_out = 0.0
        self.copies_out = 0
        with opencl_errors(spec.name, "opening the device"):
            self.context = pyopencl.Context([find(spec)])
            self.queue = pyopencl.CommandQueue(self.context)
        self._programs = Programs(self.context, spec)
        self._residents: list[tuple[tuple[Any, ...], tuple[pyopencl.Buffer, ...]]] = []
        """(arrays, buffers) of the open `resident` blocks, outermost first."""

    @contextmanager
    def resident(self, *arrays: NDArray[Any]) -> Iterator[tuple[pyopencl.Buffer, ...]]:
        """Hold `arrays` on the device; copy out on leaving, except after an error."""
        for array in arrays:
            if not array.flags.writeable:
                text = "a resident array is read-only; copy it, or use `inputs`"
                raise InputError(f"{self.spec.name}: {text}")
        with self._held(arrays) as buffers:
            self._copy_in(buffers, arrays)
            self._residents.append((arrays, buffers))
            try:
                yield buffers
            except GeneratorExit:
                # Preempted: the runtime closes the generator to stop it at a checkpoint.
                self._copy_out(arrays, buffers)
                raise
            finally:
                self._residents.pop()
            self._copy_out(arrays, buffers)

    @contextmanager
    def inputs(self, *arrays: NDArray[Any]) -> Iterator[tuple[pyopencl.Buffer, ...]]:
        """Hold read-only `arrays` on the device; never copy them out."""
        with self._held(arrays, pyopencl.mem_flags.READ_ONLY) as buffers:
            self._copy_in(buffers, arrays)
            yield buffers

    @contextmanager
    def scratch(self, *arrays: NDArray[Any]) -> Iterator[tuple[pyopencl.Buffer, ...]]:
        """Hold memory of the size of `arrays` on the device, without any copy."""
        with self._held(arrays) as buffers:
            yield buffers

    def refresh(self) -> None:
        """Copy resident data to its host arrays; it stays resident."""
        self.copies_out += 1
        for arrays, buffers in self._residents:
            self._copy(zip(arrays, buffers, strict=True), "copying a snapshot out")

    def kernel(
        self, package: str, source: str, name: str, **defines: object
    ) -> pyopencl.Kernel:
        """Return a kernel of an OpenCL file in a Python package; built at first use.

        Args:
            package: Python package that contains the file, e.g. "hetkernels.heat".
            source: the file, e.g. "gpu.cl".
            name: the kernel, e.g. "heat_steps".
            defines: macros of the program; True is 1, None a bare name.

        Raises:
            ProgramError: it does not compile, or does not contain the kernel.

        """
        return self._programs.package(package, source, defines, name).kernel(name)

    def program(self, text: str, **defines: object) -> Program:
        """Return the program of a source text; `.kernel(name)` gives its kernels.

        Raises:
            ProgramError: it does not compile.

        """
        return self._programs.text(text, defines)

    def compile(self, text: str, **defines: object) -> Program:
        """Compile a source text without using or filling a cache.

        Raises:
            ProgramError: it does not compile.

        """
        return self._programs.compile(text, defines)

    def mark(self) -> Callable[[], None]:
        """Return a function that waits for all work enqueued so far."""
        with opencl_errors(self.spec.name, "enqueueing a strip"):
            event = pyopencl.enqueue_marker(self.queue)
            # Without it a driver may delay the strip until the host waits.
            self.queue.flush()

        def wait() -> None:
            with opencl_errors(self.spec.name, "running a strip"):
                event.wait()

        return wait

    def close(self) -> None:
        """Close the device with its queue, context and programs."""
        self._settle()
        del self._programs, self.queue, self.context

    @contextmanager
    def _held(
        self,
        arrays: tuple[NDArray[Any], ...],
        flags: int = pyopencl.mem_flags.READ_WRITE,
    ) -> Iterator[tuple[pyopencl.Buffer, ...]]:
        """Allocate a buffer for each array; release all of them in every case."""
        buffers: list[pyopencl.Buffer] = []
        try:
            with opencl_errors(self.spec.name, "allocating device memory"):
                for array in arrays:
                    self._check(array)
                    buffers.append(pyopencl.Buffer(self.context, flags, array.nbytes))
            # Covers the implementation's own calls.
            with opencl_errors(self.spec.name, "running the implementation"):
                yield tuple(buffers)
        finally:
            self._release(buffers)

    def _check(self, array: NDArray[Any]) -> None:
        if array.nbytes == 0:
            raise InputError(
                f"{self.spec.name}: an array of shape {array.shape} is empty"
            )
        if not array.flags.c_contiguous:
            text = "is not C-contiguous; use numpy.ascontiguousarray"
            raise InputError(f"{self.spec.name}: array of shape {array.shape} {text}")

    def _release(self, buffers: list[pyopencl.Buffer]) -> None:
        self._settle()
        for buffer in buffers:
            with contextlib.suppress(pyopencl.Error):
                buffer.release()

    def _settle(self) -> None:
        """Wait for enqueued work, as memory in use is not freed; a lost device may fail."""
        with contextlib.suppress(pyopencl.Error):
            self.queue.finish()

    def _copy_in(
        self, buffers: tuple[pyopencl.Buffer, ...], arrays: tuple[NDArray[Any], ...]
    ) -> None:
        self.transfer_in += self._copy(zip(buffers, arrays, strict=True), "copying in")

    def _copy_out(
        self, arrays: tuple[NDArray[Any], ...], buffers: tuple[pyopencl.Buffer, ...]
    ) -> None:
        self.copies_out += 1
        self.transfer_out += self._copy(
            zip(arrays, buffers, strict=True), "copying out"
        )

    def _copy(self, pairs: Iterator[tuple[Any, Any]], doing: Doing) -> float:
        """Copy each (to, from) pair; return the seconds of the copies alone."""
        with opencl_errors(self.spec.name, doing), own_page.during(PHASES[doing]):
            self.queue.finish()  # enqueued strips do not count as transfer
            start = time.perf_counter()
            for target, origin in pairs:
                pyopencl.enqueue_copy(self.queue, target, origin, is_blocking=True)
        return time.perf_counter() - start


def find(spec: DeviceSpec) -> pyopencl.Device:
    """Return the OpenCL device that `spec` names.

    Raises:
        DeviceError: it does not exist; the message lists the existing devices.

    """
    devices = every_device(spec.libraries)
    same = [
        device
        for device in devices
        if (device.platform.name, device.name) == (spec.platform, spec.device)
    ]
    if 0 <= spec.index < len(same):
        return same[spec.index]
    there = sorted({f"{device.platform.name} / {device.name}" for device in devices})
    wanted = f"{spec.platform} / {spec.device} #{spec.index}"
    listed = "; ".join(there) or "none"
    raise DeviceError(f"{spec.name}: no OpenCL device {wanted}; there are: {listed}")


def every_device(libraries: Sequence[str] = ()) -> list[pyopencl.Device]:
    """List the OpenCL devices of this machine, each once.

    Args:
        libraries: drivers to load, unless this process has loaded others before; empty:
            all installed ones.

    """
    prepare(libraries)
    # Below it pyopencl's loader finds what lies in the wheel's .libs, PoCL and maybe
    # Oclgrind, and loads it in any case; unset, the loader crashes.
    os.environ["PYOPENCL_HOME"] = os.devnull
    found: dict[int, pyopencl.Device] = {}
    for platform in _platforms():
        # A platform whose devices are all gone answers with an error.
        with contextlib.suppress(pyopencl.Error):
            found |= {device.int_ptr: device for device in platform.get_devices()}
    return list(found.values())


def _platforms() -> list[pyopencl.Platform]:
    # The loader answers "no platforms" with an error.
    try:
        return list(pyopencl.get_platforms())
    except pyopencl.Error:
        return []
