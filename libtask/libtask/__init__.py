"""The library that applications are written against.

Names are imported when they are first used: a program that only defines a task does
not wait for sockets, and one that only submits does not wait for devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from libtask.errors import (
    DaemonUnreachableError,
    DeviceError,
    HetError,
    InputError,
    NotAllowedError,
    NotFoundError,
    ProgramError,
    TaskFailedError,
)

if TYPE_CHECKING:
    from libtask.checkpoint import Checkpoint
    from libtask.client.asynchronous import AsyncClient
    from libtask.client.batches import as_completed
    from libtask.client.client import Client
    from libtask.daemon.private import private_daemon
    from libtask.devices import Device
    from libtask.parameters import Input, Output
    from libtask.program.standalone import main
    from libtask.task import Size, Task

__all__ = [
    "AsyncClient",
    "Checkpoint",
    "Client",
    "DaemonUnreachableError",
    "Device",
    "DeviceError",
    "HetError",
    "Input",
    "InputError",
    "NotAllowedError",
    "NotFoundError",
    "Output",
    "ProgramError",
    "Size",
    "Task",
    "TaskFailedError",
    "as_completed",
    "main",
    "private_daemon",
]

_PLACES = {
    "AsyncClient": "libtask.client.asynchronous",
    "Checkpoint": "libtask.checkpoint",
    "Client": "libtask.client.client",
    "Device": "libtask.devices",
    "Input": "libtask.parameters",
    "Output": "libtask.parameters",
    "Size": "libtask.task",
    "Task": "libtask.task",
    "as_completed": "libtask.client.batches",
    "main": "libtask.program.standalone",
    "private_daemon": "libtask.daemon.private",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
