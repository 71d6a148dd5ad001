"""Poller: what ends the loop's wait: a message, a commit, a signal, a process's end.

A seam between the loop, which knows what to do in a turn, and the kernel, which knows
when there is something to do.
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
"""Why a process may be out of sight now, and not for ever."""


@dataclass(frozen=True, slots=True)
class WatchedProcess:
    """A process whose end is noticed through a pidfd."""

    peer: Peer
    worker: str | None
    """Name of the worker; None: a launcher."""


class Poller:
    """Waits for what the loop has to do something about.

    Args:
        readables: sockets and descriptors; each wakes the loop when it can be read.

    """

    def __init__(self, *readables: Any) -> None:
        self._poller = zmq.Poller()
        # one descriptor for all processes: a turn costs no more with a thousand workers
        self._processes = select.epoll()
        self._poller.register(self._processes.fileno(), zmq.POLLIN)
        self._pidfds: dict[int, int] = {}
        """Descriptor by which a process is watched, by pid: one, however often it came."""
        self._watched: dict[int, dict[tuple[int, str | None], WatchedProcess]] = {}
        """What a process is to us, by descriptor: by user and worker's name."""
        self._unseen: list[WatchedProcess] = []
        """For whom there was no descriptor."""
        self._gone: list[WatchedProcess] = []
        for readable in readables:
            self.add(readable)

    def add(self, readable: Any) -> None:
        """Let one more socket or descriptor wake the loop."""
        self._poller.register(readable, zmq.POLLIN)

    def watch(self, watched: WatchedProcess) -> None:
        """Notice the end of a process, whatever way it ends."""
        problem = self._try_watch(watched)
        if problem is not None:
            log.warning("pid %d is out of sight: %s", watched.peer.pid, problem)

    def _try_watch(self, watched: WatchedProcess) -> str | None:
        """Watch a process; return why that cannot be, which may pass."""
        try:
            descriptor = self._pidfd(watched.peer.pid)
        except ProcessLookupError:
            self._gone.append(watched)  # it ended between its word and our hearing it
            return None
        except OSError as error:
            if error.errno in PASSING:
                self._unseen.append(watched)
            return error.strerror
        self._watched[descriptor][watched.peer.uid, watched.worker] = watched
        return None

    def _pidfd(self, pid: int) -> int:
        """Return the descriptor of a process, unless that is of one before it."""
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
        """Wait until there is something to do; return the processes that ended."""
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
    """Whether the process of a pidfd has ended; `select` knows no large descriptors."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
