"""The link from a worker or a launcher to hetd, which outlives restarts of hetd.

Only the owner's main thread uses it (clients have `connection`, which serves many threads);
while that computes a task, threads serve it (`interval_thread`). When the connection breaks, a
new socket replaces the old one, so that the registration is always the first message to a new
hetd; libzmq retries until there is one. Commands of the old connection that were not
handled yet are dropped: the registration tells hetd which task its owner holds.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TypeGuard

import zmq

from libtask.errors import DaemonUnreachableError, InputError
from libtask.messages import (
    Abort,
    Aborted,
    Progress,
    Recall,
    Registered,
    Reports,
    Resumed,
    Run,
    SnapshotTaken,
    Yielded,
    decode_from_daemon,
    decode_to_daemon,
    encode,
)
from libtask.wording import one_line
from libtask.worker.interval_thread import IntervalThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from libtask.messages import Finished, FromDaemon, Message

WITH_CHECKPOINT = (Progress, Yielded, SnapshotTaken, Resumed)
"""Messages whose only values of the application are those of `checkpoint.extra`."""

LINGER_MS = 1000
"""Time for the last message to be sent when its sender exits."""
HEARTBEAT_MS = 10_000
"""Between two heartbeats: each wakes four threads, of the worker and of hetd."""
HEARTBEAT_TIMEOUT_MS = 15_000
"""Silence of hetd after which the connection counts as lost, though it is open."""
BATCH_S = 0.001
"""Maximum delay of a task's final report to be batched with the following ones."""
BATCHED_BYTES = 4096
"""Size of a final report up to which it may be batched: results are part of it."""
SHORT_S = BATCH_S / 2
"""Computing time of a task up to which its report may wait for that of the next one, which is
expected to take as long."""
READABLE = int(zmq.POLLIN)
"""As a flag of an enumeration it would be combined by Python code, which is slow."""
RECALL_S = 0.01
"""Seconds between two looks for recalls while a task computes."""
RENEWAL_PAUSE = 0.1
"""Minimum seconds between two connections, which limits retries after a refusal."""


class Link:
    """Messages from and to hetd.

    Args:
        path: hetd's socket.
        registration: called for each new connection; returns the first messages: the
            registration, then reports that the last connection may not have delivered.

    Attributes:
        welcome: hetd's reply to the registration; None: there is none yet.
        connections: number of connections so far; a change means another hetd.
        silent_since: `time.monotonic()` when hetd was lost, or first contacted.
        arrivals: number of messages that have arrived.

    """

    def __init__(self, path: Path, registration: Callable[[], list[Message]]) -> None:
        self.welcome: Registered | None = None
        self.connections = 0
        self.silent_since = time.monotonic()
        self._path = path
        self._registration = registration
        self._begin_empty()
        self._recall_thread = IntervalThread("hetd-recalls", RECALL_S, self.serve)
        self._poller = zmq.Poller()
        self._context = zmq.Context()
        self._connect()

    def _begin_empty(self) -> None:
        self.arrivals = 0
        self._lock = threading.RLock()
        """Held while the socket and the lists below are used."""
        self._closed = False
        self._batch_runs = False
        """Whether a task of a batch may be running: further ones, and recalls, may arrive."""
        self._inbox: deque[FromDaemon] = deque()
        self._deferred: list[FromDaemon] = []
        """Commands that arrived while a task ran, to be handled after it."""
        self._batched: list[Finished] = []
        """Final reports to be sent together with the next ones."""
        self._batch_deadline = 0.0
        """Deadline for sending the first of these, monotonic seconds."""

    def wake_on(self, descriptor: int) -> None:
        """Make `receive` return without a message when `descriptor` is readable."""
        self._poller.register(descriptor, zmq.POLLIN)

    def sleep_on(self, descriptor: int) -> None:
        """End the effect of `wake_on`."""
        self._poller.unregister(descriptor)

    def receive(self, timeout_ms: int) -> FromDaemon | None:
        """Return the next message; None: none arrived in time.

        Args:
            timeout_ms: milliseconds to wait, as no task runs; 0: do not wait.

        """
        with self._lock:
            if not self._inbox:
                self._flush()
                if not self._take() and timeout_ms:
                    self._batch_runs = False
                    self._poller.poll(timeout_ms)
                    self._take()
            self._take_recalls()
            return self._next()

    def serve(self) -> bool:
        """Answer recalls, and send what is batched and due, while a task computes.

        Another thread may call it. It renews no lost connection.

        Returns:
            Whether a recall may still come, or something is still batched.

        """
        with self._lock:
            if self._closed:
                return False
            if self._batched and self._now() >= self._batch_deadline:
                self._flush()
            while self._batch_runs and self._read_all():
                pass
            return bool(self._batched) or self._batch_runs

    def take_abort(self, task: int, epoch: int, runs: Callable[[], bool]) -> bool:
        """Take the command to abort a task that computes; return whether it has come.

        Another thread may call it. It renews a lost connection.

        Args:
            task: the task; `epoch`: of its run.
            runs: returns whether it still computes. While its end is reported, a registration
                could contain neither the task's run nor its end.

        """
        with self._lock:
            if self._closed or not runs():
                return False
            while self._take():
                pass
            for message in self._inbox:
                if message == Abort(task=task, epoch=epoch):
                    self._inbox.remove(message)
                    return True
        return False

    def wait_for(self, descriptor: int, seconds: float) -> None:
        """Wait for a message or for the descriptor to be readable, at most `seconds`."""
        with self._lock:
            self._flush()
            if self._inbox:
                return
            self._poller.register(descriptor, zmq.POLLIN)
            try:
                self._poller.poll(int(1000 * seconds))
            finally:
                self._poller.unregister(descriptor)

    def renew_if_lost(self) -> None:
        """Open another connection if this one is lost; messages that have come are kept."""
        with self._lock:
            self._take()

    def await_welcome(self, timeout: float) -> None:
        """Wait for hetd's reply to the registration; commands that arrive first are kept.

        Args:
            timeout: seconds.

        Raises:
            DaemonUnreachableError: hetd does not answer.

        """
        deadline = time.monotonic() + timeout
        early: list[FromDaemon] = []
        while self.welcome is None:
            left = deadline - time.monotonic()
            if left <= 0:
                text = f"{self._path}: the daemon gives no answer in {timeout:g} s"
                raise DaemonUnreachableError(text)
            message = self.receive(max(1, int(1000 * left)))
            early += [message] if message else []
        self.put_back(early)

    def put_back(self, messages: list[FromDaemon]) -> None:
        """Make these messages the next ones to be received."""
        with self._lock:
            self._inbox.extendleft(reversed(messages))

    def defer(self, message: FromDaemon) -> None:
        """Keep a command that arrived while a task ran; see `restore_deferred`."""
        with self._lock:
            self._deferred.append(message)

    def restore_deferred(self) -> None:
        """Make the deferred commands the next messages to be received."""
        with self._lock:
            aside, self._deferred = self._deferred, []
            self.put_back(aside)

    def send(self, message: Message) -> None:
        """Send a message, or keep it until a hetd is connected; never waits.

        Raises:
            InputError: the message is too large.

        """
        frame = encode(message)
        with self._lock:
            self._flush()
            self._put(frame)

    def send_batched(self, message: Finished) -> None:
        """Send a final report together with those of the following tasks of its batch.

        It is sent at once if no task of the batch follows, or the task was not short, or its
        result is large, and otherwise at the first call or poll of the socket after `BATCH_S`.

        Raises:
            InputError: a value of the result cannot be encoded, or hetd could not decode it.

        """
        frame = _validated(message) if message.result is not None else b""
        with self._lock:
            if len(frame) > BATCHED_BYTES:
                self._flush()
                self._put(frame)
                return
            if not self._batched:
                self._batch_deadline = self._now() + BATCH_S
            self._batched.append(message)
            long = message.seconds > SHORT_S
            due = self._now() >= self._batch_deadline
            if long or due or not self._follows():
                self._flush()

    def send_validated(self, message: Message) -> None:
        """Send a message with an application's values after validating them.

        Raises:
            InputError: a value cannot be encoded, or hetd could not decode it.

        """
        frame = _validated(message)
        with self._lock:
            self._flush()
            self._put(frame)

    @property
    def connected(self) -> bool:
        """Whether hetd has answered, and is there."""
        return self.welcome is not None and not self._is_lost()

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Close the link after sending the last messages; may be called twice.

        Args:
            linger_ms: milliseconds to wait for hetd to take them, if it is not there.

        """
        with self._lock:
            self._closed = True
            if not self._context.closed:
                self._flush()
                self._disconnect(linger_ms)
                self._context.term()

    def _now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def _next(self) -> FromDaemon | None:
        """Return the next message of the inbox; None: it is empty."""
        if not self._inbox:
            return None
        message = self._inbox.popleft()
        self._batch_runs |= _is_follower(message) or self._follows()
        if self._batched or self._batch_runs:
            self._recall_thread.wake()
        return message

    def _follows(self) -> bool:
        """Return whether the next message is a further task of the same batch."""
        if not self._inbox:
            return False
        return _is_follower(self._inbox[0])

    def _take_recalls(self) -> None:
        """Read all that has arrived, if a further task of the batch is next."""
        while self._follows() and self._take():
            pass

    def _flush(self) -> None:
        """Send the batched final reports."""
        if not self._batched:
            return
        later, self._batched = self._batched, []
        self._put(encode(later[0] if len(later) == 1 else Reports(later)))

    def _put(self, frame: bytes) -> None:
        self._socket.send(frame)

    def _take(self) -> bool:
        """Move arrived messages into the inbox; renew a lost connection."""
        if self._read_all():
            return True
        if self._is_lost():
            # hetd's last message may have arrived between the two checks
            if self._read_all():
                return True
            self._renew()
        return False

    def _read_all(self) -> bool:
        """Move one arrival into the inbox; a busy hetd may combine several messages."""
        frames = self._read()
        for frame in frames:
            self._accept(frame)
        return bool(frames)

    def _read(self) -> list[bytes]:
        if not _is_readable(self._socket):
            return []
        try:
            return self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return []

    def _accept(self, frame: bytes) -> None:
        self.arrivals += 1
        try:
            message = decode_from_daemon(frame)
        except InputError as error:
            sys.stderr.write(f"libtask: ignored a message of hetd: {error}\n")
            return
        if isinstance(message, Registered):
            self.welcome = message
        if isinstance(message, Recall | Abort) and self._drop_follower(message):
            self.send(Aborted(task=message.task, epoch=message.epoch))
        elif not isinstance(
            message, Recall
        ):  # else the task has started, and its own report follows
            self._inbox.append(message)

    def abort_followers(self) -> None:
        """Return the tasks of the batch behind a task that yielded."""
        with self._lock:
            kept = [each for each in self._inbox if not _is_follower(each)]
            dropped = [each for each in self._inbox if _is_follower(each)]
            self._inbox = deque(kept)
            for run in dropped:
                self.send(Aborted(task=run.task, epoch=run.epoch))

    def _drop_follower(self, order: Recall | Abort) -> bool:
        """Drop the command to run a task of a batch; return whether it had not started."""
        for orders in (self._inbox, self._deferred):
            for waiting in orders:
                if not _is_follower(waiting):
                    continue
                if (waiting.task, waiting.epoch) == (order.task, order.epoch):
                    orders.remove(waiting)
                    return True
        return False

    def _is_lost(self) -> bool:
        return _is_readable(self._monitor)

    def _renew(self) -> None:
        self._inbox.clear()
        self._deferred.clear()
        self._batched.clear()  # the registration repeats them
        if self.welcome is not None:
            self.welcome = None
            self.silent_since = time.monotonic()
        self._disconnect(linger_ms=0)
        pause = self._connected_at + RENEWAL_PAUSE - time.monotonic()
        time.sleep(max(0.0, pause))
        self._connect()

    def _connect(self) -> None:
        self.connections += 1
        self._connected_at = time.monotonic()
        self._socket = _dealer(self._context)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        for readable in (self._socket, self._monitor):
            self._poller.register(readable, zmq.POLLIN)
        self._socket.connect(f"ipc://{self._path}")
        for message in self._registration():
            self.send(message)

    def _disconnect(self, linger_ms: int) -> None:
        for readable in (self._socket, self._monitor):
            self._poller.unregister(readable)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)


def _validated(message: Message) -> bytes:
    """Encode a message with an application's values.

    Raises:
        InputError: a value cannot be encoded, or hetd could not decode it.

    """
    try:
        frame = encode(message)
        decode_to_daemon(frame)
    except (
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
        InputError,
    ) as error:
        raise InputError(_refusal(message, error)) from error
    return frame


def _is_readable(socket: zmq.Socket[bytes]) -> bool:
    """Return whether a message has arrived; to read an empty socket raises, which is slow."""
    return bool(socket.getsockopt(zmq.EVENTS) & READABLE)  # type: ignore[operator]  # an int


def _is_follower(message: FromDaemon) -> TypeGuard[Run]:
    return isinstance(message, Run) and message.follows


def _dealer(context: zmq.Context[Any]) -> zmq.Socket[bytes]:
    dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    # A worker must not stop computing because hetd reads slowly; it sends few messages.
    dealer.setsockopt(zmq.SNDHWM, 0)
    dealer.setsockopt(zmq.RCVHWM, 0)
    dealer.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    dealer.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    return dealer


def _refusal(message: Message, error: Exception) -> str:
    """Say in one line which values of an application cannot be sent."""
    text = one_line(error)
    if isinstance(message, WITH_CHECKPOINT):
        return (
            "checkpoint.extra: expected a few small plain values, as in JSON; keep others in"
            f" attributes of the task: {text}"
        )
    return f"not a small plain value (as in JSON): {text}"
