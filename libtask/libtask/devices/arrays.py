"""Devices for implementations that compute on arrays of the array API standard.

One implementation serves several kinds: `device.xp` is NumPy on the CPU, and on an
accelerator the library that the user's environment has, CuPy or PyTorch. The arrays are
the task's attributes. This module moves them: to the device when the implementation
starts, back to the host when it ends or is preempted, and for a snapshot copies of them.
Copies of results stay on the device within a budget, see `residents`.

Source of the interface: Python array API standard 2023.12, https://data-apis.org/array-api;
`array-api-compat` gives CuPy and PyTorch that interface.

Any other library that follows the standard can be named in `Task.array_libraries`; it
serves emulated devices only, because the standard has no way to find a device by UUID.
"""

from __future__ import annotations

import importlib
import importlib.util
import string
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from libtask.arrays import COMPATIBILITY, is_importable
from libtask.devices.cpu import CpuDevice
from libtask.devices.residents import EMULATED_BUDGET, FreshResult
from libtask.errors import DeviceError, DeviceMemoryError, InputError
from libtask.file_parts import part_of, place_of
from libtask.phase import Phase, own_page

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from libtask.devices.residents import Written
    from libtask.file_parts import ResultPart
    from libtask.messages import DeviceSpec

NUMBERS = "biufc"
"""NumPy's codes of the element types that move: Boolean, integer, real and complex."""


# ---------------------------------------------------------------- libraries


class ArrayLibrary:
    """An array library that computes on the host: NumPy, or a stand-in.

    Attributes:
        xp: its namespace, by the array API standard.
        moves: whether arrays of the task have to be converted for it.
        asynchronous: whether its calls only enqueue work on a device.
        memory_errors: exceptions that mean that the device is out of memory.
        device_errors: exceptions that mean that the device or its driver failed.

    """

    moves = True
    asynchronous = False
    memory_errors: tuple[type[Exception], ...] = ()
    device_errors: tuple[type[Exception], ...] = ()

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self._own = type(xp.asarray(0))

    def enter(self) -> None:
        """Make the device the one on which new arrays are created."""

    def leave(self) -> None:
        """Undo `enter`."""

    def trim(self) -> None:
        """Return unused memory of the device."""

    def to_device(self, array: NDArray[Any]) -> Any:
        """Return a copy of a host array on the device."""
        return self.xp.asarray(array, copy=True)

    def copied(self, array: Any) -> Any:
        """Return a copy of one of the library's arrays, on the same device."""
        return self.xp.asarray(array, copy=True)

    def to_host(self, array: Any) -> NDArray[Any]:
        """Return a copy of one of the library's arrays on the host."""
        import numpy as np

        # what NumPy itself holds may be of a type that DLPack does not know
        source = array if isinstance(array, np.ndarray) else np.from_dlpack(array)
        return np.array(source)

    def is_own(self, value: Any) -> bool:
        """Return whether a value is one of the library's arrays."""
        return isinstance(value, self._own)

    def mark(self) -> Callable[[], None]:
        """Return a function that waits for all work enqueued so far."""
        return _nothing_to_wait_for


class HostArrays(ArrayLibrary):
    """NumPy on the CPU: the task's arrays stay where they are."""

    moves = False


class TorchArrays(ArrayLibrary):
    """PyTorch on a GPU, or on the CPU in the place of an emulated device.

    Raises:
        DeviceError: PyTorch does not find the device.

    """

    def __init__(self, spec: DeviceSpec) -> None:
        import torch

        super().__init__(importlib.import_module(f"{COMPATIBILITY}.torch"))
        self._torch: Any = torch
        self.memory_errors = (torch.OutOfMemoryError,)
        failed = getattr(torch, "AcceleratorError", None)  # since PyTorch 2.8
        self.device_errors = (failed,) if failed else ()
        if stands_in(spec):
            self._device = torch.device("cpu")
            return
        self.asynchronous = True
        found = [
            _digits(str(getattr(torch.cuda.get_device_properties(number), "uuid", "")))
            for number in range(torch.cuda.device_count())
        ]
        self._device = torch.device("cuda", _number(spec, found, "PyTorch"))

    def enter(self) -> None:
        self._torch.set_default_device(self._device)
        if self.asynchronous:
            self._torch.cuda.set_device(self._device)

    def leave(self) -> None:
        self._torch.set_default_device(None)

    def trim(self) -> None:
        if self.asynchronous:
            self._torch.cuda.empty_cache()

    def to_device(self, array: NDArray[Any]) -> Any:
        return self.xp.asarray(array, device=self._device, copy=True)

    def to_host(self, array: Any) -> NDArray[Any]:
        host: NDArray[Any] = array.detach().to("cpu", copy=True).numpy()
        return host

    def mark(self) -> Callable[[], None]:
        if not self.asynchronous:
            return _nothing_to_wait_for
        event = self._torch.cuda.Event()
        event.record(self._torch.cuda.current_stream(self._device))
        wait: Callable[[], None] = event.synchronize
        return wait


class CupyArrays(ArrayLibrary):
    """CuPy on a GPU.

    Raises:
        DeviceError: CuPy does not find the device.

    """

    asynchronous = True

    def __init__(self, spec: DeviceSpec) -> None:
        cupy: Any = importlib.import_module("cupy")
        self.xp = importlib.import_module(f"{COMPATIBILITY}.cupy")
        self._cupy = cupy
        self._own = cupy.ndarray
        self.memory_errors = (cupy.cuda.memory.OutOfMemoryError,)
        self.device_errors = (cupy.cuda.runtime.CUDARuntimeError,)
        runtime = cupy.cuda.runtime
        found = [
            _digits(runtime.getDeviceProperties(number)["uuid"])
            for number in range(runtime.getDeviceCount())
        ]
        self._device = cupy.cuda.Device(_number(spec, found, "CuPy"))

    def enter(self) -> None:
        self._device.use()

    def trim(self) -> None:
        self._cupy.get_default_memory_pool().free_all_blocks()

    def to_host(self, array: Any) -> NDArray[Any]:
        host: NDArray[Any] = array.get()
        return host

    def mark(self) -> Callable[[], None]:
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record()
        wait: Callable[[], None] = event.synchronize
        return wait


ACCELERATED: dict[str, Callable[[DeviceSpec], ArrayLibrary]] = {
    "cupy": CupyArrays,
    "torch": TorchArrays,
}
"""Libraries that compute on real accelerators."""


def open_library(spec: DeviceSpec, names: Sequence[str]) -> ArrayLibrary:
    """Open the first of the libraries that this environment has and that finds the device.

    Raises:
        InputError: the environment has none of them.
        DeviceError: none of them finds the device.

    """
    if spec.kind == "cpu":
        return HostArrays(_numpy())
    here = [name for name in names if is_importable(name)]
    if not here:
        wanted = " or ".join(names)
        raise InputError(
            f"{spec.name}: device.xp needs {wanted}, with array-api-compat, in the"
            " environment of the task"
        )
    faults = []
    for name in here:
        try:
            return _opened(name, spec)
        except DeviceError as error:
            faults.append(str(error))
    raise DeviceError("; ".join(faults))


def stands_in(spec: DeviceSpec) -> bool:
    """Return whether a library on the host stands in for a device that is not there."""
    return spec.emulated or spec.driver == "null"


def _opened(name: str, spec: DeviceSpec) -> ArrayLibrary:
    if name == "cupy" and stands_in(spec):
        raise DeviceError(f"{spec.name}: CuPy computes on real GPUs only")
    if name in ACCELERATED:
        return ACCELERATED[name](spec)
    if not stands_in(spec):
        raise DeviceError(f"{spec.name}: {name} computes on the host only")
    return ArrayLibrary(importlib.import_module(name))


def _numpy() -> Any:
    """Return NumPy, which before version 2 needs help to follow the standard."""
    if importlib.util.find_spec(COMPATIBILITY) is None:
        return importlib.import_module("numpy")
    return importlib.import_module(f"{COMPATIBILITY}.numpy")


def _number(spec: DeviceSpec, uuids: list[str], library: str) -> int:
    """Return the library's number of a device: that of its UUID if the driver reports one.

    Raises:
        DeviceError: the library does not find it.

    """
    if spec.uuid:
        wanted = _digits(spec.uuid)
        number = uuids.index(wanted) if wanted in uuids else -1
    else:
        number = spec.index if spec.index < len(uuids) else -1
    if number < 0:
        raise DeviceError(f"{spec.name}: {library} does not find this device")
    return number


def _digits(uuid: str | bytes) -> str:
    """Return a UUID as 32 hexadecimal digits: libraries give bytes, or text with dashes."""
    if isinstance(uuid, bytes):
        return uuid.hex()
    digits = uuid.lower().removeprefix("gpu-")
    return "".join(each for each in digits if each in string.hexdigits)


def _nothing_to_wait_for() -> None:
    """Return at once: a call has computed when it returns."""


# ---------------------------------------------------------------- devices


class ArrayDevice(CpuDevice):
    """A device whose `xp` is an array namespace. Of the CPU it uses the task's threads.

    Args:
        spec: the device.
        names: the libraries for accelerators, the preferred one first.

    Attributes:
        names: as given.
        xp: the namespace, by the array API standard.

    Raises:
        InputError: the environment has none of the libraries.
        DeviceError: none of them finds the device.

    """

    def __init__(self, spec: DeviceSpec, names: Sequence[str]) -> None:
        super().__init__(spec)
        self.names = tuple(names)
        self._library = open_library(spec, names)
        self.xp = self._library.xp
        self.pipelined = self._library.asynchronous
        self._task: Any = None
        self._on_device: dict[str, Any] | None = None
        """The attributes with the device's arrays while the task has copies; None: it has
        the device's arrays."""

    def begin(self, share: float) -> None:
        super().begin(share)
        budget = int(share * self.spec.memory_bytes) if self._library.moves else 0
        if self._library.moves and stands_in(self.spec):
            budget = EMULATED_BUDGET if share else 0
        self.residents.begin(budget)

    def withdraw(self) -> None:
        super().withdraw()
        self.residents.keep_fresh({})

    def keep_results(self, written: Written) -> None:
        self.residents.keep_fresh(written, _key)

    def give_way(self) -> None:
        self.residents.give_way()
        self._library.trim()

    def close(self) -> None:
        self.give_way()

    @contextmanager
    def holding(self, task: Any) -> Iterator[None]:
        """Hold the arrays of a task on the device: move in on entering, out on leaving.

        A preemption also moves them out; an error (a lost device) does not.

        Raises:
            DeviceError: the device fails in the block, or while arrays are moved.

        """
        with self._errors():
            self._library.enter()
            self._task = task
            try:
                self._move_in()
                yield
            except GeneratorExit:
                self._move_out()
                raise
            else:
                self._finish()
            finally:
                self._task = self._on_device = None
                self._library.leave()
                self._library.trim()

    def refresh(self) -> None:
        """Give the task copies of its arrays on the host, until `continue_on_device`."""
        if self._task is None or not self._library.moves:
            return
        with self._errors(), own_page.during(Phase.SNAPSHOT):
            kept = dict(vars(self._task))
            _convert(self._task, self._library.is_own, self._library.to_host)
            self._on_device = kept

    def continue_on_device(self) -> None:
        """Give the task its arrays on the device again, after `refresh`."""
        if self._on_device is not None:
            vars(self._task).update(self._on_device)
            self._on_device = None

    def mark(self) -> Callable[[], None]:
        super().mark()
        with self._errors():
            wait = self._library.mark()

        def waited() -> None:
            with self._errors():
                wait()

        return waited

    def _move_in(self) -> None:
        if self._library.moves:
            began = time.perf_counter()
            with own_page.during(Phase.COPYING_IN):
                _convert(self._task, _is_movable, self._on_entering)
                self._library.mark()()
            self.transfer_in += time.perf_counter() - began

    def _on_entering(self, array: NDArray[Any]) -> Any:
        """Return an array on the device that the task may change."""
        part = part_of(array) if self.residents.budget else None
        known = None if part is None else self.residents.look(_key(part, array))
        if known is not None:
            return self._with_room(self._library.copied, known)
        copy = self._with_room(self._library.to_device, array)
        self.bytes_in += array.nbytes
        if part is not None and self.residents.fits(array.nbytes):
            kept = self._library.copied(copy)
            self.residents.keep(_key(part, array), kept, array.nbytes)
        return copy

    def _with_room(self, copy: Callable[[Any], Any], array: Any) -> Any:
        """Copy an array, without the copies that stay if the device lacks memory."""
        try:
            return copy(array)
        except self._library.memory_errors:
            if not self.residents.drop():
                raise
            self._library.trim()
            return copy(array)

    def _finish(self) -> None:
        """Move the arrays out; the results among them are final, and stay on the device."""
        attributes = vars(self._task)
        names = [name for name in self._task.result_names if name in attributes]
        self.continue_on_device()
        computed = {name: attributes[name] for name in names}
        self._move_out()
        for name, array in computed.items():
            host = attributes[name]
            if _is_movable(host) and host.flags.writeable:
                self._frozen.freeze(host)
                if self._library.moves:
                    fresh = FreshResult(host, array, host.nbytes, place_of(host))
                    self.residents.add_fresh(fresh)

    def _move_out(self) -> None:
        self.continue_on_device()
        if self._library.moves:
            self._library.mark()()  # strips in flight do not count as transfer
            began = time.perf_counter()
            with own_page.during(Phase.COPYING_OUT):
                _convert(self._task, self._library.is_own, self._library.to_host)
            self.transfer_out += time.perf_counter() - began

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert the library's errors in the block to libtask's."""
        name = self.spec.name
        try:
            yield
        except self._library.memory_errors as error:
            text = " ".join(str(error).split())[:200]
            raise DeviceMemoryError(f"{name}: out of memory: {text}") from error
        except self._library.device_errors as error:
            text = " ".join(str(error).split())[:200]
            raise DeviceError(f"{name}: the device failed: {text}") from error


# ---------------------------------------------------------------- attributes


def _key(part: ResultPart, array: NDArray[Any]) -> Hashable:
    """Return what determines a copy: other arrays may show the same bytes."""
    return part, array.dtype.str, array.shape


def _is_movable(value: Any) -> bool:
    """Return whether a value is a NumPy array of numbers."""
    import numpy as np

    return isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS


def _convert(
    task: Any, wanted: Callable[[Any], bool], convert: Callable[[Any], Any]
) -> None:
    """Convert the arrays in a task's attributes, also in lists, tuples and dicts there.

    An array that several attributes hold is converted once, and stays one array.
    """
    converted: dict[int, Any] = {}

    def changed(value: Any) -> Any:
        if wanted(value):
            if id(value) not in converted:
                converted[id(value)] = convert(value)
            return converted[id(value)]
        if type(value) in (list, tuple):
            return type(value)(changed(each) for each in value)
        if type(value) is dict:
            return {key: changed(each) for key, each in value.items()}
        return value

    # the old values live until the end: no other object gets the `id` of one of them
    attributes = vars(task)
    attributes.update({name: changed(value) for name, value in attributes.items()})
