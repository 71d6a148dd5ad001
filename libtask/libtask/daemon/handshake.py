"""A hello over the bare wire: whether a daemon answers, without a client's patience."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import zmq

from libtask.endpoint import probe
from libtask.errors import DaemonUnreachableError
from libtask.messages import Register, Registered, decode_from_daemon, encode

if TYPE_CHECKING:
    from pathlib import Path

ANSWER_MS = 200
"""One that does not answer within this may have died; it is greeted again."""


def handshake(socket: Path) -> Registered | None:
    """Say hello on a connection of its own; None: nobody answers, so far."""
    try:
        probe(socket)
    except DaemonUnreachableError:
        return None
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(f"ipc://{socket}")
        dealer.send(encode(Register(role="client", pid=os.getpid())))
        return _welcome(dealer)


def _welcome(dealer: zmq.Socket[bytes]) -> Registered | None:
    if not dealer.poll(ANSWER_MS):
        return None
    answer = decode_from_daemon(dealer.recv_multipart()[0])
    return answer if isinstance(answer, Registered) else None
