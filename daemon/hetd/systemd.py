"""The interface to the service manager that started hetd.

The protocol of `sd_notify(3)` and `sd_listen_fds(3)`: a datagram of `KEY=value` lines
to the socket that `NOTIFY_SOCKET` names. Without a service manager nothing is sent.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

FIRST_DESCRIPTOR = 3
"""First passed descriptor (`SD_LISTEN_FDS_START`)."""
SIGNS_OF_LIFE = 4
"""Number of notifications within the watchdog time of the service manager."""


class Notifier:
    """Sends the daemon's state to the service manager, if there is one.

    Args:
        environment: read for `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`. They
            are taken out of it, as they are not meant for child processes.

    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.settimeout(0)
        self._interval = _watchdog_seconds(environment) / SIGNS_OF_LIFE
        self._next_sign = 0.0

    def ready(self, status: str) -> None:
        """Say that clients are served."""
        self._send("READY=1", f"STATUS={status}")

    def alive(self, status: Callable[[], str]) -> None:
        """Give a sign of life when one is due; called in every turn of the loop."""
        now = time.monotonic()
        if self._socket is None or now < self._next_sign:
            return
        self._next_sign = now + (self._interval or 1.0)
        self._send("WATCHDOG=1", f"STATUS={status()}")

    def starting(self, seconds: float) -> None:
        """Ask for this much time, from now on, until we are ready."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def reloading(self) -> None:
        """Say that the configuration is read again; `ready` ends it."""
        monotonic = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic}")

    def stopping(self, seconds: float, status: str) -> None:
        """Say that we stop, and ask for this much time from now on."""
        extend = f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"
        self._send("STOPPING=1", extend, f"STATUS={status}")

    def draining(self, seconds: float, status: str) -> None:
        """Give a sign of life while stopping, and ask for this much time from now on."""
        extend = f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"
        self._send(extend, "WATCHDOG=1", f"STATUS={status}")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _send(self, *lines: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            # A service manager that is gone or does not read must not hold us up; if it
            # misses a notification, it acts as configured.
            return


def _watchdog_seconds(environment: MutableMapping[str, str]) -> float:
    """Return how long we may be silent; 0: as long as we like."""
    microseconds = environment.pop("WATCHDOG_USEC", "")
    pid = environment.pop("WATCHDOG_PID", "")
    meant = not pid or pid == str(os.getpid())
    return int(microseconds) / 1e6 if meant and microseconds.isdigit() else 0.0


def passed_socket(environment: MutableMapping[str, str] = os.environ) -> int | None:
    """Return the listening socket that the service manager passed; None: it did not.

    Raises:
        InputError: it passed several, or something else.

    """
    count = environment.pop("LISTEN_FDS", "")
    meant = environment.pop("LISTEN_PID", "") == str(os.getpid())
    environment.pop("LISTEN_FDNAMES", None)
    if not meant or count in ("", "0"):
        return None
    if count != "1":
        raise InputError(f"the service manager passed {count} sockets; hetd serves one")
    os.set_inheritable(FIRST_DESCRIPTOR, False)  # noqa: FBT003  its form
    return _demand_listening(FIRST_DESCRIPTOR)


def _demand_listening(descriptor: int) -> int:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as passed:
            fits = passed.family == socket.AF_UNIX and passed.type == socket.SOCK_STREAM
            listens = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise InputError(f"inherited socket: {error.strerror}") from error
    if not fits or not listens:
        raise InputError("inherited socket is not a listening UNIX stream socket")
    return descriptor


def path_of(descriptor: int) -> str:
    """Return the path at which a passed socket listens."""
    with socket.socket(fileno=os.dup(descriptor)) as passed:
        return str(passed.getsockname())
