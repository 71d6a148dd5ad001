"""Standard input of a command: a file, or what `hetctl run` was given.

`hetctl run` offers its own standard input on a socket in a folder of its user. The worker
that starts the program receives the descriptor itself, so the program reads the same pipe or
file as if it had been started in the terminal.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from typing import TYPE_CHECKING

from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWER_S = 10.0
"""Seconds for `hetctl run` to pass its standard input on."""


class OfferedInput:
    """Passes a descriptor to every process that connects to a socket.

    A file is read from the present position by each receiver; a pipe goes on where the
    one before stopped.

    Args:
        descriptor: to be passed.
        folder: of the user; created, and closed to others.

    Attributes:
        path: of the socket.

    """

    def __init__(self, descriptor: int, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / str(os.getpid())
        self.path.unlink(missing_ok=True)
        self._descriptor = descriptor
        self._start = _position(descriptor)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _address(self.path) as address:
            self._socket.bind(address)
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends `accept`
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection, contextlib.suppress(OSError):
                if self._start is not None:
                    os.lseek(self._descriptor, self._start, os.SEEK_SET)
                socket.send_fds(connection, [b"0"], [self._descriptor])


def can_be_offered(descriptor: int) -> bool:
    """Return whether a descriptor is a pipe, socket or file: neither closed nor a terminal."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def open_input(path: Path) -> int:
    """Open a file for reading, or receive the descriptor that is offered on a socket.

    Returns:
        a new descriptor.

    Raises:
        InputError: it does not exist, may not be read, or is offered no longer.

    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISSOCK(mode):
            return _received(path)
        # a named pipe without a writer must not block the worker
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"input file {path}: {error.strerror or error}") from error
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise InputError(f"input file {path}: is a directory")
    os.set_blocking(descriptor, True)
    return descriptor


def _received(path: Path) -> int:
    """Receive a descriptor.

    Raises:
        InputError: nobody offers it.

    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        try:
            with _address(path) as address:
                connection.connect(address)
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        except OSError:
            descriptors = []
    if not descriptors:
        raise InputError(
            "the hetctl run that passes standard input on has ended; run it again"
        )
    os.set_inheritable(descriptors[0], False)  # noqa: FBT003  positional only
    return descriptors[0]


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Name a socket by its folder's descriptor, as the kernel limits the names' length."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _position(descriptor: int) -> int | None:
    """Return the position in a file; None: it is not a regular file."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    return None
