"""Peers that speak ZMTP by hand: what libzmq would never send.

`docs/protocol.md` tells what hetd says; this is the layer below (ZMTP 3.0 over a UNIX
socket, https://rfc.zeromq.org/spec/23). Used by the hostile tests and by the torture.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

GREETING = (
    b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
)
PATIENCE_S = 10.0
"""Time after which a peer considers hetd dead."""
ABREAST = 32
"""Connections that the fuzzer holds at the same time."""
FRAMES_OF_ONE = 4
"""Frames tried over one connection; the last may break it."""


def command(name: bytes, body: bytes = b"") -> bytes:
    """Frame a command."""
    body = bytes([len(name)]) + name + body
    if len(body) < 256:
        return b"\x04" + bytes([len(body)]) + body
    return b"\x06" + struct.pack(">Q", len(body)) + body


def metadata(name: bytes, value: bytes) -> bytes:
    """Encode one property of a READY."""
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


def ready(identity: bytes = b"", extra: bytes = b"", kind: bytes = b"DEALER") -> bytes:
    """Frame a READY.

    Args:
        identity: routing id that the peer wants.
        extra: further properties, encoded by `metadata`.
        kind: the type of socket that the peer says it is.

    """
    known = metadata(b"Socket-Type", kind) + metadata(b"Identity", identity)
    return command(b"READY", known + extra)


def frame(body: bytes, *, more: bool = False) -> bytes:
    """Frame one part of a message."""
    if len(body) < 256:
        return bytes([int(more), len(body)]) + body
    return bytes([int(more) | 2]) + struct.pack(">Q", len(body)) + body


class RawPeer:
    """A connection to hetd without libzmq.

    Args:
        path: hetd's socket.

    Raises:
        OSError: nobody listens there.

    """

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def greet(self, said: bytes = b"") -> None:
        """Do the handshake, with `said` in place of a plain READY.

        Raises:
            OSError: hetd does not like it.

        """
        self.socket.sendall(GREETING)
        self._exactly(len(GREETING))
        self.socket.sendall(said or ready())
        self.receive_frame()

    def receive_frame(self) -> bytes:
        """Return the body of the next frame.

        Raises:
            ConnectionResetError: hetd closed the connection.

        """
        flags, length = self._exactly(2)
        if flags & 2:
            (length,) = struct.unpack(">Q", bytes([length]) + self._exactly(7))
        return self._exactly(length)

    def send(self, body: bytes, *, more: bool = False) -> None:
        self.socket.sendall(frame(body, more=more))

    def is_cut_off(self) -> bool:
        """Whether hetd closes the connection in time; what it says until then is read."""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            try:
                while self.socket.recv(65_536):
                    pass
            except TimeoutError:
                return False
        return True

    def _exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            if not more:
                raise ConnectionResetError("closed")
            got += more
        return got


# ---------------------------------------------------------------- fuzzing


def fuzz(path: Path, cases: int, seed: int) -> Counter[str]:
    """Send broken ZMTP, and broken messages in good ZMTP.

    Args:
        path: hetd's socket.
        cases: how many; each is a connection, or a frame where there was a handshake.
        seed: makes the same cases again.

    Returns:
        How many cases of each kind were delivered.

    Raises:
        OSError: hetd does not listen any more.

    """
    chance = random.Random(seed)
    tally: Counter[str] = Counter()
    while sum(tally.values()) < cases:
        before = min(ABREAST, cases - sum(tally.values()))
        _fuzz_openings(path, chance, before, tally)
        left = min(ABREAST, cases - sum(tally.values()))
        tally["frames"] += _fuzz_frames(path, chance, left)
    return tally


def _fuzz_openings(
    path: Path, chance: random.Random, count: int, tally: Counter[str]
) -> None:
    """Open some connections abreast with something else than a good handshake."""
    peers = []
    for _ in range(count):
        name, make = chance.choice(OPENINGS)
        peer = RawPeer(path)
        peers.append(peer)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            peer.socket.sendall(make(chance))
            peer.socket.shutdown(socket.SHUT_WR)
        tally[name] += 1
    for peer in peers:
        # closing with unread input would throw away what hetd has not read yet
        if not peer.is_cut_off():
            raise TimeoutError("hetd does not let a connection go that its peer ended")
        peer.close()


def _fuzz_frames(path: Path, chance: random.Random, most: int) -> int:
    """Send hostile frames after a good handshake; return how many."""
    sent = 0
    while sent < most:
        with RawPeer(path) as peer:
            with contextlib.suppress(ConnectionError):
                peer.greet()
                burst = min(FRAMES_OF_ONE, most - sent)
                for _ in range(burst - 1):
                    sent += 1
                    peer.send(_noise(chance))
                sent += 1
                peer.socket.sendall(_hostile_frame(chance))
                peer.socket.shutdown(socket.SHUT_WR)
            peer.is_cut_off()
    return sent


def _noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((1, 2, 9, 10, 11, 12, 63, 64, 65, 300)))


def _mutated(data: bytes, chance: random.Random) -> bytes:
    """Change, cut out or double some bytes."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(made) or 1)
        match chance.randrange(4):
            case 0 if made:
                made[place] = chance.randrange(256)
            case 1:
                del made[place : place + chance.randint(1, 9)]
            case 2:
                made[place:place] = made[place : place + chance.randint(1, 9)]
            case _:
                made[place:place] = chance.randbytes(chance.randint(1, 9))
    return bytes(made)


def _old_greeting(chance: random.Random) -> bytes:
    """Open as ZMTP 1 or 2 does, and continue that way or not."""
    first = chance.choice(
        (
            b"\x01\x00",  # ZMTP 1: an empty identity
            b"\x05\x00" + chance.randbytes(4),
            b"\xff" + bytes(8) + b"\x7f" + b"\x00\x05",  # ZMTP 1 behind a signature
            b"\xff" + bytes(8) + b"\x7f" + b"\x01\x05\x00\x00",  # ZMTP 2, a DEALER
            b"\xff" + bytes(8) + b"\x7f" + b"\x01\x05\x00\x05" + chance.randbytes(5),
        )
    )
    return first + chance.choice((b"", _noise(chance), frame(_noise(chance))))


def _strange_mechanism(chance: random.Random) -> bytes:
    name = chance.choice((b"PLAIN", b"CURVE", b"GSSAPI", b"", _noise(chance)[:20]))
    head = GREETING[:12] + name.ljust(20, b"\0") + chance.choice((b"\0", b"\1"))
    return head.ljust(64, b"\0") + command(b"HELLO", _noise(chance))


def _strange_ready(chance: random.Random) -> bytes:
    kind = chance.choice((b"DEALER", b"REQ", b"PUB", b"ROUTER", b"", _noise(chance)))
    extra = metadata(_noise(chance)[:200], _noise(chance))
    said = ready(_noise(chance)[:255], extra, kind)
    return GREETING + chance.choice((said, _mutated(said, chance), said * 3))


def _odd_command(chance: random.Random) -> bytes:
    name = chance.choice((b"ERROR", b"PING", b"PONG", b"SUBSCRIBE", b"JOIN", b"X"))
    return command(name, _noise(chance))


def _giant(chance: random.Random) -> bytes:
    """Announce a frame that nobody can hold."""
    size = chance.choice((1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 2))
    return b"\x02" + struct.pack(">Q", size + chance.randint(0, 1))


def _hostile_frame(chance: random.Random) -> bytes:
    """Make a frame that may follow a good handshake."""
    body = _noise(chance)
    forms: tuple[Callable[[], bytes], ...] = (
        lambda: frame(body),
        lambda: frame(body, more=True) + frame(body),
        lambda: _odd_command(chance),
        lambda: _mutated(frame(body), chance),
        lambda: _giant(chance),
        lambda: bytes([chance.randrange(256)]) + body,
    )
    return chance.choice(forms)()


def _broken_commands(chance: random.Random) -> bytes:
    return GREETING + _odd_command(chance) + _noise(chance)


OPENINGS: tuple[tuple[str, Callable[[random.Random], bytes]], ...] = (
    ("noise", _noise),
    ("broken handshake", lambda chance: _mutated(GREETING, chance)),
    ("short handshake", lambda chance: GREETING[: chance.randrange(64)]),
    ("old handshake", _old_greeting),
    ("strange mechanism", _strange_mechanism),
    ("strange ready", _strange_ready),
    ("broken commands", _broken_commands),
    ("no ready", lambda chance: GREETING + frame(_noise(chance))),
)


# ---------------------------------------------------------------- floods


def flood_connections(path: Path, count: int) -> list[socket.socket]:
    """Open connections as fast as the kernel allows, and say nothing; they stay open.

    Where its queue is full the kernel refuses; that one is tried again.
    """
    opened: list[socket.socket] = []
    deadline = time.monotonic() + 6 * PATIENCE_S
    while len(opened) < count:
        each = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            each.connect(str(path))
        except BlockingIOError:
            each.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.0005)
            continue
        opened.append(each)
    return opened


def flood_parts(path: Path, total: int, part: int) -> int:
    """Send a message without end; return how many bytes of it hetd took.

    Args:
        path: hetd's socket.
        total: bytes at which to stop.
        part: bytes of each part.

    """
    taken = 0
    piece = frame(bytes(part), more=True)
    piece *= max(1, 65_536 // len(piece))
    with RawPeer(path) as peer, contextlib.suppress(ConnectionError):
        peer.greet()
        while taken < total:
            peer.socket.sendall(piece)
            taken += len(piece)
    return taken


@contextlib.contextmanager
def deaf(path: Path, *messages: bytes) -> Iterator[RawPeer]:
    """Say these messages, and read no answer."""
    with RawPeer(path) as peer:
        peer.greet()
        for message in messages:
            peer.send(message)
        yield peer
