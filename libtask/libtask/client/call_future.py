"""The future of a call that an executor submits: cancelled, concluded, passed to other calls."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from libtask.client.call import Call, cleaned, collected, raised
from libtask.client.handles import outcome
from libtask.endpoint import is_same_socket
from libtask.errors import HetError, InputError
from libtask.inputs import TaskReference
from libtask.task_waits import TaskFuture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskInfo, TaskSpec


class CallFuture(TaskFuture[Any], TaskReference):
    """The future of one call; as an argument of another call it stands for the value.

    A call can be cancelled until it runs, as in the standard library.
    """

    def __init__(self, task: Call) -> None:
        super().__init__()
        self.task = task
        self.spec: TaskSpec | None = None
        """Its description; None as long as it takes values of calls that are not submitted."""
        self.context = copy_context()
        """That of the caller, for a later description: the name of its job, for one."""
        self.handle: TaskHandle | None = None
        """None: not submitted yet."""
        self.inputs: list[CallFuture] = [
            each for each in task.inputs if isinstance(each, CallFuture)
        ]
        """Calls whose values it takes."""
        self.ahead: Callable[[], Iterable[CallFuture]] = tuple
        """Returns the submitted calls of its executor that have not ended."""
        self._users = 1
        """This call itself, until it has ended, and the calls that take its value."""
        self._users_lock = threading.Lock()
        self._on_submitted: list[Callable[[], None]] = []
        self._error: BaseException | None = None
        """Why it could not be submitted."""
        self._started: bool | None = None
        self._start_lock = threading.Lock()

    @property
    def input_id(self) -> int:
        """Id of the task; waits until the call is submitted."""
        if self.handle is None:
            submitted = threading.Event()
            self.when_submitted(submitted.set)
            submitted.wait()
        if self.handle is None:
            raise InputError("a call that was not submitted has no result to pass")
        return self.handle.id

    def awaited(self, socket: Path) -> list[int]:
        """Return its task; while it waits to be submitted, those for whose ends it waits."""
        before = [self] if self.handle is not None else self.ahead()
        handles = [each.handle for each in before if each.handle is not None]
        return [each.id for each in handles if is_same_socket(each.socket, socket)]

    def reserve(self) -> bool:
        with self._users_lock:
            failed = self.cancelled() or (self.done() and self.exception() is not None)
            here = self._users == 0 and not failed
            self._users += not here
        return not here

    def when_submitted(self, call: Callable[[], None]) -> None:
        """Call a function once this call is submitted, or will never be."""
        with self._users_lock:
            waits = self.handle is None
            if waits:
                self._on_submitted.append(call)
        self.add_done_callback(lambda _future: call())
        if not waits:
            call()

    @property
    def ready(self) -> bool:
        """Whether the calls whose values it takes are submitted."""
        return all(each.handle is not None for each in self.inputs)

    @property
    def doomed(self) -> bool:
        """Whether a call whose value it takes ended before it was submitted."""
        return any(each.handle is None and each.done() for each in self.inputs)

    def release(self) -> None:
        """Remove the files if no other call needs them."""
        with self._users_lock:
            self._users -= 1
            needed = self._users > 0
        if not needed:
            cleaned(self.task)

    def cancel(self) -> bool:
        if self.cancelled():
            return True
        if self.running() or not self.withdraw():
            return False
        if self.handle is not None:
            self.handle.cancel()
        return True

    def withdraw(self) -> bool:
        """Cancel the call here only; return whether its task is to be cancelled, too."""
        return super().cancel()

    def running(self) -> bool:
        """Ask the daemon, which does not push the start of a task."""
        if self.handle is None:
            return super().running()
        if self._started is None and not self.done():
            self.note(self.handle.info())
        return super().running()

    def note(self, info: TaskInfo) -> None:
        """Note the present state of its task."""
        if info.state == "running":
            self._start()

    def submitted(self, handle: TaskHandle) -> None:
        """Record the task that runs the call, and drop its arguments."""
        self.spec, self.task.payload = None, b""
        with self._users_lock:
            self.handle = handle
            waiting, self._on_submitted = self._on_submitted, []
        for call in waiting:
            call()
        if self.cancelled():  # while it was submitted
            with suppress(HetError):  # it runs for nobody, if hetd is away
                handle.cancel()

    def refuse(self, error: BaseException) -> None:
        """Note why the call could not be submitted, for `conclude`."""
        self._error = error

    def conclude(self) -> None:
        """Set the value of the task that ended, or why there is none."""
        try:
            if self._start():
                self._conclude()
        finally:
            self._release_all()

    def discard(self) -> None:
        """Remove its files: it will not be submitted."""
        self._release_all()

    def _release_all(self) -> None:
        for each in (self, *self.inputs):
            each.release()
        self.inputs = []

    def _start(self) -> bool:
        """Determine once whether the caller cancelled it before it ran."""
        with self._start_lock:
            if self._started is None:
                self._started = self.set_running_or_notify_cancel()
            return self._started

    def _conclude(self) -> None:
        if self._error is not None or self.handle is None:
            self.set_exception(self._error)
            return
        try:
            value = collected(outcome(self.handle.ended.result()))
        except CancelledError as error:
            self.set_exception(error)
        except Exception as error:  # noqa: BLE001  the caller receives any exception
            self.set_exception(raised(self.task) or error)
        else:
            self.set_result(value)
