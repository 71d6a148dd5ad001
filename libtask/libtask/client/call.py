"""Calls: a Python function as a task: `Client.submit(function, …)` and `Client.executor()`.

Function, arguments and result are pickled: within the task if they are small, else in a
file of the user's. Only the user's own processes read them. A handle of a task among the
arguments, at any depth, is replaced by the task's result before the function is called.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import time
import uuid
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import cloudpickle

from libtask.attachments import FOLDER, Attachments, not_stored
from libtask.endpoint import launcher_folder
from libtask.errors import InputError, RemoteTraceback
from libtask.inputs import TaskReference
from libtask.pickles import write_pickled
from libtask.results import MARK, Exact, pickled_result, restored
from libtask.task import Size, Task
from libtask.tracebacks import formatted
from libtask.wording import one_line, shown

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device
    from libtask.messages import Kind, TaskEpoch

Argument = TypeVar("Argument")
Value = TypeVar("Value")
Submitted = TypeVar("Submitted", bound="Future[Any]")

INLINE = 128 * 1024
"""Maximum bytes within the task; a message holds at most 1 MiB."""

LEAST_CODE = 256
"""Bytes of the pickle of a function from which it holds code, and not just the name."""

_device: Device | None = None


def current_device() -> Device:
    """Return the device of the running call, for use in the function itself.

    Raises:
        InputError: the caller is not within a call.

    """
    if _device is None:
        raise InputError("current_device: no call of an executor runs here")
    return _device


@dataclass
class Call(Task):
    """One call of a function.

    Attributes:
        function: its name, for listings.
        payload: pickled (function, arguments, keyword arguments); empty: in a file.
        folder: folder of the call's files, of an executor; empty: hetd's client
            submitted it, and nobody removes such files.
        token: prefix of their names.
        kind: kind of resource that the call uses.
        inputs: results of other tasks, to which the payload refers by their positions.
        attachments: folder of the attachment with the payload.
        attachment: name of the attachment; empty: there is none.
        calls: number of calls of the function that the task makes.
        caller: the run that submits it, and with which it ends; None: of a task there is none.

    """

    function: str
    payload: bytes = b""
    folder: str = ""
    token: str = ""
    kind: str = "cpu"
    inputs: list[Any] = field(default_factory=list)
    attachments: str = ""
    attachment: str = ""
    calls: int = field(default=1, init=False)
    caller: TaskEpoch | None = field(default=None, init=False)

    sized_by_inputs: ClassVar[bool] = False

    def kinds(self) -> list[Kind]:
        kind: Any = self.kind
        return [kind]

    def size(self) -> Size:
        return Size(self.function, work=self.calls, input_bytes=len(self.payload))

    def described(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.attachment:
            fields["attachments"] = [self.attachment]
        if self.caller is not None:
            fields["caller"] = self.caller
        return fields

    def load(self) -> None:
        """Unpickle the call; a failure is reported as the caller's error."""
        payload = self._read_payload()
        with self._reporting():
            self._call = _CallUnpickler(payload, self.inputs).load()

    def _read_payload(self) -> bytes:
        if self.payload:
            return self.payload
        if self.attachment:
            return Attachments(Path(self.attachments)).read(self.attachment)
        return self.file("call").read_bytes()

    def save(self, checkpoint: Checkpoint) -> Any:
        """Return the pickled value, or a reference to its file."""
        if not self.folder:
            return Exact(self._value)
        with self._reporting():
            content = pickled_result(self._value)
        name = type(self._value).__name__
        if content.size <= INLINE:
            return {MARK: name, "data": content.stream}
        path = self.file("result")
        return {MARK: name, "file": str(path), "bytes": write_pickled(path, content)}

    def run(self, device: Device) -> None:
        """Call the function."""
        global _device  # noqa: PLW0603  a worker runs one task at a time
        function, arguments, keywords = self._call
        _device = device
        try:
            with self._reporting():
                self._value = _value_of(function(*arguments, **keywords))
        finally:
            _device = None
            device.thaw()  # the function has returned: nobody changes its results

    def file(self, what: str) -> Path:
        """Return the path of one of an executor's files: `call`, `result` or `error`."""
        return Path(self.folder) / f"{self.token}.{what}"

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Write an exception with its traceback to a file for the caller, an executor."""
        try:
            yield
        except Exception as error:
            if not self.folder:
                raise
            write_private(self.file("error"), _pickled_error(error))
            raise


def _run(task: Call, device: Device, checkpoint: Checkpoint) -> Iterator[None]:
    for _ in checkpoint.strips():
        task.run(device)
        yield


Call.on("cpu")(_run)
Call.on("gpu")(_run)
Call.on("fpga")(_run)


def prepared(
    kind: str, folder: Path, call: tuple[Callable[..., Any], Any, Any]
) -> Call:
    """Build the task of an executor's call: (function, arguments, keyword arguments).

    Raises:
        HetError: it is large, and cannot be written into the folder.

    """
    payload, inputs = _pickled_call(call)
    function, arguments, _ = call
    task = Call(_name(function), payload, str(folder), uuid.uuid4().hex, kind, inputs)
    if isinstance(function, InChunks):
        task.calls = len(arguments[0])
    if len(payload) > INLINE:
        try:
            write_private(task.file("call"), payload)
        except OSError as error:
            cleaned(task)
            _release(inputs)
            raise not_stored(folder, error) from error
        task.payload = b""
    return task


def alone(
    socket: Path, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Call:
    """Build the task of a call that no executor waits for.

    Args:
        socket: socket of the daemon, which determines the folder of attachments.
        function: the function; `arguments`: its positional arguments.

    Raises:
        InputError: it is something else that cannot be called.
        HetError: it is large, and cannot be stored.

    """
    if not callable(function):
        raise InputError(
            "expected a task, the name or class of an application, or a function;"
            f" got {shown(function)}"
        )
    payload, inputs = _pickled_call((function, arguments, {}))
    task = Call(_name(function), payload, inputs=inputs)
    if len(payload) > INLINE:
        folder = launcher_folder(socket.absolute()) / FOLDER
        task.payload, task.attachments = b"", str(folder)
        task.attachment = Attachments(folder).keep(payload)
    return task


def pickled_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what pickles as a function does, but quickly, for many calls of it.

    A function that the workers cannot import is pickled with its code, 70 us each time.
    Objects to which both it and the arguments refer are two in the worker then, as with a
    pool of processes. A function that refers to results of tasks is returned as it is, and so
    is one that cannot be pickled: its call says why.
    """
    file = io.BytesIO()
    try:
        _WithoutReferences(file).dump(function)
    except Exception:  # noqa: BLE001  its classes may raise anything
        return function
    stream = file.getvalue()
    if len(stream) < LEAST_CODE or not callable(function):
        return function  # `alone` refuses what cannot be called
    return _PickledFunction(_name(function), stream)


class InChunks:
    """A function that one task calls for each of several groups of arguments, a chunk.

    It returns the list of their values, in order; an exception ends the chunk.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__name__ = _name(function)
        self.function = function

    def __call__(self, chunk: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [_value_of(self.function(*arguments)) for arguments in chunk]


def _value_of(returned: Any) -> Any:
    """Return what a function has returned; a coroutine is run, in an event loop of its own."""
    if not isinstance(returned, CoroutineType):
        return returned
    import asyncio  # most calls do not need it

    return asyncio.run(returned)


def chunks_of(values: Iterator[Argument], size: int) -> Iterator[tuple[Argument, ...]]:
    """Iterate over the values, up to `size` of them at a time.

    Raises:
        ValueError: the size is less than 1.

    """
    if size < 1:
        raise ValueError("chunksize must be >= 1.")
    return iter(lambda: tuple(islice(values, size)), ())


def values_in_order(
    futures: deque[Submitted],
    further: Iterator[Submitted],
    deadline: float | None,
    give_up: Callable[[Iterable[Submitted]], None],
) -> Iterator[Any]:
    """Iterate over the values of calls, and keep none of them.

    Args:
        futures: calls that are submitted.
        further: submits one more call each time; asked whenever a value is wanted.
        deadline: deadline of each value, monotonic seconds.
        give_up: gets the calls that are left at the end.

    """
    try:
        while futures:
            futures.extend(islice(further, 1))
            left = None if deadline is None else deadline - time.monotonic()
            futures[0].result(left)  # if it raises, this one is given up, too
            yield futures.popleft().result()
    finally:
        give_up(futures)


def flattened(chunks: Iterator[list[Value]]) -> Iterator[Value]:
    """Iterate over the values of chunks."""
    for values in chunks:
        yield from values


class _WithoutReferences(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles what does not refer to tasks."""

    def persistent_id(self, value: Any) -> None:
        if isinstance(value, TaskReference):
            raise InputError("a result of a task")


class _PickledFunction:
    """A function in pickled form: its pickle in another one."""

    def __init__(self, name: str, stream: bytes) -> None:
        self.__name__ = name
        self._stream = stream

    def __call__(self, *_: object) -> Any:
        raise RuntimeError(f"{self.__name__} is called in a worker only")

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._stream,)


def _name(function: Callable[..., Any]) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


class _CallPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles a call with references to tasks by their positions in `inputs`."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.inputs: list[TaskReference] = []
        self._known: dict[int, int | None] = {}

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, TaskReference):
            return None
        if id(value) not in self._known:
            self._known[id(value)] = self._taken(value)
        return self._known[id(value)]

    def _taken(self, reference: TaskReference) -> int | None:
        if not reference.reserve():
            return None  # reducer_override follows
        self.inputs.append(reference)
        return len(self.inputs) - 1

    def reducer_override(self, value: Any) -> Any:
        """Pickle the value of a call that has ended in place of its future."""
        if isinstance(value, TaskReference):
            ended: Any = value  # reserve() has returned False
            return _same, (ended.result(),)
        return super().reducer_override(value)


def _same(value: Any) -> Any:
    return value


class _CallUnpickler(pickle.Unpickler):
    """Unpickles a call with results in place of references."""

    def __init__(self, payload: bytes, inputs: list[Any]) -> None:
        super().__init__(io.BytesIO(payload))
        self._inputs = inputs

    def persistent_load(self, position: int) -> Any:
        return self._inputs[position]


def _pickled_call(call: tuple[Any, ...]) -> tuple[bytes, list[TaskReference]]:
    """Pickle a call: (function, arguments, keyword arguments).

    Raises:
        Exception: as pickling it raised, with a note that says which value it was.

    """
    file = io.BytesIO()
    pickler = _CallPickler(file)
    try:
        pickler.dump(call)
    except Exception as error:
        for note in _unpicklable(*call):
            error.add_note(note)
        _release(pickler.inputs)
        raise
    return file.getvalue(), pickler.inputs


def _release(inputs: list[TaskReference]) -> None:
    for each in inputs:
        each.release()


def _unpicklable(
    function: Callable[..., Any], arguments: Iterable[Any], keywords: dict[str, Any]
) -> Iterator[str]:
    """Name the values of a call that cannot be pickled, with the reasons."""
    if isinstance(function, InChunks):
        for each in next(iter(arguments)):
            yield from _unpicklable(function.function, each, keywords)
        return
    name = _name(function)
    values = {f"the function {name}": function}
    values |= {f"argument {n} of {name}": each for n, each in enumerate(arguments, 1)}
    values |= {f"argument {key} of {name}": each for key, each in keywords.items()}
    for described, value in values.items():
        try:
            _Trial(io.BytesIO()).dump(value)
        except Exception as error:  # noqa: BLE001  its classes may raise anything
            kind = type(value).__name__
            yield f"{described}, a {kind}, cannot be pickled: {one_line(error)}"


class _Trial(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles a value without taking the results that it refers to."""

    def persistent_id(self, value: Any) -> int | None:
        return 0 if isinstance(value, TaskReference) else None


def collected(result: Any) -> Any:
    """Unpickle the value of a finished call."""
    return restored(result)


def raised(task: Call) -> BaseException | None:
    """Return the function's exception with its remote traceback as cause."""
    try:
        pickled = task.file("error").read_bytes()
    except OSError:
        return None
    error, text = pickle.loads(pickled)  # noqa: S301  own process wrote it
    found: BaseException = error
    found.__cause__ = RemoteTraceback(text)
    return found


def cleaned(task: Call) -> None:
    """Remove the files of a call that has ended."""
    for what in ("call", "result", "error"):
        # for each call, and mostly there is none: without objects for the paths
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{task.folder}/{task.token}.{what}")  # noqa: PTH108  as said above


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(data)


def _pickled_error(error: Exception) -> bytes:
    text = formatted(error)
    try:
        pickled = cloudpickle.dumps((error, text))
        pickle.loads(pickled)  # noqa: S301  some exceptions pickle, and then do not load
    except Exception:  # noqa: BLE001  their __reduce__ may raise anything
        substitute = RuntimeError(f"{type(error).__name__}: {error}")
        return cloudpickle.dumps((substitute, text))  # type: ignore[no-any-return]  # untyped
    return pickled  # type: ignore[no-any-return]  # cloudpickle has no types
