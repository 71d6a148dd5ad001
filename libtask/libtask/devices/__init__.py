"""Devices: what an implementation computes on.

One file a driver: `cpu`, `opencl`, `null`. An implementation is handed an open
device and uses these few methods; everything else (when to synchronise, when to
stop) is the runtime's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray


class Device(Protocol):
    """An open device, as every implementation may use it."""

    @property
    def spec(self) -> DeviceSpec:
        """Name, kind and driver of the device, and the CPU threads it may use."""
        ...

    @property
    def pipelined(self) -> bool:
        """Whether a strip is only enqueued by the call that starts it.

        The runtime then waits for a strip while the next one is under way.
        """
        ...

    @property
    def transfer_in(self) -> float:
        """Seconds spent copying to the device since it was opened."""
        ...

    @property
    def transfer_out(self) -> float:
        """Seconds spent copying back since it was opened."""
        ...

    @property
    def copies_out(self) -> int | None:
        """How often it began to write host arrays; None: they are what strips change."""
        ...

    def resident(
        self, *arrays: NDArray[Any]
    ) -> AbstractContextManager[tuple[Any, ...]]:
        """Hold `arrays` on the device: in on entering, out again on leaving.

        Leaving at a preemption copies out too; an error (a lost device) does not.
        """
        ...

    def inputs(self, *arrays: NDArray[Any]) -> AbstractContextManager[tuple[Any, ...]]:
        """Hold read-only `arrays` on the device: in on entering, never out."""
        ...

    def scratch(self, *arrays: NDArray[Any]) -> AbstractContextManager[tuple[Any, ...]]:
        """Hold memory shaped like `arrays` on the device, without any copy."""
        ...

    def refresh(self) -> None:
        """Copy what is resident out to its arrays, in the middle; it stays resident.

        For a snapshot. Strips enqueued so far are done before.
        """
        ...

    def mark(self) -> Callable[[], None]:
        """Return a wait for all work enqueued so far."""
        ...

    def close(self) -> None:
        """Give the device back; its memory is free afterwards."""
        ...


def open_device(spec: DeviceSpec) -> Device:
    """Open the device that `spec` describes.

    Raises:
        DeviceError: the driver or the device is not there.

    """
    if spec.driver == "opencl":
        from libtask.devices.opencl import OpenCLDevice

        return OpenCLDevice(spec)
    if spec.driver == "null":
        from libtask.devices.null import NullDevice

        return NullDevice(spec)
    from libtask.devices.cpu import CpuDevice

    return CpuDevice(spec)
