"""OpenCL devices: GPUs, FPGAs, and the emulations of both.

A worker opens one at a time. The queue is in order, so an implementation enqueues a
strip and returns; only copies and `mark` wait. Buffers are released at the end of their
block, so that the next task finds the device's memory free, or stay within a budget
(`residents`): those of inputs that equal a part of a file, and those of results.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
import pyopencl

from libtask.devices.faults import opencl_errors
from libtask.devices.icd import prepare
from libtask.devices.programs import Program, Programs
from libtask.devices.residents import (
    EMULATED_BUDGET,
    FreshResult,
    FrozenArrays,
    Residents,
)
from libtask.devices.staging import STAGED_BYTES, StagedCopies, staged_copies
from libtask.errors import DeviceError, DeviceMemoryError, InputError
from libtask.file_parts import part_of, place_of
from libtask.phase import Phase, own_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from libtask.devices.residents import Written
    from libtask.file_parts import ResultPart
    from libtask.messages import DeviceSpec

Done = TypeVar("Done")
Arrays: TypeAlias = "tuple[NDArray[Any], ...]"
Buffers: TypeAlias = "tuple[pyopencl.Buffer, ...]"
MEMORY_RETRIES = 5
MEMORY_PAUSE_S = 0.1
"""Another process gives its copies up at its next checkpoint."""

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
        bytes_in: bytes that were copied to the device.
        residents: the copies that stay for the next task.

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
        self._open: list[tuple[Arrays, Buffers]] = []
        """(arrays, buffers) of the open `resident` blocks, outermost first."""
        self.bytes_in = 0
        self.residents = Residents(_release)
        self._frozen = FrozenArrays()

    def begin(self, share: float) -> None:
        """Begin a task; a share of the device's memory may hold what stays for the next."""
        self._frozen.thaw()
        budget = int(share * self._memory_bytes()) if share else 0
        if self.spec.emulated:
            budget = min(budget, EMULATED_BUDGET)
        self.residents.begin(budget)

    @contextmanager
    def resident(self, *arrays: NDArray[Any]) -> Iterator[Buffers]:
        """Hold `arrays` on the device; copy out on leaving, except after an error."""
        with self._changed(arrays, copy_in=True) as buffers:
            yield buffers

    @contextmanager
    def results(self, *arrays: NDArray[Any], copy_in: bool = True) -> Iterator[Buffers]:
        """Do as `resident`; on leaving they are final, and stay on the device.

        They are read-only then. A preemption or an error leaves them as they are.
        """
        with self._changed(arrays, copy_in=copy_in, final=True) as buffers:
            yield buffers

    @contextmanager
    def inputs(self, *arrays: NDArray[Any]) -> Iterator[Buffers]:
        """Hold read-only `arrays` on the device; never copy them out.

        Those that equal a part of a file stay on the device afterwards.
        """
        self._check(arrays)
        parts = [self._part_of(array) for array in arrays]
        known = [None if part is None else self.residents.take(part) for part in parts]
        with self._held(arrays, pyopencl.mem_flags.READ_ONLY, known) as held:
            buffers = tuple(held)
            self._copy_in(
                [
                    (buffer, array)
                    for buffer, array, there in zip(buffers, arrays, known, strict=True)
                    if there is None
                ]
            )
            try:
                yield buffers
            except GeneratorExit:
                self._keep(parts, held)
                raise
            self._keep(parts, held)

    @contextmanager
    def scratch(self, *arrays: NDArray[Any]) -> Iterator[Buffers]:
        """Hold memory of the size of `arrays` on the device, without any copy."""
        self._check(arrays)
        with self._held(arrays) as held:
            yield tuple(held)

    def thaw(self) -> None:
        """Make results writable again: only the runtime sees them from now on."""
        self._frozen.thaw()

    def withdraw(self) -> None:
        """Undo what `results` did: they are not final, or are not written to a file."""
        self._frozen.thaw()
        self.residents.keep_fresh({})

    def keep_results(self, written: Written) -> None:
        """Keep those results on the device that were written to files."""
        self.residents.keep_fresh(written)

    def give_way(self) -> None:
        """Free what stays for the next task: the device is given to another process."""
        self.residents.give_way()

    def refresh(self) -> None:
        """Copy resident data to its host arrays; it stays resident."""
        self.copies_out += 1
        for arrays, buffers in self._open:
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
        self.residents.drop()
        staged = self.__dict__.pop("_staged", None)
        if staged is not None:
            with contextlib.suppress(pyopencl.Error):  # the device may be lost
                staged.close()
        del self._programs, self.queue, self.context

    @contextmanager
    def _changed(
        self, arrays: Arrays, *, copy_in: bool, final: bool = False
    ) -> Iterator[Buffers]:
        """Hold arrays that the block changes; `final`: they are results afterwards."""
        self._check(arrays)
        for array in arrays:
            if not array.flags.writeable:
                text = "a resident array is read-only; copy it, or use `inputs`"
                raise InputError(f"{self.spec.name}: {text}")
        with self._held(arrays) as held:
            buffers = tuple(held)
            if copy_in:
                self._fill(buffers, arrays)
            self._open.append((arrays, buffers))
            try:
                yield buffers
            except GeneratorExit:
                # Preempted: the runtime closes the generator to stop it at a checkpoint.
                self._copy_out(arrays, buffers)
                raise
            finally:
                self._open.pop()
            self._copy_out(arrays, buffers)
            if final:
                self._finish(arrays, held)

    @contextmanager
    def _held(
        self,
        arrays: Arrays,
        flags: int = pyopencl.mem_flags.READ_WRITE,
        known: Sequence[pyopencl.Buffer | None] = (),
    ) -> Iterator[list[pyopencl.Buffer]]:
        """Hold a buffer for each array; release in every case those still in the list.

        Args:
            arrays: the arrays.
            flags: of buffers that are allocated.
            known: buffers for some of the arrays that exist already.

        """
        buffers: list[pyopencl.Buffer] = [each for each in known if each is not None]
        try:
            there = list(known) or [None] * len(arrays)
            for place, array in enumerate(arrays):
                if there[place] is None:
                    buffers.append(self._allocated(flags, array.nbytes))
                    there[place] = buffers[-1]
            buffers[:] = [each for each in there if each is not None]
            # Covers the implementation's own calls.
            with opencl_errors(self.spec.name, "running the implementation"):
                yield buffers
        finally:
            self._settle()
            for buffer in buffers:
                _release(buffer)

    def _allocated(self, flags: int, size: int) -> pyopencl.Buffer:
        def allocate() -> pyopencl.Buffer:
            with opencl_errors(self.spec.name, "allocating device memory"):
                return pyopencl.Buffer(self.context, flags, size)

        return self._with_room(allocate)

    def _with_room(self, call: Callable[[], Done]) -> Done:
        """Repeat a call that lacks memory: without copies, and while others drop theirs."""
        for _ in range(MEMORY_RETRIES if self.residents.budget else 0):
            try:
                return call()
            except DeviceMemoryError:
                if not self.residents.drop():
                    time.sleep(MEMORY_PAUSE_S)
        return call()

    def _part_of(self, array: NDArray[Any]) -> ResultPart | None:
        return part_of(array) if self.residents.budget else None

    def _fill(self, buffers: Buffers, arrays: Arrays) -> None:
        """Fill buffers that the task changes, from copies on the device where there are any."""
        missing: list[tuple[pyopencl.Buffer, NDArray[Any]]] = []
        for buffer, array in zip(buffers, arrays, strict=True):
            part = self._part_of(array)
            known = None if part is None else self.residents.look(part)
            if known is None:
                missing.append((buffer, array))
            else:
                with opencl_errors(self.spec.name, "copying in"):
                    pyopencl.enqueue_copy(self.queue, buffer, known)
        self._copy_in(missing)

    def _keep(
        self, parts: Sequence[ResultPart | None], held: list[pyopencl.Buffer]
    ) -> None:
        """Keep those buffers that equal a part of a file."""
        for part, buffer in zip(parts, tuple(held), strict=True):
            if part is not None:
                held.remove(buffer)
                self.residents.keep(part, buffer, part.bytes)

    def _finish(self, arrays: Arrays, held: list[pyopencl.Buffer]) -> None:
        """Keep the buffers of results, which change no more."""
        for array, buffer in zip(arrays, tuple(held), strict=True):
            self._frozen.freeze(array)
            held.remove(buffer)
            fresh = FreshResult(array, buffer, array.nbytes, place_of(array))
            self.residents.add_fresh(fresh)

    def _memory_bytes(self) -> int:
        return self.spec.memory_bytes or int(self.context.devices[0].global_mem_size)

    def _check(self, arrays: tuple[Any, ...]) -> None:
        """Refuse what cannot be copied.

        Raises:
            TypeError: it is not a NumPy array.
            InputError: it is empty, or its elements are not one after the other.

        """
        for array in arrays:
            if not isinstance(array, np.ndarray):
                kind = type(array).__name__
                raise TypeError(
                    f"{self.spec.name}: expected a NumPy array, got a {kind}"
                )
            shape = f"{self.spec.name}: array of shape {array.shape}"
            if array.nbytes == 0:
                raise InputError(f"{shape} is empty")
            if not array.flags.c_contiguous:
                text = "is not C-contiguous; use numpy.ascontiguousarray"
                raise InputError(f"{shape} {text}")

    def _settle(self) -> None:
        """Wait for enqueued work, as memory in use is not freed; a lost device may fail."""
        with contextlib.suppress(pyopencl.Error):
            self.queue.finish()

    def _copy_in(self, pairs: list[tuple[pyopencl.Buffer, NDArray[Any]]]) -> None:
        """Copy each array to its buffer."""
        if not pairs:
            return
        self.transfer_in += self._with_room(lambda: self._copy(pairs, "copying in"))
        self.bytes_in += sum(array.nbytes for _, array in pairs)

    def _copy_out(self, arrays: Arrays, buffers: Buffers) -> None:
        self.copies_out += 1
        self.transfer_out += self._copy(
            zip(arrays, buffers, strict=True), "copying out"
        )

    def _copy(self, pairs: Iterable[tuple[Any, Any]], doing: Doing) -> float:
        """Copy each (to, from) pair; return the seconds of the copies alone."""
        with opencl_errors(self.spec.name, doing), own_page.during(PHASES[doing]):
            self.queue.finish()  # enqueued strips do not count as transfer
            start = time.perf_counter()
            for target, origin in pairs:
                self._copy_array(target, origin)
        return time.perf_counter() - start

    def _copy_array(self, target: Any, origin: Any) -> None:
        """Copy an array to a buffer or a buffer to an array."""
        copy_in = isinstance(origin, np.ndarray)
        array = origin if copy_in else target
        staged = self._staged if array.nbytes >= STAGED_BYTES else None
        if staged is None:
            pyopencl.enqueue_copy(self.queue, target, origin, is_blocking=True)
        elif copy_in:
            staged.copy_in(target, origin)
        else:
            staged.copy_out(target, origin)

    @functools.cached_property
    def _staged(self) -> StagedCopies | None:
        """Copies through pinned memory; an emulated device has no link that they could fill."""
        return None if self.spec.emulated else staged_copies(self.context)


def _release(buffer: pyopencl.Buffer) -> None:
    """Release a buffer; that of a lost device may fail."""
    with contextlib.suppress(pyopencl.Error):
        buffer.release()


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
