"""A daemon that a test plays by hand, message for message, over a real socket."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import zmq

from libtask.messages import (
    PROTOCOL,
    CheckpointRecord,
    DeviceSpec,
    Message,
    Register,
    Registered,
    Run,
    Stage,
    TaskSpec,
    decode_to_daemon,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE = 30.0
"""Seconds after which a test gives up; a sane machine needs a fraction of one."""

Kind = TypeVar("Kind", bound=Message)


class ScriptedDaemon:
    """A ROUTER socket, and who has said hello on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.peers: dict[str, bytes] = {}
        """Worker's name, or role of the others -> routing id of its latest connection."""
        self._context = zmq.Context()
        self._bind()

    def _bind(self) -> None:
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.bind(f"ipc://{self.path}")

    def hear(self) -> tuple[str, Message]:
        """Return who spoke, and what it said."""
        assert self._router.poll(int(PATIENCE * 1000)), "nobody spoke"
        identity, frame = self._router.recv_multipart()
        message = decode_to_daemon(frame)
        if isinstance(message, Register):
            self.peers[message.worker or message.role] = identity
        names = {peer: name for name, peer in self.peers.items()}
        return names.get(identity, "unknown"), message

    def expect(self, kind: type[Kind]) -> Kind:
        """Return the next message, which must be of this kind."""
        _, message = self.hear()
        assert isinstance(message, kind), f"expected {kind.__name__}, got {message}"
        return message

    def greet(self, **fields: Any) -> Register:
        """Await a hello and welcome the peer."""
        hello = self.expect(Register)
        self.welcome(hello.worker or hello.role, **fields)
        return hello

    def welcome(self, peer: str, **fields: Any) -> None:
        fields = {"launcher": True, **fields}
        welcome = Registered(protocol=PROTOCOL, version="test", pid=1, **fields)
        self.say(peer, welcome)

    def say(self, peer: str, *messages: Message) -> None:
        """Send these; several leave in one go, as from a busy daemon."""
        self._router.send_multipart([self.peers[peer], *map(encode, messages)])

    def die(self) -> None:
        self._router.close(linger=0)
        self.path.unlink()

    def rise(self) -> None:
        self._bind()

    def close(self) -> None:
        self._router.close(linger=0)
        self._context.term()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: it is not so in time.

    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.002)


def null(name: str = "gpu0", kind: Any = "gpu") -> DeviceSpec:
    return DeviceSpec(name, kind, "null")


def cpu() -> DeviceSpec:
    return DeviceSpec("cpu", "cpu")


def stage(task: int, app: str, **fields: Any) -> Stage:
    """Order to load a task; `params` and other fields of its description by name."""
    spec = TaskSpec(app, **fields)
    return Stage(task=task, epoch=1, spec=spec, checkpoint=CheckpointRecord())


def run(task: int, device: DeviceSpec, strip: int | None = None) -> Run:
    return Run(task=task, epoch=1, device=device, strip=strip)
