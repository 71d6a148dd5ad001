"""The ROUTER socket that everybody talks to, and who they are.

The uid of every message comes from the kernel (`Peer-Address` is SO_PEERCRED); what a
peer says of itself is never read.
"""

from __future__ import annotations

import ctypes
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from hetd.transport.connection_guard import Allowance, ConnectionGuard
from hetd.transport.user_namespace import our_shared_uid
from libtask.endpoint import check_length, probe
from libtask.errors import DaemonUnreachableError, InputError
from libtask.messages import (
    MAX_FRAME,
    Error,
    Register,
    Request,
    ToDaemon,
    decode_to_daemon,
    encode,
    request_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.messages import Message

BATCH = 256
"""Messages taken in one turn of the loop: bounds the time until the next commit."""
LARGE = 16 * 1024
"""Bytes of a message above which decoding takes noticeable time."""
REFUSED_IF_STRAINED = 64 * 1024
"""Bytes of a message above which it is refused while there is little memory. A request about
`MAX_IDS` tasks is smaller, as cancelling tasks frees memory."""
PARTS = 3
"""Parts that are kept of a message: its routing id, its one frame, and one too many."""
SELF_TEST_S = 5.0
"""Limit for the router to receive its own test message, seconds."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A connection: its route, and its uid and pid as the kernel reports them."""

    route: bytes
    uid: int
    pid: int


@dataclass(frozen=True, slots=True)
class Envelope:
    """A received message with its sender, or why it could not be understood.

    A bare `Request` is one that was not read: its sender is put off.
    """

    peer: Peer
    message: ToDaemon | Request | InputError
    size: int = 0
    """Bytes of its frame."""


def _nobody(_uid: int) -> bool:
    """Put off no request."""
    return False


class Router:
    """The daemon's end of all connections.

    Args:
        path: of the socket.
        allowance: limits on the use of resources by peers.
        group: gid that may use the socket in addition to our own user.
        passed: a descriptor that listens at the path already, and outlives us there.

    Raises:
        InputError: the socket cannot be made there, or another daemon serves it.

    """

    def __init__(
        self,
        path: Path,
        allowance: Allowance | None = None,
        *,
        group: int | None = None,
        passed: int | None = None,
    ) -> None:
        check_length(path)
        _seed_routing_ids()
        self.path = path
        self._passed = passed is not None
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.ROUTER)
        _configure(self.socket)
        self.guard = ConnectionGuard(self.socket, allowance or Allowance())
        try:
            if passed is None:
                _bind(self.socket, path, group)
            else:
                _bind_passed(self.socket, path, passed)
        except BaseException:
            self._close(linger_ms=0)
            raise
        self._shared_uid = our_shared_uid()
        self._early: list[Envelope] = []
        self.dropped = 0
        """Messages that could not be delivered: the peer was gone or did not read."""
        self.full: set[bytes] = set()
        """Routes whose last message was dropped, as the peer had too much unread."""

    def receive(
        self, is_put_off: Callable[[int], bool] = _nobody
    ) -> Iterator[Envelope]:
        """Take what has arrived, at most `BATCH` messages, without waiting.

        One at a time, round robin from all peers; a caller may stop at any message.

        Args:
            is_put_off: whether large requests of a uid are not decoded now; each comes
                as a bare `Request`.

        """
        while self._early:
            yield self._early.pop(0)
        for _ in range(BATCH):
            try:
                frames = self._take()
            except zmq.Again:
                return
            self.guard.notice()
            large = len(frames[-1]) > LARGE
            if large and self.guard.refuses(_peer(frames).uid):
                continue  # what a connection left that was cut off
            put_off = self._put_off(frames, is_put_off) if large else None
            yield put_off or _open(frames, self._shared_uid)

    def _put_off(
        self, frames: list[zmq.Frame], is_put_off: Callable[[int], bool]
    ) -> Envelope | None:
        """Skip decoding a large request that would be refused now."""
        peer = _peer(frames)
        strained = self.strained and len(frames[-1]) > REFUSED_IF_STRAINED
        if not strained and not is_put_off(peer.uid):
            return None
        number = request_in(frames[-1].buffer)
        return None if number is None else Envelope(peer, Request(number))

    @property
    def strained(self) -> bool:
        """Whether there is too little memory for large requests."""
        return self.guard.strained

    def _take(self) -> list[zmq.Frame]:
        """Receive the routing id and the parts of one message, three at most.

        A peer may send any number of parts; hetd keeps no more than it needs to refuse
        the message.
        """
        socket = self.socket
        frames = [socket.recv(zmq.NOBLOCK, copy=False)]
        while frames[-1].more:
            frame = socket.recv(copy=False)
            if len(frames) < PARTS:
                frames.append(frame)
            else:
                frames[-1] = frame
        return frames

    def waiting(self) -> bool:
        """Whether a message has arrived."""
        return bool(int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def send(self, route: bytes, *messages: Message) -> bool:
        """Send without waiting; return False if the peer is gone or does not read."""
        frames = [route, *map(frame_of, messages)]
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self.dropped += 1
            note = self.full.add if error.errno == zmq.EAGAIN else self.full.discard
            note(route)
            return False
        if self.full:
            self.full.discard(route)
        return True

    def self_test(self) -> None:
        """Check that the kernel reports the uid and pid of a peer, by our own.

        Raises:
            DaemonUnreachableError: peers cannot be told apart on this system.

        """
        tester = self._context.socket(zmq.DEALER)
        tester.setsockopt(zmq.LINGER, 0)
        tester.connect(f"ipc://{self.path}")
        tester.send(encode(Register("client", pid=os.getpid())))
        deadline = time.monotonic() + SELF_TEST_S
        heard = False
        while not heard and (left := deadline - time.monotonic()) > 0:
            self.socket.poll(int(1000 * left) + 1)
            heard = self._hears_itself()
        tester.close()
        if not heard:
            raise DaemonUnreachableError(
                f"the kernel does not tell who connects to {self.path}: refusing to serve"
            )

    def _hears_itself(self) -> bool:
        """Whether our own hello has come; what others said meanwhile is kept.

        After a restart many knock at once.
        """
        own = (os.getuid(), os.getpid())
        arrived = list(self.receive())
        self._early = [
            each for each in arrived if (each.peer.uid, each.peer.pid) != own
        ]
        return len(self._early) < len(arrived)

    def close(self) -> None:
        self._close(linger_ms=500)
        if not self._passed:
            self.path.unlink(missing_ok=True)

    def _close(self, linger_ms: int) -> None:
        self.guard.close()
        self.socket.close(linger=linger_ms)
        self._context.term()


def frame_of(message: Message) -> bytes:
    """Encode a message; a reply that cannot be encoded becomes an error."""
    try:
        return encode(message)
    except InputError as error:
        if not isinstance(message, Request):
            raise
        return encode(Error(message.request, "bad-input", f"{error}; ask for less"))


def _configure(socket: zmq.Socket[bytes]) -> None:
    """Set the limits.

    No heartbeats: the kernel tells when a peer of this machine is gone, and libzmq ends
    the process when one is due on a connection that is full and whose peer has left.
    """
    options = {
        zmq.MAXMSGSIZE: MAX_FRAME,
        zmq.RCVHWM: 64,
        zmq.SNDHWM: 1000,
        zmq.ROUTER_MANDATORY: 1,
        zmq.SNDTIMEO: 0,
        zmq.HANDSHAKE_IVL: 2000,
        zmq.BACKLOG: 256,
    }
    for option, value in options.items():
        socket.setsockopt(option, value)


def _bind(socket: zmq.Socket[bytes], path: Path, group: int | None) -> None:
    """Bind with the file mode set from the start: only the umask can do that."""
    _demand_unserved(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if group else 0o700)
        before = os.umask(0o177)
        try:
            socket.bind(f"ipc://{path}")
        finally:
            os.umask(before)
        if group is not None:
            os.chown(path, -1, group)
            path.chmod(0o660)
    except (OSError, zmq.ZMQError) as error:
        raise InputError(f"socket {path}: {error.strerror}") from error


def _bind_passed(socket: zmq.Socket[bytes], path: Path, descriptor: int) -> None:
    """Serve a socket that listens already; its file is the service manager's."""
    socket.setsockopt(zmq.USE_FD, descriptor)
    try:
        socket.bind(f"ipc://{path}")
    except zmq.ZMQError as error:
        raise InputError(f"passed socket {path}: {error.strerror}") from error


def _demand_unserved(path: Path) -> None:
    """Refuse a path that another daemon serves, or where something else lies.

    Binding would steal the clients of the one, and delete the other.
    """
    if path.exists() and not path.is_socket():
        raise InputError(f"socket {path}: the path is a file that is not a socket")
    try:
        probe(path)
    except DaemonUnreachableError:
        return
    raise InputError(f"another daemon serves {path}")


def _seed_routing_ids() -> None:
    """Make routing ids unpredictable: libzmq draws them from the C library's rand()."""
    ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "little"))


def _open(frames: list[zmq.Frame], shared_uid: int | None) -> Envelope:
    peer = _peer(frames)
    if peer.uid == shared_uid:
        peer = Peer(peer.route, -1, peer.pid)
    if len(frames) != 2:  # noqa: PLR2004  the routing id and one message
        return Envelope(peer, InputError("a message of several frames"))
    try:
        return Envelope(peer, decode_to_daemon(frames[1].bytes), len(frames[1]))
    except InputError as error:
        return Envelope(peer, error)


def _peer(frames: list[zmq.Frame]) -> Peer:
    """Read `localhost:UID:GID:PID`; a peer the kernel does not name is nobody."""
    try:
        address = str(frames[-1].get("Peer-Address"))
        _, uid, _, pid = address.rsplit(":", 3)
        return Peer(frames[0].bytes, int(uid), int(pid))
    except (zmq.ZMQError, ValueError, KeyError):
        return Peer(frames[0].bytes, -1, 0)
