"""Attacks of one user on the service of others, beside an honest user; with real uids.

The daemon serves a group. One process becomes another user and asks for what costs most,
again and again; another is an honest user who writes down how long it waits. Only root
can become users.
"""

from __future__ import annotations

import contextlib
import grp
import itertools
import multiprocessing
import os
import socket as sockets
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from libtask import messages as m
from libtask.client.client import Client
from libtask.daemon.process import DaemonFiles, DaemonProcess
from libtask.errors import HetError
from torture.zmtp import RawPeer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event

    from libtask.messages import FromDaemon

ATTACKER, HONEST = 4203, 4201
"""Uids that need not be known to the system."""
LARGE = 900_000
PAUSE_S = 0.002
"""Between two requests of the honest user."""
START_S = 60.0
SECONDS = 10.0
"""Duration of each measured attack."""
RESOURCES = """
policy = "finish-time"
memory_mb = 256
[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
slots = 2
[[resource]]
name = "gpu0"
kind = "gpu"
driver = "null"
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attack went.

    Attributes:
        asked: requests of the attacker that were answered.
        waits: seconds that each answer to the honest user took.
        same_process: whether the daemon is the one that it was.
        grown: bytes by which it was larger than before, at most.

    """

    asked: int
    waits: list[float]
    same_process: bool
    grown: int

    def cut(self, percent: int) -> float:
        """Return a percentile of the waits, in seconds."""
        return statistics.quantiles(self.waits, n=100)[percent - 1]


# ---------------------------------------------------------------- the attacker


class Attacker:
    """Asks over one connection, without a client that would split and retry.

    Args:
        path: of the socket.

    """

    def __init__(self, path: Path) -> None:
        self._peer = RawPeer(path)
        self._peer.socket.settimeout(60.0)
        self._peer.greet()
        self.ask(m.Register("client"))
        self._keys = itertools.count()

    def ask(self, message: m.Message) -> FromDaemon:
        """Ask; return the answer, past messages that answer no request."""
        self._peer.send(m.encode(message))
        while True:
            answer = m.decode_from_daemon(self._peer.receive_frame())
            if not isinstance(answer, m.TaskChanged | m.Lagged):
                return answer

    def persist(self, message: m.Message) -> FromDaemon:
        """Ask until it is not put off."""
        while True:
            answer = self.ask(message)
            if not (isinstance(answer, m.Error) and answer.code == "busy"):
                return answer
            time.sleep(0.01)

    def submit(self, specs: list[m.TaskSpec]) -> list[int]:
        answer = self.persist(m.Submit(1, specs))
        if not isinstance(answer, m.Submitted):
            raise HetError(str(answer))
        return answer.ids

    def held(self, count: int, **fields: object) -> list[int]:
        """Submit this number of held tasks."""
        spec = m.TaskSpec("app", hold=True, **fields)  # type: ignore[arg-type]  # of a spec
        ids: list[int] = []
        while len(ids) < count:
            ids += self.submit([spec] * min(m.MAX_TASKS, count - len(ids)))
        return ids

    def large(self) -> int:
        """Submit a held task with large parameters."""
        data = {"data": "x" * LARGE}
        return self.submit([m.TaskSpec("app", data, hold=True)])[0]


def list_one_often(attacker: Attacker) -> Iterator[m.Message]:
    """F1: one large task, named as often as a message may."""
    task = attacker.large()
    yield from itertools.repeat(m.ListTasks(1, ids=[task] * m.MAX_IDS, detail=True))


def amend_many(attacker: Attacker) -> Iterator[m.Message]:
    """F2: 10,000 tasks in one request."""
    ids = attacker.held(10_000)
    for number in itertools.count():
        yield m.Amend(1, ids, priority=number % 100)


def list_large_history(attacker: Attacker) -> Iterator[m.Message]:
    """F4: a long list of large tasks that have ended."""
    ids = [attacker.large() for _ in range(100)]
    attacker.persist(m.Control(1, "cancel", ids))
    yield from itertools.repeat(m.ListTasks(1, limit=m.MAX_IDS, detail=True))


def fill_the_disk(attacker: Attacker) -> Iterator[m.Message]:
    """F7: large parameters, cancelled at once."""
    while True:
        yield m.Control(1, "cancel", [attacker.large()])


def hold_many(attacker: Attacker) -> Iterator[m.Message]:
    """F9: 10,000 tasks are held and released in turns."""
    ids = attacker.held(10_000)
    for verb in itertools.cycle(("release", "hold")):
        yield m.Control(1, verb, ids)  # type: ignore[arg-type]  # one of its words


def end_chains(attacker: Attacker) -> Iterator[m.Message]:
    """F9: 10,000 tasks that come after one are cancelled with it."""
    while True:
        head = attacker.held(1)[0]
        attacker.held(10_000, after=[head])
        yield m.Control(1, "cancel", [head])


ATTACKS: dict[str, Callable[[Attacker], Iterator[m.Message]]] = {
    "one large task, listed 10,000 times": list_one_often,
    "10,000 tasks amended": amend_many,
    "100 large ended tasks listed": list_large_history,
    "large tasks cancelled at once": fill_the_disk,
    "10,000 tasks held and released": hold_many,
    "10,000 dependents cancelled": end_chains,
}


# ---------------------------------------------------------------- the processes


class SharedDaemon:
    """A daemon that serves a group of users.

    Args:
        folder: a new one; others may enter it.
        config: text added to its configuration.

    """

    def __init__(self, folder: Path, config: str = "") -> None:
        folder.chmod(0o755)
        (folder / "run").mkdir(mode=0o755)
        self._group = next(g for g in grp.getgrall() if g.gr_gid > 0)
        named = f'socket_group = "{self._group.gr_name}"\n'
        files = DaemonFiles.within(folder / "run", named + RESOURCES + config)
        self.daemon = DaemonProcess(files)
        self.daemon.start(START_S)

    def close(self) -> None:
        if self.daemon.is_up():
            self.daemon.kill()

    def attack(self, name: str, seconds: float) -> Outcome:
        """Run an attack beside an honest user for this time; return the outcome."""
        fork = multiprocessing.get_context("fork")
        over, ready = fork.Event(), fork.Event()
        mine, theirs = fork.Pipe(duplex=False)
        attacker = fork.Process(
            target=self._attack, args=(name, ready, over, theirs), daemon=True
        )
        ours, honests = fork.Pipe(duplex=False)
        honest = fork.Process(target=self._ask, args=(over, honests), daemon=True)
        pid = self.daemon.pid
        before = resident(pid)
        attacker.start()
        try:
            if not ready.wait(120.0):
                raise TimeoutError(f"{name}: the attack does not begin")
            honest.start()
            grown = self._watch(seconds, before)
            over.set()
            waits: list[float] = ours.recv() if ours.poll(60.0) else []
            asked = mine.recv() if mine.poll(60.0) else 0
        finally:
            attacker.kill()
            if honest.pid is not None:
                honest.kill()
        same = self.daemon.is_up() and self.daemon.pid == pid
        return Outcome(asked, waits, same, grown)

    def _watch(self, seconds: float, before: int) -> int:
        """Let time pass; return how much larger the daemon has been."""
        until = time.monotonic() + seconds
        grown = 0
        while time.monotonic() < until and self.daemon.is_up():
            with contextlib.suppress(psutil.Error):
                grown = max(grown, resident(self.daemon.pid) - before)
            time.sleep(0.05)
        return grown

    def _become(self, uid: int) -> None:
        os.setgroups([self._group.gr_gid])
        os.setgid(self._group.gr_gid)
        os.setuid(uid)

    def _attack(self, name: str, ready: Event, over: Event, report: Connection) -> None:
        """Attack until it is over. Runs in a process of its own."""
        self._become(ATTACKER)
        attacker = Attacker(self.daemon.files.socket)
        asked = 0
        for request in ATTACKS[name](attacker):
            ready.set()
            if over.is_set():
                break
            with contextlib.suppress(sockets.timeout):
                attacker.ask(request)
                asked += 1
        report.send(asked)

    def _ask(self, over: Event, report: Connection) -> None:
        """Ask for small things until it is over. Runs in a process of its own."""
        self._become(HONEST)
        waits: list[float] = []
        with Client(self.daemon.files.socket) as client:
            spec = m.TaskSpec("app", hold=True)
            for number in itertools.count():
                begin = time.monotonic()
                if number % 4:
                    client.devices()
                else:
                    request = m.Submit(request=0, tasks=[spec], key=f"honest {begin}")
                    client._session.request(request)
                waits.append(time.monotonic() - begin)
                if over.is_set():
                    break
                time.sleep(PAUSE_S)
        report.send(waits)


def resident(pid: int) -> int:
    """Bytes of memory that a process occupies."""
    size: int = psutil.Process(pid).memory_info().rss
    return size


@contextlib.contextmanager
def shared_daemon(config: str = "") -> Iterator[SharedDaemon]:
    """Run a daemon for the time of a block."""
    with tempfile.TemporaryDirectory(prefix="hetd-") as folder:
        made = SharedDaemon(Path(folder), config)
        try:
            yield made
        finally:
            made.close()


# ---------------------------------------------------------------- the measurement


def run(_chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every attack; return one row each."""
    if os.getuid() != 0:
        return [{"case": "attacks", "skipped": "only root can become other users"}]
    with shared_daemon() as daemon:
        return [_row(daemon.attack(name, SECONDS), name) for name in ATTACKS]


def _row(outcome: Outcome, name: str) -> dict[str, Any]:
    return {
        "case": name,
        "attacker_requests": outcome.asked,
        "honest_requests": len(outcome.waits),
        "p50_ms": round(1e3 * outcome.cut(50), 2),
        "p99_ms": round(1e3 * outcome.cut(99), 2),
        "longest_ms": round(1e3 * max(outcome.waits), 2),
        "same_process": outcome.same_process,
        "grown_mib": round(outcome.grown / 2**20, 1),
    }
