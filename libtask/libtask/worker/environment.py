"""What a worker has at hand: devices, applications, its folder, the memory it uses."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.apps import resolve
from libtask.devices import open_device
from libtask.errors import DeviceError, InputError, ProgramError

if TYPE_CHECKING:
    from libtask.devices import Device
    from libtask.messages import DeviceSpec
    from libtask.task import Task


class AppCache:
    """The applications that a worker has run.

    For an application in a user's file, `resolve` follows links and looks at every
    folder of the path. Here one look at the file tells whether it has changed, which
    counts where tasks take microseconds.
    """

    def __init__(self) -> None:
        self._cached: dict[str, tuple[int, type[Task]]] = {}

    def find(self, app: str) -> type[Task]:
        """Return an application's class, imported anew where its file has changed.

        Raises:
            InputError: there is none, or it fails to import.

        """
        changed = _changed(app)
        known = self._cached.get(app)
        if known is None or known[0] != changed or changed < 0:
            known = self._cached[app] = (changed, resolve(app))
        return known[1]


class DeviceCache:
    """Keeps devices open between tasks: contexts and built programs stay warm."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, str, int], Device] = {}

    def open(self, spec: DeviceSpec) -> Device:
        """Return the device, opened at most once.

        Of two with the same hardware and other terms (the CPU with other threads)
        only one is open, as their limits are the process's.
        """
        key = _hardware(spec)
        device = self._open.get(key)
        if device is not None and device.spec != spec:
            self._close(key)
            device = None
        if device is None:
            device = self._open[key] = open_device(spec)
        return device

    def note_failure(self, spec: DeviceSpec, error: BaseException) -> None:
        """Close a device that failed, so that the next task opens it anew."""
        if isinstance(error, DeviceError) and not isinstance(error, ProgramError):
            self._close(_hardware(spec))

    def close(self) -> None:
        for key in list(self._open):
            self._close(key)

    def _close(self, key: tuple[str, str, str, int]) -> None:
        device = self._open.pop(key, None)
        try:
            if device is not None:
                device.close()
        except DeviceError as error:
            sys.stderr.write(f"libtask: {error}\n")


class Folder:
    """The folder that a worker is in: where its task was submitted."""

    def __init__(self) -> None:
        self._path = str(Path.cwd())

    def enter(self, path: str) -> None:
        """Go there, as a task's file names are relative to it; empty: anywhere will do.

        Raises:
            InputError: it cannot be entered.

        """
        if not path or path == self._path:
            return
        try:
            os.chdir(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        self._path = path


def _changed(app: str) -> int:
    path, _, class_name = app.rpartition(":")
    try:
        # Not `Path.stat`: making the path takes longer than the call.
        return os.stat(path).st_mtime_ns if class_name else 0  # noqa: PTH116  as said
    except OSError:
        return -1  # `resolve` says what is wrong


def _hardware(spec: DeviceSpec) -> tuple[str, str, str, int]:
    return spec.driver, spec.platform, spec.device, spec.index


def memory_in_use() -> int:
    """Bytes of memory that this process has in use."""
    with Path("/proc/self/statm").open(encoding="ascii") as statistics:
        pages = int(statistics.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
