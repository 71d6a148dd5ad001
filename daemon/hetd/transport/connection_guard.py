"""The connection guard: keeps peers from exhausting descriptors and memory.

libzmq aborts the process if it has no descriptor for a new connection, and it limits
neither the parts of a message nor the bytes that a peer leaves unread. A thread
therefore watches the ROUTER's connections through its monitor. It shuts down excess
connections of one user and, when the process grows too large, connections that flood
hetd or do not read. If that does not help, the daemon ends before the machine runs out
of memory: it is restarted, and tasks run on meanwhile.

The thread only shuts connections down; libzmq handles that as if the peer had left. It
needs no lock and no message from the loop.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import logging
import math
import os
import resource
import select
import socket
import struct
import termios
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from hetd.backoff import Backoff
from hetd.users import TRUSTED

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("hetd")

OWN_DESCRIPTORS = 64
"""Descriptors that the daemon itself needs: its store, log, devices, children."""
BURST = 256
"""Connections that may be accepted before the guard receives the first event."""
LOOK_MS, SHORTEST_LOOK_MS = 100.0, 10.0
"""Between two checks of memory; the less is left of the memory allowed, the sooner."""
FILL_RATE = 4_000_000
"""Bytes that peers can fill in a millisecond, on a fast machine."""
QUIET_MS = 5000
"""Between two checks while nothing arrives, so that peers cannot fill anything."""
SAMPLES = 5
SAMPLE_S = 0.002
"""A flooding peer has unread input in most samples; that of others is read at once."""
BEYOND_S, LOOKS_BEYOND = 1.0, 10
"""Seconds, and consecutive checks, with more than twice the memory allowed before the
daemon ends: freeing the memory of closed connections takes a moment."""
STRAINED = 0.75
"""Share of the memory allowed, or of what the service manager allows, above which large
requests are refused for now."""
REFUSAL_S, LONGEST_REFUSAL_S = 1.0, 60.0
"""Seconds for which a user whose connection was cut off as it filled the memory gets no
other one, doubled each time: a new connection would be filled as soon. Root and the daemon's
own user are not refused: their other clients may do no harm."""
MOST_REFUSED = 1000
"""Users whose refusals are kept."""
FREEING_S = 1.0
"""Seconds after a shutdown in which libzmq frees memory: it is returned to the system."""
TRIM_PAUSE_S, FREEING_PAUSE_S = 5.0, 0.1
"""Seconds between two returns of free memory: usually, and after a shutdown."""
PAGE = os.sysconf("SC_PAGE_SIZE")
CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED


@dataclass(frozen=True, slots=True)
class Allowance:
    """Limits on the use of resources by peers.

    Attributes:
        connections: of one user at the same time.
        memory: bytes by which the process may grow before flooding or non-reading
            peers are disconnected; at twice as much the daemon ends.

    """

    connections: int = 1024
    memory: int = 256 << 20


class ConnectionGuard:
    """Watches the connections of a ROUTER.

    Args:
        router: the socket; not bound yet, so that no connection is missed.
        allowance: what its peers may use.

    Attributes:
        exhausted: why the daemon has to end; empty if it need not.
        cut: connections shut down so far.
        strained: whether large requests are refused: little memory is left.
        granted: bytes that the daemon needs for its tasks; the loop keeps it up to date.

    """

    def __init__(self, router: zmq.Socket[bytes], allowance: Allowance) -> None:
        self.exhausted = ""
        self.cut = 0
        self.strained = False
        self.granted = 0
        self._bound = memory_bound()
        self._allowance = allowance
        self._router = router
        # half of the descriptors are for pidfds
        self._most = max((raise_descriptor_limit() - OWN_DESCRIPTORS - BURST) // 2, 16)
        # one user must leave some to the others
        self._most_of_one = min(allowance.connections, 3 * self._most // 4)
        self._uids: dict[int, int] = {}
        """Descriptor -> uid of the peer."""
        self._counts: Counter[int] = Counter()
        self._refusals = Backoff[int](
            REFUSAL_S, LONGEST_REFUSAL_S, MOST_REFUSED, forget=LONGEST_REFUSAL_S
        )
        self._base = _resident()
        self._kept = 0
        """Bytes that tasks took at some time: Python keeps them for later tasks."""
        self._told = self._freeing_until = self._trimmed = 0.0
        # consecutive checks with more than twice the memory allowed, and the first's time
        self._beyond, self._beyond_since = 0, 0.0
        self._pause_ms, self._grown = LOOK_MS, 0
        self._monitor = router.get_monitor_socket(EVENTS)
        self._arrivals = select.epoll()
        """Readable while input of a connection waits for libzmq, as that of a flood does.

        What libzmq has taken by the time of a look is not seen here; see `notice`.
        """
        self._noticed = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = zmq.Poller()
        self._poller.register(self._monitor, zmq.POLLIN)
        for descriptor in (self._arrivals.fileno(), self._noticed):
            self._poller.register(descriptor, zmq.POLLIN)
        self._active = True
        """Whether the next check must not wait for an arrival."""
        self._thread = threading.Thread(target=self._run, name="guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; call it before the router is closed."""
        self._router.disable_monitor()
        self._thread.join()
        os.close(self._noticed)

    def notice(self) -> None:
        """Record that a message was received: the memory may have grown.

        Called by the thread of the loop.
        """
        if not self._active:
            self._active = True
            os.eventfd_write(self._noticed, 1)

    def refuses(self, uid: int) -> bool:
        """Whether a user gets no connection now, as theirs filled the memory; any thread."""
        return self._refusals.lasts(uid, time.monotonic())

    def begin(self, granted: int) -> None:
        """Count growth from here: peers did not cause what the daemon restored.

        Args:
            granted: bytes that the daemon needs for its tasks.

        """
        self._base = _resident() - granted
        self.granted = granted

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            # without its guard the daemon is open to floods: it has to restart
            log.exception("the guard failed")
            self.exhausted = f"its guard failed: {error}"
            self._ignore_the_rest()
        self._monitor.close(linger=0)
        self._arrivals.close()

    def _ignore_the_rest(self) -> None:
        """Discard further events: libzmq waits for the reader of its monitor."""
        event = 0
        while event != zmq.EVENT_MONITOR_STOPPED:
            event, _ = struct.unpack("=Hi", self._monitor.recv_multipart()[0])

    def _watch(self) -> None:
        looked = time.monotonic()
        while self._wait(looked):
            now = time.monotonic()
            since_ms = 1000 * (now - looked)
            if since_ms >= (self._pause_ms if self._active else QUIET_MS):
                looked = now
                self._active = False  # what arrives from now on is for the next check
                self._arrivals.poll(0)
                self._look_at_memory(now)
                if self.strained or self._beyond or now < self._freeing_until:
                    self._active = True

    def _wait(self, looked: float) -> bool:
        """Wait until a check may be due; return False when the router closes.

        Args:
            looked: time of the last check, monotonic seconds.

        """
        if self._active:
            left_ms = self._pause_ms - 1000 * (time.monotonic() - looked)
            changed = bool(self._monitor.poll(max(0, math.ceil(left_ms))))
        else:
            ready = dict(self._poller.poll(QUIET_MS))
            changed = self._monitor in ready
            if self._noticed in ready:
                os.eventfd_read(self._noticed)
            if self._arrivals.fileno() in ready:
                self._active = True
        return self._process_events() if changed else True

    def _process_events(self) -> bool:
        """Process the connection events that have come; return False when the router closes."""
        for _ in range(BURST):
            try:
                head, _ = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            event, descriptor = struct.unpack("=Hi", head)
            if event == zmq.EVENT_MONITOR_STOPPED:
                return False
            self._book(event, descriptor)
        return True

    def _book(self, event: int, descriptor: int) -> None:
        self._forget(descriptor)
        if event != zmq.EVENT_ACCEPTED:
            return
        uid = _uid_of(descriptor)
        if uid is None:
            return  # it has closed already
        if self.refuses(uid):
            self._shut(descriptor, uid, "refused for a while after a flood")
            return
        if self._counts[uid] >= self._most_of_one or len(self._uids) >= self._most:
            self._shut(descriptor, uid, f"more than {self._most_of_one} connections")
            return
        self._uids[descriptor] = uid
        self._counts[uid] += 1
        with contextlib.suppress(OSError):  # it has closed already
            self._arrivals.register(descriptor, select.EPOLLIN | select.EPOLLET)
        self._active = True  # it may have sent something before

    def _forget(self, descriptor: int) -> None:
        uid = self._uids.pop(descriptor, None)
        if uid is not None:
            self._counts[uid] -= 1

    def _shut(self, descriptor: int, uid: int, why: str) -> None:
        """Shut a connection down, unless its descriptor belongs to another user by now."""
        if _uid_of(descriptor) != uid:
            return
        with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        self.cut += 1
        now = time.monotonic()
        if now - self._told > 1.0:  # a flood must not flood the log as well
            self._told = now
            log.warning(
                "cut off a connection of uid %d: %s (%d so far)", uid, why, self.cut
            )

    # ------------------------------------------------------------ memory

    def _growth(self) -> int:
        """Return the bytes that peers may have filled: not those that tasks take, or took."""
        grown = _resident() - self._base
        self._kept = min(max(self._kept, self.granted), grown)
        return grown - max(self._kept, self.granted)

    def _is_strained(self, grown: int) -> bool:
        """Whether little is left of `memory_mb`, or of what the service manager allows."""
        free = max(self._kept - self.granted, 0)
        used = _resident() - free
        return (
            grown > STRAINED * self._allowance.memory or used > STRAINED * self._bound
        )

    def _look_at_memory(self, now: float) -> None:
        limit = self._allowance.memory
        grown = self._growth()
        self.strained = self._is_strained(grown)
        if grown > limit // 8:
            self._trim(now)
            grown = self._growth()
        if grown > limit:
            self._bound_memory(limit, now)
        else:
            self._beyond = 0
        self._choose_pause(limit, grown)

    def _choose_pause(self, limit: int, grown: int) -> None:
        """Look again before peers can fill what is left, or soon while they fill more."""
        left_ms = (limit - grown) / FILL_RATE
        self._pause_ms = min(max(left_ms, SHORTEST_LOOK_MS), LOOK_MS)
        if limit < grown <= self._grown:
            self._pause_ms = LOOK_MS  # a look at all connections takes long
        self._grown = grown

    def _trim(self, now: float) -> None:
        """Return memory that libzmq has freed: small pieces stay in the heap otherwise."""
        freeing = now < self._freeing_until
        if now - self._trimmed > (FREEING_PAUSE_S if freeing else TRIM_PAUSE_S):
            self._trimmed = now
            _return_memory()

    def _bound_memory(self, limit: int, now: float) -> None:
        """Disconnect the peers that make the process grow; end the daemon if that fails."""
        flooders = set()
        for descriptor in self._stuffed():
            uid = self._uids.get(descriptor)
            if uid is not None:
                self._shut(descriptor, uid, f"it fills more than {limit >> 20} MiB")
                flooders.add(uid)
        for uid in flooders - TRUSTED:
            self._refusals.begin(uid, now)
        self._freeing_until = now + FREEING_S
        self._trim(now)
        grown = self._growth()
        if grown <= 2 * limit:
            self._beyond = 0
            return
        if not self._beyond:
            self._beyond_since = now
        self._beyond += 1
        if self._beyond >= LOOKS_BEYOND and now - self._beyond_since >= BEYOND_S:
            self.exhausted = (
                f"out of the memory allowed: grown by {grown >> 20} MiB,"
                f" the limit is {2 * limit >> 20} (twice memory_mb of hetd.toml)"
            )

    def _stuffed(self) -> list[int]:
        """Return the connections with persistently unread input or output."""
        times: Counter[int] = Counter()
        for _ in range(SAMPLES):
            times.update(filter(_is_stuffed, self._uids))
            time.sleep(SAMPLE_S)
        return [descriptor for descriptor, seen in times.items() if 2 * seen > SAMPLES]


def raise_descriptor_limit() -> int:
    """Raise the soft limit on open files to the hard limit; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Use a descriptor of libzmq as a socket without closing it."""
    borrowed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor)
    try:
        yield borrowed
    finally:
        borrowed.detach()


def _uid_of(descriptor: int) -> int | None:
    """Return the uid of the peer from the kernel; None: the connection is closed."""
    try:
        with _borrowed(descriptor) as connection:
            found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except OSError:
        return None
    _, uid, _ = struct.unpack("3i", found)
    return int(uid)


def _is_stuffed(descriptor: int) -> bool:
    """Whether a connection has unread input, or output that the peer has not read."""
    waiting = bytearray(4)
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    except OSError:
        return False
    if any(waiting):
        return True
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    ready = poller.poll(0)
    return not ready


def _resident() -> int:
    """Return the resident memory of this process, bytes."""
    return int(os.pread(_statm(os.getpid()), 100, 0).split()[1]) * PAGE


def memory_bound(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> float:
    """Return the memory limit of this process's control group, bytes, or infinity."""
    try:
        group = own.read_text(encoding="ascii").strip().rpartition("::/")[2]
    except OSError:
        return math.inf
    bounds = [math.inf]
    for name in ("memory.high", "memory.max"):
        with contextlib.suppress(OSError, ValueError):
            bounds.append(float(cgroups.joinpath(group, name).read_text("ascii")))
    return min(bounds)


@functools.cache
def _statm(pid: int) -> int:
    """Open /proc/…/statm once: later there may be no descriptor for it."""
    return os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)


def _return_memory() -> None:
    """Return free heap memory to the system."""
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)
