"""Poller: waits for a message, a commit, a signal or the end of a process.

A seam between the loop, which does the work of a turn, and the kernel, which reports
that there is work.
"""

from __future__ import annotations

import errno
import logging
import os
import select
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zmq

if TYPE_CHECKING:
    from hetd.transport.router import Peer

log = logging.getLogger("hetd")


PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that may pass: the process can be watched later."""


@dataclass(frozen=True, slots=True)
class WatchedProcess:
    """A process whose end is reported by a pidfd."""

    peer: Peer
    worker: str | None
    """Name of the worker; None: a launcher."""


class Poller:
    """Waits until the loop has something to do.

    Args:
        readables: sockets and descriptors; each wakes the loop when it can be read.

    """

    def __init__(self, *readables: Any) -> None:
        self._poller = zmq.Poller()
        # one descriptor for all processes: a turn costs no more with a thousand workers
        self._processes = select.epoll()
        self._poller.register(self._processes.fileno(), zmq.POLLIN)
        self._pidfds: dict[int, int] = {}
        """Pid -> the one pidfd of that process, however often it registered."""
        self._watched: dict[int, dict[tuple[int, str | None], WatchedProcess]] = {}
        """Pidfd -> the peers of that process, by user and name of the worker."""
        self._unseen: list[WatchedProcess] = []
        """Processes for which there was no descriptor."""
        self._gone: list[WatchedProcess] = []
        for readable in readables:
            self.add(readable)

    def add(self, readable: Any) -> None:
        """Add a socket or descriptor that wakes the loop."""
        self._poller.register(readable, zmq.POLLIN)

    def watch(self, watched: WatchedProcess) -> bool:
        """Watch for the end of a process; return False if it has ended."""
        problem = self._try_watch(watched)
        if problem is not None:
            log.warning("cannot watch pid %d: %s", watched.peer.pid, problem)
        descriptor = self._pidfds.get(watched.peer.pid)
        ended = descriptor is not None and _has_ended(descriptor)
        return not ended and watched not in self._gone

    def _try_watch(self, watched: WatchedProcess) -> str | None:
        """Watch a process; return the error if that fails."""
        try:
            descriptor = self._pidfd(watched.peer.pid)
        except ProcessLookupError:
            self._gone.append(watched)  # it ended after it had sent its message
            return None
        except OSError as error:
            if error.errno in PASSING:
                self._unseen.append(watched)
            return error.strerror
        self._watched[descriptor][watched.peer.uid, watched.worker] = watched
        return None

    def _pidfd(self, pid: int) -> int:
        """Return the pidfd of a process; replace that of an earlier process of this pid."""
        known = self._pidfds.get(pid)
        if known is not None:
            if not _has_ended(known):
                return known
            self._gone += self._ended(known)
        descriptor = os.pidfd_open(pid)
        self._pidfds[pid] = descriptor
        self._watched[descriptor] = {}
        self._processes.register(descriptor, select.EPOLLIN)
        return descriptor

    def wait(self, timeout_ms: int) -> list[WatchedProcess]:
        """Wait for an event, `timeout_ms` at most; return the processes that ended."""
        self._look_again()
        events = self._poller.poll(0 if self._gone else timeout_ms)
        gone, self._gone = self._gone, []
        if (self._processes.fileno(), zmq.POLLIN) in events:
            for descriptor, _ in self._processes.poll(0):
                gone += self._ended(descriptor)
        return gone

    def _look_again(self) -> None:
        unseen, self._unseen = self._unseen, []
        for watched in unseen:
            self._try_watch(watched)

    def _ended(self, descriptor: int) -> list[WatchedProcess]:
        self._processes.unregister(descriptor)
        os.close(descriptor)
        watched = list(self._watched.pop(descriptor).values())
        del self._pidfds[watched[0].peer.pid]
        return watched


def _has_ended(descriptor: int) -> bool:
    """Whether the process of a pidfd has ended; `select` rejects large descriptors."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
