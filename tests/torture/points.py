"""A kill at every named step of the protocol, the first time and a later time.

    python -m torture points [--count 3]

Under the load of clients, daemon after daemon (launcher after launcher, with its
workers) is started with the next fault point armed, and provoked to reach it. Each point
leaves a mark when it fails, so that none is missed. At the end everything must have come
true that was acknowledged.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import TYPE_CHECKING, Any, Literal

import psutil

from libtask import messages as m
from libtask.client.session import Session
from libtask.errors import HetError
from libtask.faultpoints import IN_DAEMON, IN_LAUNCHER, POINTS
from torture import counting
from torture.deployment import eventually
from torture.history import name_of
from torture.kills import run_under_load
from torture.load import DEAF, described

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from torture.kills import LoadTest, Run

HOLD_AND_GO_ON: tuple[Literal["hold", "snapshot", "release"], ...] = (
    "hold",
    "snapshot",
    "release",
)
PROVOKE_S, LONGEST_S = 0.02, 2.0
"""Seconds after a provocation, the first and at most: on a busy machine a
new process must register before the next provocation ends it."""
GROWTH = 1.3
"""Of that time, from one to the next."""


class Walk:
    """One walk over the points of some processes.

    Attributes:
        reached: (point, hit) of those that failed.

    """

    def __init__(self, test: LoadTest) -> None:
        self.test = test
        self.reached: list[tuple[str, int]] = []
        self._deployment = test.deployment
        self._numbers = itertools.count()
        self._order = ""
        self._provocations: dict[str, Callable[[], None]] = {
            "launcher.forked": self._kill_worker,
            "exit.drafted": self._kill_worker,
            "exit.recorded": self._kill_worker,
            "exit.told": self._kill_worker,
            "snapshot.reported": self._keep_waiting,
        }

    # ------------------------------------------------------------ walking

    def all(self, chosen: Sequence[tuple[str, int]]) -> None:
        """Walk over points of all processes; raise where one is not reached."""
        self.daemons([each for each in chosen if each[0] in IN_DAEMON])
        self.launchers([each for each in chosen if each[0] not in IN_DAEMON])

    def daemons(self, hits: Iterable[tuple[str, int]]) -> None:
        """Walk over points of the daemon."""
        self.test.await_load()
        self._deployment.kill_daemon()
        for point, hit in hits:
            marker = self._marker(point, hit)
            self._order = _order(point, hit, marker)
            self._deployment.start_daemon(self._order)
            self._provoke(point, marker)
            eventually(self._deployment.is_down, "its end")
            self._note("daemon", point, hit)
        self._order = ""
        self._deployment.start_daemon()
        self._deployment.await_answer()

    def launchers(self, hits: Iterable[tuple[str, int]]) -> None:
        """Walk over points of the launcher and of workers."""
        for point, hit in hits:
            marker = self._marker(point, hit)
            self._replace_launcher(_order(point, hit, marker))
            self._provoke(point, marker)
            self._note("launcher" if point in IN_LAUNCHER else "worker", point, hit)
        self._deployment.keep_launcher()

    def _provoke(self, point: str, marker: Path) -> None:
        """Do what leads to a point, until it is reached."""
        provoke = self._provocations.get(point, self._deployment.keep_launcher)
        pause, due = PROVOKE_S, 0.0

        def look() -> bool:
            nonlocal pause, due
            if not marker.exists() and time.monotonic() > due:
                # it leaves at once where a dying one still has the lock
                self._deployment.keep_launcher()
                provoke()
                self._keep_daemon(marker)
                due = time.monotonic() + pause
                pause = min(GROWTH * pause, LONGEST_S)
            return marker.exists()

        eventually(look, f"fault point {point}")

    def _keep_daemon(self, marker: Path) -> None:
        """Start a daemon that ended by itself, and not at the point."""
        if self._deployment.is_down() and not marker.exists():
            self._deployment.start_daemon(self._order)

    def _note(self, victim: str, point: str, hit: int) -> None:
        self.reached.append((point, hit))
        self.test.note_kill(victim)

    def _marker(self, point: str, hit: int) -> Path:
        return self._deployment.folder / f"{point}-{hit}.failed"

    def _replace_launcher(self, fail: str) -> None:
        self._deployment.kill_launcher()
        for worker in self._deployment.workers():
            _kill(worker)
        self._deployment.start_launcher(fail)

    # ------------------------------------------------------------ provocations

    def _kill_worker(self) -> None:
        self._deployment.keep_launcher()
        for worker in self._deployment.workers()[:1]:
            _kill(worker)

    def _keep_waiting(self) -> None:
        """Take a snapshot of a task that is held in its worker."""
        with (
            contextlib.suppress(HetError),
            self._one_task(iterations=100, pause_s=0.005) as (session, ids),
        ):
            for verb in HOLD_AND_GO_ON:
                session.request(m.Control(request=0, verb=verb, ids=ids))
                time.sleep(0.05)

    @contextlib.contextmanager
    def _one_task(
        self, iterations: int, pause_s: float
    ) -> Iterator[tuple[Session, list[int]]]:
        """Submit a task that goes before others; nothing may come of it."""
        self._deployment.keep_launcher()
        history, key = self.test.history, f"provoked-{next(self._numbers)}"
        params = {"seed": 1, "iterations": iterations, "pause_s": pause_s}
        history.ask(key, [counting.reference(1, iterations)])
        specs = [described(name_of(key, 0), params, priority=1)]
        with _asking(self._deployment.socket) as session:
            ids = session.request(m.Submit(request=0, tasks=specs, key=key)).ids
            history.acknowledge(key, ids)
            time.sleep(0.05)
            yield session, ids


def _order(point: str, hit: int, marker: Path) -> str:
    """Write a value of `HETD_FAIL`."""
    return f"{point}:{hit}:kill:{marker}"


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


@contextlib.contextmanager
def _asking(socket: Path) -> Iterator[Session]:
    session = Session(socket, DEAF, timeout=1.0, patience=0.2)
    try:
        yield session
    finally:
        session.close()


def hits(points: Iterable[str], later: int) -> list[tuple[str, int]]:
    """Pair each point with its first hit and a later one."""
    return [(point, hit) for point in points for hit in (1, later)]


def walk_all(chosen: Sequence[tuple[str, int]], folder: Path) -> tuple[Run, list[str]]:
    """Walk over these (point, hit); return what came of it, and the points reached."""
    walks: list[Walk] = []

    def attack(test: LoadTest) -> None:
        walks.append(Walk(test))
        walks[0].all(chosen)

    came = run_under_load(0, attack, folder)
    reached = {point for point, _ in walks[0].reached}
    missed = [point for point in dict(chosen) if point not in reached]
    came.complaints += [f"fault point {point} was not reached" for point in missed]
    return came, sorted(reached)


def run_all(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Walk once; the later time is the third."""
    names = [name for name in chosen.only.split(",") if name] or list(POINTS)
    came, reached = walk_all(hits(names, 3), chosen.keep)
    return [{**came.report(), "points": len(reached)}]
