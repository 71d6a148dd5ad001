"""A single registration with a daemon, without the retries of a client."""

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
"""Timeout, after which the caller tries again: the daemon may have died."""


def handshake(socket: Path) -> Registered | None:
    """Register over a new connection and return the reply; None: no daemon answers yet."""
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
