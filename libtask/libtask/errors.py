"""Errors, split by fault: of the client, of the device, or a bug of hetd.

Every error a user can meet is one of these and prints as one line. `retry` says
whether the same request may succeed later or elsewhere without a change.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class HetError(Exception):
    """Base of all errors of hetd and libtask."""

    retry = False
    code = "error"


class InputError(HetError):
    """The client's fault: a bad parameter, file, application or request."""

    code = "bad-input"


class NotFoundError(InputError):
    """The named task, resource, policy or application does not exist."""

    code = "not-found"


class NotAllowedError(InputError):
    """The caller may not do that to another user's task."""

    code = "not-allowed"


class ConflictError(InputError):
    """The idempotency key belongs to another request."""

    code = "conflict"


class ExpiredError(HetError):
    """The request arrived after its sender stopped waiting; hetd changed nothing."""

    retry = True
    code = "expired"


class BusyError(HetError):
    """The caller has reached a rate limit; the request may succeed in a moment."""

    retry = True
    code = "busy"


class DeviceError(HetError):
    """The device is lost, out of memory or absent; another device may work."""

    retry = True
    code = "device"


class DeviceMemoryError(DeviceError):
    """The device has too little memory for the task; a larger device may work."""

    code = "device-memory"


class BinaryError(DeviceError):
    """A board's prebuilt binary is missing, or the board rejects it.

    The board itself is healthy, and other boards may have a working binary.
    """

    retry = False
    code = "binary"


class ProgramError(DeviceError):
    """An OpenCL program does not compile for this device; another kind may work."""

    retry = False
    code = "program"


class DaemonUnreachableError(HetError):
    """No daemon answers at the socket."""

    retry = True
    code = "unreachable"


class TaskFailedError(HetError):
    """A waited-for task ended without a result.

    Args:
        text: names the task and the reason.
        output: last lines that the task's last worker wrote; a traceback shows them.

    Attributes:
        output: as given.

    """

    code = "task-failed"

    def __init__(self, text: str = "", output: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.output = tuple(output)
        if self.output:
            self.add_note("its last output:")
        for line in self.output:
            self.add_note(f"  {line}")


class CommandFailedError(TaskFailedError):
    """A command ended with an exit status other than 0.

    Args:
        text: how it ended.
        exit_code: its exit status; negative: the signal that ended it.

    """

    code = "exit-status"

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def own_copy(error: BaseException) -> BaseException:
    """Return a copy of an error of hetd's, for one of several futures that raise it.

    The traceback of an exception grows each time that it is raised.
    """
    return copy.copy(error) if isinstance(error, HetError) else error


class RemoteTraceback(Exception):  # noqa: N818  named as in concurrent.futures
    """The traceback in the worker, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class BugError(HetError):
    """An impossible state, which is a bug of hetd; carries the history that led to it."""

    code = "bug"
