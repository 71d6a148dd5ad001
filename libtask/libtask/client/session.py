"""A client's session with hetd, which outlives its connections.

A request without a reply is repeated over a new connection; hetd recognises a repeated
change by its key, and refuses one that has expired. When the daemon is lost (a restart,
an update), the session waits for its return and renews its subscriptions.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from libtask.client.connection import (
    HELLO_SECONDS,
    Connection,
    ConnectionLostError,
)
from libtask.endpoint import probe
from libtask.errors import BusyError, DaemonUnreachableError, HetError
from libtask.messages import Change

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.client.connection import Then
    from libtask.messages import Registered, Request, TaskChanged

log = logging.getLogger("libtask")

SILENCES = 2
"""Maximum number of attempts without a reply for one request."""
LOSSES = 5
"""Maximum number of lost connections for one request."""
FIRST_PAUSE = 0.05
QUIET_S = 2.0
"""Seconds for the daemon's restart, after which the user sees a message."""
LONGEST_PAUSE = 1.0
"""Seconds between two attempts to reach a lost daemon."""


class SessionListener(Protocol):
    """Receiver of the daemon's pushes. None of the methods may wait."""

    def pushed(self, change: TaskChanged) -> None:
        """Handle a pushed change, in the connection's thread."""

    def renewed(self, connection: Connection) -> None:
        """Renew the subscriptions after a new connection or missed changes."""

    def gone(self, error: HetError) -> None:
        """Stop waiting, because the daemon did not return."""


class Session:
    """Requests and pushes over successive connections.

    Args:
        path: the daemon's socket.
        audience: receiver of the pushes.
        timeout: seconds to wait for one reply.
        patience: seconds to wait for a lost daemon.

    """

    def __init__(
        self, path: Path, audience: SessionListener, *, timeout: float, patience: float
    ) -> None:
        self._path = path
        self._audience = audience
        self._timeout = timeout
        self._patience = patience
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._connection: Connection | None = self._open()

    @property
    def welcome(self) -> Registered:
        """The daemon's last reply to a registration."""
        return self.connection().welcome

    def request(
        self,
        message: Request,
        then: Then | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Send a request and wait for the reply.

        Args:
            message: the request.
            then: as for `Connection.ask`.
            timeout: seconds to wait for one reply; None: those of the session.

        Raises:
            HetError: hetd's refusal, as the matching class.
            DaemonUnreachableError: all attempts remained without a reply.
            BusyError: all attempts were refused because of the rate limit.

        """
        message = _keyed(message)
        pause = FIRST_PAUSE
        seconds = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return self._asked(message, then, seconds)
            except BusyError:
                if time.monotonic() + pause > deadline or self._closed.wait(pause):
                    raise
                pause = min(2 * pause, LONGEST_PAUSE)

    def _asked(self, message: Request, then: Then | None, seconds: float) -> Any:
        """Send a request over successive connections."""
        silences = losses = 0
        while silences < SILENCES and losses < LOSSES:
            connection = self.connection()
            if connection.is_current_thread():
                raise RuntimeError(
                    "a callback of a task cannot ask the daemon and wait"
                )
            try:
                asked = connection.ask(_dated(message, seconds), then)
                return asked.result(seconds)
            except ConnectionLostError:
                losses += 1
                self._forget(connection)
            except TimeoutError:
                silences += 1
                self._forget(connection)
                connection.close()
        raise DaemonUnreachableError(self._complaint(losses, seconds))

    def _complaint(self, losses: int, seconds: float) -> str:
        if losses >= LOSSES:
            return f"{self._path}: the daemon went away {losses} times when asked"
        return f"{self._path}: the daemon gives no answer in {seconds:g} s"

    def farewell(self, message: Request) -> None:
        """Send a request after which the daemon exits, possibly without a reply.

        A daemon that has already exited needs no request.

        Raises:
            HetError: hetd's refusal, as the matching class.

        """
        if not self._is_there():
            return
        with contextlib.suppress(ConnectionLostError):
            asked = self.connection().ask(_dated(_keyed(message), self._timeout))
            asked.result(self._timeout)

    def _is_there(self) -> bool:
        if (
            self._connection is not None
        ):  # without the lock: another thread may be reconnecting
            return True
        try:
            probe(self._path)
        except DaemonUnreachableError:
            return False
        return True

    def connection(self) -> Connection:
        """Return the open connection, or wait for a new one if it was lost.

        Raises:
            DaemonUnreachableError: the daemon did not return.

        """
        with self._lock:
            if self._connection is None:
                self._connection = self._renew()
            return self._connection

    def reconnected(self, timeout: float | None = None) -> Connection:
        """Return the open connection, or a new one if the daemon answers now.

        Args:
            timeout: seconds to wait while another thread waits for the daemon.

        Raises:
            DaemonUnreachableError: the daemon is not there, or the client was closed.

        """
        seconds = min(max(0.0, timeout), TIMEOUT_MAX) if timeout is not None else -1
        if not self._lock.acquire(timeout=seconds):
            raise DaemonUnreachableError(f"{self._path}: the daemon is not back yet")
        try:
            if self._closed.is_set():
                raise DaemonUnreachableError("the client was closed")
            if self._connection is None:
                self._connection = self._open()
                self._audience.renewed(self._connection)
            return self._connection
        finally:
            self._lock.release()

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def _open(self) -> Connection:
        audience = self._audience
        return Connection(
            self._path,
            audience.pushed,
            self._lost,
            audience.renewed,
            hello_s=min(max(self._timeout, self._patience), HELLO_SECONDS),
        )

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            if self._connection is connection:
                self._connection = None

    def _lost(self, connection: Connection) -> None:
        """Handle the loss in the connection's thread, which must not wait."""
        restore = threading.Thread(
            target=self._restore, args=(connection,), daemon=True
        )
        restore.start()

    def _restore(self, connection: Connection) -> None:
        self._forget(connection)
        if self._closed.is_set():
            return
        try:
            self.connection()
        except HetError as error:
            self._audience.gone(error)

    def _renew(self) -> Connection:
        began = time.monotonic()
        pause, told = FIRST_PAUSE, False
        while True:
            try:
                connection = self._open()
            except DaemonUnreachableError as error:
                waited = time.monotonic() - began
                if waited + pause > self._patience or self._closed.wait(pause):
                    raise
                pause = min(2 * pause, LONGEST_PAUSE)
                if waited > QUIET_S and not told:
                    told = True
                    log.warning("%s; waiting %g s for it", error, self._patience)
            else:
                self._audience.renewed(connection)
                return connection


def _keyed(message: Request) -> Request:
    """Give a change an idempotency key."""
    if not isinstance(message, Change) or message.key:
        return message
    return msgspec.structs.replace(message, key=uuid.uuid4().hex)


def _dated(message: Request, seconds: float) -> Request:
    """Set the time until which the caller waits for the reply."""
    if not isinstance(message, Change):
        return message
    return msgspec.structs.replace(message, expires=time.monotonic() + seconds)
