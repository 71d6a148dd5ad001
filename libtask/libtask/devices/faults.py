"""Conversion of OpenCL's error codes to errors of libtask.

It uses the code, not pyopencl's exception class: a lost device appears as
`RuntimeError`, `LogicError` or `MemoryError`, depending on the failing call.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from libtask.errors import DeviceError, DeviceMemoryError, ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyopencl

OUT_OF_MEMORY = frozenset({-4, -6, -61})
"""MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_HOST_MEMORY, INVALID_BUFFER_SIZE."""

OUT_OF_RESOURCES = -5
"""Out of memory or registers, or a lost device: drivers use it for all of these."""

LOST = frozenset({-1, -2, -9999, *range(-36, -31)})
"""Device not found or not available, an illegal access on NVIDIA devices, or a platform,
device, context or queue that has become invalid during a task."""

PROGRAM_FAULTS = frozenset({-3, -11, -15, -17, *range(-72, -29)}) - LOST - OUT_OF_MEMORY
"""BUILD_PROGRAM_FAILURE and similar, and every other INVALID_… (arguments, kernels, work
sizes): the same call fails again here; the code for another kind may work."""

ARGUMENT = re.compile(r"when processing arg#(\d+)")
"""pyopencl's words for an argument of a kernel that has the wrong type."""


@contextmanager
def opencl_errors(device: str, doing: str) -> Iterator[None]:
    """Convert pyopencl's errors in the block to libtask's.

    Args:
        device: name of the resource, for the message.
        doing: current action, for the message: "copying in".

    """
    import pyopencl

    try:
        yield
    except pyopencl.Error as error:
        raise read_fault(error, device, doing) from error


def read_fault(error: pyopencl.Error, device: str, doing: str) -> DeviceError:
    """Return libtask's error for one of pyopencl's, in one line."""
    code = _code(error)
    where = f"{device}: {_name(code, error)} while {doing}"
    argument = ARGUMENT.search(str(error))
    if argument and code in PROGRAM_FAULTS:
        return ProgramError(
            f"{where}: argument {argument[1]} of a kernel; pass a buffer, or a NumPy scalar"
            " of the type that the kernel declares, such as numpy.int32(n)"
        )
    if code in PROGRAM_FAULTS:
        return ProgramError(f"{where}; the program does not fit this device")
    if code in OUT_OF_MEMORY:
        text = f"{where}; the device is out of memory, try a smaller task"
        return DeviceMemoryError(text)
    if code == OUT_OF_RESOURCES:
        return DeviceError(f"{where}; the device is out of resources or lost")
    return DeviceError(f"{where}; the device is lost or its driver failed")


def _code(error: pyopencl.Error) -> int:
    # pyopencl raises a few errors of its own without a code.
    try:
        return int(error.code)
    except (AttributeError, IndexError, TypeError):
        return 0


def _name(code: int, error: pyopencl.Error) -> str:
    import pyopencl

    if not code:
        return " ".join(str(error).split())
    names: Any = pyopencl.status_code
    return f"{names.to_string(code, 'unknown OpenCL error %d')} ({code})"
