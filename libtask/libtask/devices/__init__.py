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

    from libtask.devices.residents import Residents, Written


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

    @property
    def bytes_in(self) -> int:
        """Bytes copied to the device since it was opened."""
        ...

    @property
    def residents(self) -> Residents:
        """Copies that stay on the device for the next task of the same user."""
        ...

    def begin(self, share: float) -> None:
        """Begin a task. Called by the runtime only.

        Args:
            share: of the device's memory, for what stays there for the next task.

        """
        ...

    def resident(
        self, *arrays: NDArray[Any]
    ) -> AbstractContextManager[tuple[Any, ...]]:
        """Hold `arrays` on the device: copy in on entering, copy out on leaving.

        A preemption also copies out; an error (a lost device) does not.
        """
        ...

    def results(
        self, *arrays: NDArray[Any], copy_in: bool = True
    ) -> AbstractContextManager[tuple[Any, ...]]:
        """Do as `resident`; when the block ends the arrays are final.

        They are read-only then, on every kind of device, and what a device holds stays
        there for the next task. A preemption or an error leaves them as they are.

        Args:
            arrays: results.
            copy_in: False: the block computes them whole, and is never continued elsewhere.

        """
        ...

    def inputs(self, *arrays: NDArray[Any]) -> AbstractContextManager[tuple[Any, ...]]:
        """Hold read-only `arrays` on the device: copy in on entering, never out.

        An array that equals a part of another task's result may be there already.
        """
        ...

    def scratch(self, *arrays: NDArray[Any]) -> AbstractContextManager[tuple[Any, ...]]:
        """Hold memory shaped like `arrays` on the device, without any copy."""
        ...

    def thaw(self) -> None:
        """Make results writable again: only the runtime sees them from now on."""
        ...

    def withdraw(self) -> None:
        """Undo what `results` did: they are not final, or are not written to a file."""
        ...

    def keep_results(self, written: Written) -> None:
        """Keep those results on the device that were written to files."""
        ...

    def give_way(self) -> None:
        """Free what stays for the next task: the device is given to another process."""
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
