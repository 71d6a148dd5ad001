"""Wakes: what ends the loop's wait: a message, a commit, a signal, a process's end.

A seam between the loop, which knows what to do in a turn, and the kernel, which knows
when there is something to do.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zmq

if TYPE_CHECKING:
    from hetd.transport.router import Peer

log = logging.getLogger("hetd")


@dataclass(frozen=True, slots=True)
class Guarded:
    """A process whose end is noticed through a pidfd."""

    peer: Peer
    worker: str | None
    """Name of the worker; None: a launcher."""


class Wakes:
    """Waits for what the loop has to do something about.

    Args:
        readables: sockets and descriptors; each wakes the loop when it can be read.

    """

    def __init__(self, *readables: Any) -> None:
        self._poller = zmq.Poller()
        self._guarded: dict[int, Guarded] = {}
        self._gone: list[Guarded] = []
        for readable in readables:
            self.add(readable)

    def add(self, readable: Any) -> None:
        """Let one more socket or descriptor wake the loop."""
        self._poller.register(readable, zmq.POLLIN)

    def guard(self, guarded: Guarded) -> None:
        """Notice the end of a process, whatever way it ends."""
        try:
            descriptor = os.pidfd_open(guarded.peer.pid)
        except ProcessLookupError:
            self._gone.append(guarded)  # it ended between its word and our hearing it
            return
        except OSError:
            log.warning("pid %d is out of sight", guarded.peer.pid)
            return
        self._guarded[descriptor] = guarded
        self.add(descriptor)

    def wait(self, timeout_ms: int) -> list[Guarded]:
        """Wait until there is something to do; return the processes that ended."""
        events = self._poller.poll(0 if self._gone else timeout_ms)
        gone, self._gone = self._gone, []
        return gone + [self._ended(fd) for fd, _ in events if fd in self._guarded]

    def _ended(self, descriptor: int) -> Guarded:
        guarded = self._guarded.pop(descriptor)
        self._poller.unregister(descriptor)
        os.close(descriptor)
        return guarded
