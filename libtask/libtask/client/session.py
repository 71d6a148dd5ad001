"""A client's session with hetd: it outlives the connections that carry it.

A request that gets no answer is asked again over a new connection; hetd knows a
change that it has made by its key, and refuses one that came when nobody waited for
it any more. When the daemon goes away (a restart, an update), the
session waits for its return and subscribes again to what it was waiting for.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from libtask.client.connection import Connection, ConnectionLostError
from libtask.endpoint import probe
from libtask.errors import BusyError, DaemonUnreachableError, HetError
from libtask.messages import Change

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.client.connection import Then
    from libtask.messages import Registered, Request, TaskChanged

log = logging.getLogger("libtask")

SILENCES = 2
"""Times that a request may remain without an answer."""
LOSSES = 5
"""Connections that may break under one request."""
FIRST_PAUSE = 0.05
QUIET_S = 2.0
"""A daemon that is started again is back by then; after it, a user is told."""
LONGEST_PAUSE = 1.0
"""Seconds between two looks for a daemon that went away."""


class SessionListener(Protocol):
    """Who hears of what the daemon says unasked. None of the methods may wait."""

    def pushed(self, change: TaskChanged) -> None:
        """Take a pushed change; in the connection's thread."""

    def renewed(self, connection: Connection) -> None:
        """Subscribe again: over another connection, or because changes were missed."""

    def gone(self, error: HetError) -> None:
        """Give up waiting: the daemon did not come back."""


class Session:
    """Requests and pushes, over one connection after the other.

    Args:
        path: the daemon's socket.
        audience: who hears the pushes.
        timeout: seconds to wait for one reply.
        patience: seconds to wait for a daemon that went away.

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
        """What the daemon answered to the last hello."""
        return self.connection().welcome

    def request(self, message: Request, then: Then | None = None) -> Any:
        """Ask, and wait for the reply.

        Args:
            message: the request.
            then: as for `Connection.ask`.

        Raises:
            HetError: hetd's refusal, as the matching class.
            DaemonUnreachableError: no answer, however often it was asked.
            BusyError: put off again and again, in favour of other users.

        """
        message = _keyed(message)
        pause = FIRST_PAUSE
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return self._asked(message, then)
            except BusyError:
                if time.monotonic() + pause > deadline or self._closed.wait(pause):
                    raise
                pause = min(2 * pause, LONGEST_PAUSE)

    def _asked(self, message: Request, then: Then | None) -> Any:
        """Ask, over one connection after the other."""
        silences = losses = 0
        while silences < SILENCES and losses < LOSSES:
            connection = self.connection()
            if connection.is_current_thread():
                raise RuntimeError(
                    "a callback of a task cannot ask the daemon and wait"
                )
            try:
                asked = connection.ask(self._dated(message), then)
                return asked.result(self._timeout)
            except ConnectionLostError:
                losses += 1
                self._forget(connection)
            except TimeoutError:
                silences += 1
                self._forget(connection)
                connection.close()
        raise DaemonUnreachableError(self._complaint(losses))

    def _complaint(self, losses: int) -> str:
        if losses >= LOSSES:
            return f"{self._path}: the daemon went away {losses} times when asked"
        return f"{self._path}: the daemon gives no answer in {self._timeout:g} s"

    def _dated(self, message: Request) -> Request:
        """Say until when the answer is waited for."""
        if not isinstance(message, Change):
            return message
        expires = time.monotonic() + self._timeout
        return msgspec.structs.replace(message, expires=expires)

    def farewell(self, message: Request) -> None:
        """Ask for something after which the daemon goes away, maybe without a word.

        One that has gone already needs not be asked.

        Raises:
            HetError: hetd's refusal, as the matching class.

        """
        if not self._is_there():
            return
        with contextlib.suppress(ConnectionLostError):
            asked = self.connection().ask(self._dated(_keyed(message)))
            asked.result(self._timeout)

    def _is_there(self) -> bool:
        if self._connection is not None:  # without the lock: another may seek a daemon
            return True
        try:
            probe(self._path)
        except DaemonUnreachableError:
            return False
        return True

    def connection(self) -> Connection:
        """Return the open connection; where it was lost, wait for a new one.

        Raises:
            DaemonUnreachableError: the daemon did not come back.

        """
        with self._lock:
            if self._connection is None:
                self._connection = self._renew()
            return self._connection

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def _open(self) -> Connection:
        audience = self._audience
        return Connection(self._path, audience.pushed, self._lost, audience.renewed)

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            if self._connection is connection:
                self._connection = None

    def _lost(self, connection: Connection) -> None:
        """Take note, in the connection's thread, which must not wait."""
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
    """Give a change the key by which hetd knows it when it is asked for again."""
    if not isinstance(message, Change) or message.key:
        return message
    return msgspec.structs.replace(message, key=uuid.uuid4().hex)
