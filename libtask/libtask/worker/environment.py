"""The environment of a worker: applications, devices, working folder and memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.apps import is_value, resolve
from libtask.devices import open_device
from libtask.errors import DeviceError, InputError, ProgramError

if TYPE_CHECKING:
    from libtask.devices import Device
    from libtask.messages import DeviceSpec
    from libtask.task import Task


class AppCache:
    """Cache of the applications that a worker has run.

    For an application in a user's file, `resolve` follows links and checks every folder
    of the path. The cache only checks whether the file has changed, which matters for
    tasks of microseconds.

    Args:
        socket: hetd's socket, which determines where classes by value are.

    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._cached: dict[str, tuple[int, type[Task]]] = {}

    def find(self, app: str) -> type[Task]:
        """Return an application's class, imported again if its file has changed.

        Raises:
            InputError: it does not exist or fails to import.

        """
        changed = _changed(app)
        known = self._cached.get(app)
        if known is None or known[0] != changed or changed < 0:
            known = self._cached[app] = (changed, self._resolved(app))
        return known[1]

    def _resolved(self, app: str) -> type[Task]:
        if not is_value(app):
            return resolve(app)
        from libtask.classes import class_by_value  # it imports cloudpickle

        return class_by_value(app, self._socket)


class DeviceCache:
    """Cache of open devices, which keep their contexts and built programs."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, str, int], Device] = {}

    def open(
        self, spec: DeviceSpec, libraries: tuple[str, ...] | None = None
    ) -> Device:
        """Return the device, opened at most once.

        Of several specs of the same hardware (the CPU with different threads, a GPU
        with different array libraries) only one is open, because their limits apply to
        the whole process.

        Args:
            spec: the device.
            libraries: as for `open_device`.

        """
        key = _hardware(spec)
        device = self._open.get(key)
        used = getattr(device, "names", None)
        if device is not None and (device.spec, used) != (spec, libraries):
            self._close(key)
            device = None
        if device is None:
            device = self._open[key] = open_device(spec, libraries)
        return device

    def give_way(self, resource: str) -> None:
        """Free what stays on a resource for the next task: another process is given it."""
        for device in self._open.values():
            if device.spec.name == resource:
                device.give_way()

    def drop_residents(self, *, emulated: bool = False) -> None:
        """Free what stays for the next task on any device.

        Args:
            emulated: only on emulated devices, where it takes up this process's memory.

        """
        for device in self._open.values():
            if device.spec.emulated or not emulated:
                device.give_way()

    def note_failure(self, spec: DeviceSpec, error: BaseException) -> None:
        """Close a failed device, so that the next task opens it again."""
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
    """The working directory and the umask of a worker; what a task changes is for it alone."""

    def __init__(self) -> None:
        self._umask = os.umask(0o077)
        os.umask(self._umask)

    def enter(self, path: str) -> None:
        """Change to the folder that a task's file names are relative to; empty: any folder.

        Raises:
            InputError: the folder cannot be entered.

        """
        os.umask(self._umask)
        if not path or path == _working_directory():
            return
        try:
            os.chdir(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        os.environ["PWD"] = path


def _working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  for speed
    except FileNotFoundError:
        return ""  # it was removed


def _changed(app: str) -> int:
    if is_value(app):
        return 0
    path, _, class_name = app.rpartition(":")
    try:
        # Not `Path.stat`: constructing the path takes longer than the call.
        return os.stat(path).st_mtime_ns if class_name else 0  # noqa: PTH116  for speed
    except OSError:
        return -1  # `resolve` reports the error


def _hardware(spec: DeviceSpec) -> tuple[str, str, str, int]:
    return spec.driver, spec.platform, spec.device, spec.index


def memory_in_use() -> int:
    """Return the resident memory of this process in bytes."""
    with Path("/proc/self/statm").open(encoding="ascii") as statistics:
        pages = int(statistics.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
