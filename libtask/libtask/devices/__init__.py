"""Devices: the interface on which implementations compute.

One module per driver: `cpu`, `opencl`, `null`; and `arrays`, for `device.xp`. An implementation receives an open device
and uses these few methods; the runtime decides everything else (when to synchronise,
when to stop).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray


class Device(Protocol):
    """An open device, as implementations use it."""

    @property
    def spec(self) -> DeviceSpec:
        """Name, kind and driver of the device, and the CPU threads it may use."""
        ...

    @property
    def pipelined(self) -> bool:
        """Whether the call that starts a strip only enqueues it.

        The runtime then waits for a strip while the next one runs.
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
        """Number of writes to host arrays; None: strips change host arrays directly."""
        ...

    def resident(
        self, *arrays: NDArray[Any]
    ) -> AbstractContextManager[tuple[Any, ...]]:
        """Hold `arrays` on the device: copy in on entering, copy out on leaving.

        A preemption also copies out; an error (a lost device) does not.
        """
        ...

    def inputs(self, *arrays: NDArray[Any]) -> AbstractContextManager[tuple[Any, ...]]:
        """Hold read-only `arrays` on the device: copy in on entering, never out."""
        ...

    def scratch(self, *arrays: NDArray[Any]) -> AbstractContextManager[tuple[Any, ...]]:
        """Hold memory shaped like `arrays` on the device, without any copy."""
        ...

    def refresh(self) -> None:
        """Copy resident data to its host arrays for a snapshot; it stays resident.

        Waits for the strips enqueued so far.
        """
        ...

    def mark(self) -> Callable[[], None]:
        """Return a function that waits for all work enqueued so far."""
        ...

    def close(self) -> None:
        """Close the device and free its memory."""
        ...


def open_device(spec: DeviceSpec, libraries: Sequence[str] | None = None) -> Device:
    """Open the device that `spec` describes.

    Args:
        spec: the device.
        libraries: array libraries, for an implementation that computes with `device.xp`;
            None: for any other.

    Raises:
        InputError: the environment has none of the libraries.
        DeviceError: the driver or the device is absent.

    """
    if libraries is not None:
        from libtask.devices.arrays import ArrayDevice

        return ArrayDevice(spec, libraries)
    if spec.driver == "opencl":
        from libtask.devices.opencl import OpenCLDevice

        return OpenCLDevice(spec)
    if spec.driver == "null":
        from libtask.devices.null import NullDevice

        return NullDevice(spec)
    from libtask.devices.cpu import CpuDevice

    return CpuDevice(spec)
