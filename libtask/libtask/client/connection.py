"""One connection to hetd: a socket, and the thread that receives from it.

Any thread may call `ask`, and sends its request itself, which saves a change of threads; the
connection's thread resolves the futures with the replies, and passes on pushed messages. A
lock guards the socket: ZeroMQ allows one thread at a time to use it. A lost connection is not
reopened; `libtask.client.session` opens a new one.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from libtask.endpoint import probe
from libtask.errors import BusyError, DaemonUnreachableError, HetError, InputError
from libtask.messages import (
    PROTOCOL,
    Error,
    Lagged,
    Register,
    Registered,
    Request,
    ResourceChanged,
    TaskChanged,
    decode_from_daemon,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Then = Callable[[Any], None]

log = logging.getLogger("libtask")

LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)
"""Each means a lost connection, also of a daemon that dies during the handshake."""
NEVER_MS = 1_000_000_000
BUSY_SECONDS = 0.1
"""Seconds between two attempts after a rate-limited request: the period of the limit."""
HELLO_SECONDS = 30.0
"""Timeout for the reply to the registration. A daemon that this connection starts (socket
activation) looks for its devices first."""
QUIET_SECONDS = 5.0
"""Seconds for the same, after which the user sees a message."""


class ConnectionLostError(DaemonUnreachableError):
    """The open connection to the daemon was lost."""


class Connection:
    """An open, registered connection.

    Args:
        path: the daemon's socket.
        on_push: called in the connection's thread with each pushed change.
        on_lost: called once in the connection's thread when the connection is lost.
        on_lag: called in the connection's thread when pushed changes were dropped,
            because they were not read in time: it must list the tasks again.
        hello_s: seconds to wait for the reply to the registration.

    Raises:
        DaemonUnreachableError: no daemon answers; gives the reason.
        HetError: the daemon speaks another protocol.

    """

    def __init__(
        self,
        path: Path,
        on_push: Callable[[Any], None],
        on_lost: Callable[[Connection], None],
        on_lag: Callable[[Connection], None] | None = None,
        *,
        hello_s: float = HELLO_SECONDS,
    ) -> None:
        probe(path)
        self._path = path
        self._on_push = on_push
        self._on_lost = on_lost
        self._on_lag = on_lag
        self._numbers = itertools.count(1)
        self._pending: dict[int, tuple[Future[Any], Then | None]] = {}
        self._lock = threading.Lock()
        """Held by who uses the socket, and never while anything waits."""
        self._process = os.getpid()
        """The thread and the use of the socket are this process's, not those of its children."""
        self._closing = False
        self._dead = False
        self._greeted = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._welcomed: Future[Registered] = Future()
        self._context = zmq.Context()
        self._dealer = self._open(self._context)
        self._thread = threading.Thread(
            target=self._run, name="hetd-client", daemon=True
        )
        self._monitor = self._dealer.get_monitor_socket(LOST)
        self._dealer.connect(f"ipc://{path}")
        self._thread.start()
        self.welcome = self._greet(hello_s)
        self._greeted = True

    def ask(self, message: Request, then: Then | None = None) -> Future[Any]:
        """Send a request; return the future of its reply or error.

        Args:
            message: the request; its number is set here.
            then: called in the connection's thread with the reply, before the caller
                wakes up and before later messages of hetd are handled.

        Raises:
            InputError: the message is too large.
            ConnectionLostError: the connection is lost.

        """
        number = next(self._numbers)
        frame = encode(msgspec.structs.replace(message, request=number))
        reply: Future[Any] = Future()
        self._pending[number] = (reply, then)
        self._send(frame)
        return reply

    def ask_until_served(self, message: Request) -> Future[Any]:
        """Send a request, and repeat it while the rate limit refuses it.

        Does not wait; the future gets the reply or any other error.
        """
        served: Future[Any] = Future()

        def send() -> None:
            try:
                self.ask(message).add_done_callback(heard)
            except HetError as error:
                served.set_exception(error)

        def heard(asked: Future[Any]) -> None:
            error = asked.exception()
            if isinstance(error, BusyError):
                again = threading.Timer(BUSY_SECONDS, send)
                again.daemon = True
                again.start()
            elif error is not None:
                served.set_exception(error)
            else:
                served.set_result(asked.result())

        send()
        return served

    def is_current_thread(self) -> bool:
        """Return whether the caller is in the connection's thread, which must not wait."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Close the socket and end the thread; pending requests fail.

        In a child of the process that opened it, there is nothing to end.
        """
        if os.getpid() != self._process:
            return
        self._closing = True
        with self._lock:
            if not self._dead:
                os.eventfd_write(self._wake, 1)
        if not self.is_current_thread():
            self._thread.join()

    def _greet(self, seconds: float) -> Registered:
        self._send(encode(Register(role="client", pid=os.getpid())))
        try:
            welcome = self._awaited_welcome(seconds)
        except TimeoutError:
            self.close()
            raise DaemonUnreachableError(
                f"{self._path}: something listens but gives no answer in {seconds:g} s;"
                " it hangs, or is still starting"
            ) from None
        except HetError:
            self.close()
            raise
        self._check_protocol(welcome)
        return welcome

    def _awaited_welcome(self, seconds: float) -> Registered:
        quiet = min(QUIET_SECONDS, seconds)
        with contextlib.suppress(TimeoutError):
            return self._welcomed.result(quiet)
        log.warning("%s: no answer yet; waiting %g s for it", self._path, seconds)
        return self._welcomed.result(seconds - quiet)

    def _check_protocol(self, welcome: Registered) -> None:
        if welcome.protocol != PROTOCOL:
            self.close()
            raise HetError(
                f"{self._path}: hetd {welcome.version} speaks protocol {welcome.protocol},"
                f" this program speaks {PROTOCOL}; install the same version of both"
            )

    def _open(self, context: zmq.Context[Any]) -> zmq.Socket[bytes]:
        dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.SNDHWM, 0)  # a send must never block
        dealer.setsockopt(zmq.RCVHWM, 0)
        # A new daemon needs a new registration. Without automatic reconnection, sends
        # to a lost daemon would block forever, and sometimes the context's end.
        dealer.setsockopt(zmq.RECONNECT_IVL, NEVER_MS)
        return dealer

    def _send(self, frame: bytes) -> None:
        if os.getpid() != self._process:
            raise self._lost()
        with self._lock:
            if self._dead:
                raise self._lost()
            try:
                self._dealer.send(frame, zmq.NOBLOCK)
            except zmq.Again:  # there is no connection to queue it for
                raise self._lost() from None
            if int(self._dealer.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                # the send took note of a message, so its descriptor is readable no more
                os.eventfd_write(self._wake, 1)

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(f"{self._path}: the daemon went away")

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        monitor = self._monitor
        try:
            self._serve(monitor)
        finally:
            with self._lock:
                self._dead = True
                self._dealer.disable_monitor()
                self._dealer.close(linger=0)
                os.close(self._wake)
            monitor.close(linger=0)
            self._context.term()
            self._bury()

    def _serve(self, monitor: zmq.Socket[bytes]) -> None:
        """Receive until the connection is lost or closed.

        The wait is for the descriptor of the socket, as other threads may send meanwhile. It
        is readable once for any number of messages.
        """
        poller = zmq.Poller()
        for readable in (int(self._dealer.getsockopt(zmq.FD)), monitor, self._wake):
            poller.register(readable, zmq.POLLIN)
        while not self._closing:
            ready = dict(poller.poll())
            if self._wake in ready:
                os.eventfd_read(self._wake)
            self._receive()
            if monitor in ready:
                return

    def _receive(self) -> None:
        """Handle all arrived messages; a busy daemon may combine several.

        Callers wake up once all that came together with their replies is handled.
        """
        while True:
            with self._lock:
                try:
                    frames = self._dealer.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    return
            replies: list[tuple[Future[Any], Request]] = []
            try:
                for frame in frames:
                    self._take(frame, replies)
            finally:
                for waiting, reply in replies:
                    _settle(waiting, reply)

    def _take(self, frame: bytes, replies: list[tuple[Future[Any], Request]]) -> None:
        try:
            message = decode_from_daemon(frame)
        except InputError:
            return  # an unknown message of a newer daemon
        if isinstance(message, TaskChanged | ResourceChanged):
            self._on_push(message)
        elif isinstance(message, Lagged):
            if self._on_lag is not None:
                self._on_lag(self)
        elif isinstance(message, Registered):
            self._welcomed.set_result(message)
        elif isinstance(message, Request):
            self._resolve(message, replies)

    def _resolve(
        self, message: Request, replies: list[tuple[Future[Any], Request]]
    ) -> None:
        # number 0: the registration was refused
        waiting, then = self._pending.pop(message.request, (self._welcomed, None))
        if waiting.done():
            return
        if then is not None and not isinstance(message, Error):
            then(message)  # before the caller wakes up
        replies.append((waiting, message))

    def _bury(self) -> None:
        """Fail what waits for a reply."""
        asked = [waiting for waiting, _ in self._pending.values()]
        for waiting in [*asked, self._welcomed]:
            if not waiting.done():
                waiting.set_exception(self._lost())
        if self._greeted and not self._closing:
            self._on_lost(self)


def _settle(waiting: Future[Any], reply: Request) -> None:
    """Wake up who waits for a reply."""
    if isinstance(reply, Error):
        waiting.set_exception(error_of(reply))
    else:
        waiting.set_result(reply)


def error_of(message: Error) -> HetError:
    """Return the exception that matches an error from hetd."""
    return _BY_CODE.get(message.code, HetError)(message.text)


def _all_errors(base: type[HetError]) -> list[type[HetError]]:
    return [base] + [
        found for child in base.__subclasses__() for found in _all_errors(child)
    ]


_BY_CODE = {
    # skip subclasses that inherit the code of their base
    kind.code: kind
    for kind in _all_errors(HetError)
    if "code" in vars(kind)
}
