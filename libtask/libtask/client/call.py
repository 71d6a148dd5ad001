"""Calls: a Python function as a task. The application behind `Client.executor()`.

Function, arguments and result are pickled: within the task if they are small, else in a
file in the user's run directory. Only the user's own processes read them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import traceback
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from libtask.errors import InputError, RemoteTraceback
from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.checkpoint import Checkpoint
    from libtask.devices import Device
    from libtask.messages import Kind

INLINE = 128 * 1024
"""Maximum bytes within the task; a message holds at most 1 MiB."""

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
        folder: folder of the call's files.
        token: prefix of their names.
        kind: kind of resource that the call uses.

    """

    function: str
    payload: bytes = b""
    folder: str = ""
    token: str = ""
    kind: str = "cpu"

    def kinds(self) -> list[Kind]:
        kind: Any = self.kind
        return [kind]

    def size(self) -> Size:
        return Size(self.function, input_bytes=len(self.payload))

    def load(self) -> None:
        """Unpickle the call; a failure is reported as the caller's error."""
        payload = self.payload or self.file("call").read_bytes()
        with self._reporting():
            self._call = pickle.loads(payload)  # noqa: S301  the user's own function

    def save(self, checkpoint: Checkpoint) -> Any:
        """Return the pickled value, or a reference to its file."""
        with self._reporting():
            pickled = cloudpickle.dumps(self._value)
        if len(pickled) > INLINE:
            write_private(self.file("result"), pickled)
            return {"in_file": True}
        return {"pickle": base64.b64encode(pickled).decode("ascii")}

    def run(self, device: Device) -> None:
        """Call the function."""
        global _device  # noqa: PLW0603  a worker runs one task at a time
        function, arguments, keywords = self._call
        _device = device
        try:
            with self._reporting():
                self._value = function(*arguments, **keywords)
        finally:
            _device = None

    def file(self, what: str) -> Path:
        """Return the path of one of the call's files: `call`, `result` or `error`."""
        return Path(self.folder) / f"{self.token}.{what}"

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Write an exception with its traceback to a file for the caller."""
        try:
            yield
        except Exception as error:
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
    """Build the task of a call: (function, arguments, keyword arguments)."""
    payload = cloudpickle.dumps(call)
    name = getattr(call[0], "__name__", type(call[0]).__name__)
    task = Call(name, payload, str(folder), uuid.uuid4().hex, kind)
    if len(payload) > INLINE:
        write_private(task.file("call"), payload)
        task.payload = b""
    return task


def collected(task: Call, result: dict[str, Any]) -> Any:
    """Unpickle the value of a finished call."""
    if result.get("in_file"):
        return pickle.loads(task.file("result").read_bytes())  # noqa: S301  own process wrote it
    return pickle.loads(base64.b64decode(result["pickle"]))  # noqa: S301  own process wrote it


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
        task.file(what).unlink(missing_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(data)


def _pickled_error(error: Exception) -> bytes:
    text = "".join(traceback.format_exception(error))
    try:
        pickled = cloudpickle.dumps((error, text))
        pickle.loads(pickled)  # noqa: S301  some exceptions pickle, and then do not load
    except Exception:  # noqa: BLE001  their __reduce__ may raise anything
        substitute = RuntimeError(f"{type(error).__name__}: {error}")
        return cloudpickle.dumps((substitute, text))  # type: ignore[no-any-return]  # untyped
    return pickled  # type: ignore[no-any-return]  # cloudpickle has no types
