"""A soak: mixed load and faults for a long time, and what grows meanwhile.

    python -m torture soak --minutes 10

The daemon is started as users start it and lives through the whole run, while workers,
the launcher and clients come and go; its memory, descriptors, threads and files are
looked at all the time. The slope is that of the second half: before it, caches fill.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import psutil

from hetd.tasks.journal import RECENT
from libtask import messages as m
from libtask.launcher.exit_records import MOST_EXITS
from libtask.worker.logs import LOGS
from torture import counting
from torture.history import name_of
from torture.kills import LoadTest, kill_workers, run_under_load
from torture.leaks import DRAFTS, descriptors
from torture.load import LoadClient, described

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from torture.deployment import Deployment
    from torture.kills import Run

LOOK_S = 2.0
FEW_KILLS = 5
REST_S = 2.0
"""Between two such attacks: tasks are to run, and to end."""
MOST_SLOPE = 0.01
"""Growth over the second half, as a share of its start."""
ROOM_BYTES = 4 << 20
MOST_DESCRIPTORS = 24
"""Growth that does not count as a leak, however small the start: pages of an allocator, connections
that come and go; a worker is two descriptors, and some ten of them come and go."""
ENDED_BYTES = 4096
"""Bytes that the daemon may keep in memory for each of the newest `RECENT` ended tasks."""
MOST_FILES = MOST_EXITS + LOGS + 200
"""Exits of workers, and their logs, are kept up to these numbers."""
SMALL_TASKS = 5000
"""Tasks of one iteration that are submitted each minute, beside the mixed load."""
BATCHES = 60
"""Requests a minute in which they come."""
MOST_LOG_BYTES = 64 << 20
"""Of the write-ahead log."""


@dataclass(frozen=True, slots=True)
class Look:
    """Measurements at one moment. Sizes in bytes; of tasks, how many there were."""

    at_s: float
    memory: int
    descriptors: int
    threads: int
    log: int
    files: int
    drafts: int
    zombies: int
    tasks: int


class Steady(LoadClient):
    """A client who submits the same number of small tasks each minute."""

    _next = 0.0
    _watches = False

    def _act(self) -> None:
        if not self._watches:
            self._watches = True
            self._ask(m.Subscribe(request=0, progress=False))
        now = time.monotonic()
        if now < self._next:
            self._enough.wait(self._next - now)
            return
        self._next = max(self._next, now - 1.0) + 60 / BATCHES
        if len(self._live) < SMALL_TASKS // 10:  # else the machine does not keep up
            self._submit_small(SMALL_TASKS // BATCHES)

    def _submit_small(self, number: int) -> None:
        key = f"{self.name}-{len(self._keys)}"
        seeds = [self._draw.randrange(1 << 32) for _ in range(number)]
        wanted = [{"seed": seed, "iterations": 1} for seed in seeds]
        specs = [described(name_of(key, n), each) for n, each in enumerate(wanted)]
        self._history.ask(key, [counting.reference(seed, 1) for seed in seeds])
        self._keys.append((key, specs))
        self._send(key, specs)


class Soak:
    """Watches one daemon while it is loaded and attacked."""

    def __init__(self, test: LoadTest, minutes: float) -> None:
        self.looks: list[Look] = []
        self._test = test
        self._seconds = 60 * minutes
        self._visitors = 0

    def endure(self) -> None:
        """Load and attack for the whole time."""
        began = time.monotonic()
        self._restart_as_users_do()
        test = self._test
        draw = random.Random(test.run.seed)
        steady = Steady(test.deployment.socket, test.history, "steady", draw)
        steady.start()
        try:
            self._attack(began)
            steady.end()
        finally:
            steady.close()

    def _attack(self, began: float) -> None:
        while (now := time.monotonic() - began) < self._seconds:
            kill_workers(self._test, FEW_KILLS)
            self._visit()
            time.sleep(REST_S)
            if not self.looks or now - self.looks[-1].at_s > LOOK_S:
                self.looks.append(self._look(now))

    def _restart_as_users_do(self) -> None:
        """Take a daemon that has imported only what it needs: its memory is looked at."""
        deployment = self._test.deployment
        deployment.kill_daemon()
        deployment.start_wrapped(())
        deployment.await_answer()

    def _visit(self) -> None:
        """Let a client come, ask for something and go."""
        test = self._test
        self._visitors += 1
        draw = random.Random(test.run.seed + self._visitors)
        name = f"v{self._visitors}"
        visitor = LoadClient(test.deployment.socket, test.history, name, draw)
        visitor.start()
        test.draw.random()
        visitor.end()
        visitor.close()

    def _look(self, now: float) -> Look:
        deployment = self._test.deployment
        daemon = psutil.Process(deployment.daemon)
        # `os.walk` passes over folders that go away meanwhile
        files = [name for _, _, names in os.walk(deployment.folder) for name in names]
        return Look(
            at_s=round(now, 1),
            memory=daemon.memory_info().rss,
            descriptors=descriptors(daemon.pid),
            threads=daemon.num_threads(),
            log=_size_of_log(deployment),
            files=len(files),
            drafts=sum(fnmatchcase(name, each) for each in DRAFTS for name in files),
            zombies=_zombies(deployment),
            tasks=self._test.history.latest(),
        )

    # ------------------------------------------------------------ judgement

    def report(self) -> dict[str, Any]:
        """Return the figures of the second half."""
        half = self.looks[len(self.looks) // 2 :]
        return {
            "looks": len(self.looks),
            "tasks_at_looks": [each.tasks for each in self._some()],
            "memory_mib": [round(each.memory / 2**20, 1) for each in self._some()],
            "memory_growth": round(_growth([each.memory for each in half]), 4),
            "descriptors": [each.descriptors for each in self._some()],
            "threads": [each.threads for each in self._some()],
            "files": [each.files for each in self._some()],
            "tasks_a_minute": self._rate(half),
            "largest_write_ahead_log_mib": round(
                max(each.log for each in self.looks) / 2**20, 1
            ),
            "most_zombies_at_a_look": max(each.zombies for each in self.looks),
            "most_drafts_at_a_look": max(each.drafts for each in self.looks),
        }

    def _rate(self, looks: list[Look]) -> int:
        """Return how many tasks a minute there were."""
        passed = looks[-1].at_s - looks[0].at_s
        return round(60 * (looks[-1].tasks - looks[0].tasks) / max(passed, 1.0))

    def complaints(self) -> list[str]:
        """Say what grew."""
        half = self.looks[len(self.looks) // 2 :]
        found = []
        for what, values, room in (
            ("memory", [each.memory for each in half], ROOM_BYTES + _filled(half)),
            ("descriptors", [each.descriptors for each in half], MOST_DESCRIPTORS),
        ):
            growth = _growth(values)
            if growth > MOST_SLOPE and growth * values[0] > room:
                found.append(f"{what} grew by {growth:.1%} over the second half")
        if (files := max(each.files for each in self.looks)) > MOST_FILES:
            found.append(f"there were {files} files")
        if max(each.log for each in self.looks) > MOST_LOG_BYTES:
            found.append("the write-ahead log grew beyond its limit")
        return found

    def _some(self) -> list[Look]:
        """Pick looks for a report: at most ten, evenly spaced, the last among them."""
        step = max(1, len(self.looks) // 10)
        return self.looks[::-1][::step][::-1]


def _filled(looks: list[Look]) -> int:
    """Return by how much tasks that ended may have filled what is kept of them."""
    first, last = (min(looks[end].tasks, RECENT) for end in (0, -1))
    return ENDED_BYTES * (last - first)


def _growth(values: list[int]) -> float:
    """Return the growth of a fitted line over its length, as a share of its start."""
    if len(values) < 3:
        return 0.0
    line = statistics.linear_regression(range(len(values)), values)
    return line.slope * (len(values) - 1) / max(1.0, line.intercept)


def _size_of_log(deployment: Deployment) -> int:
    log = deployment.files.state / "hetd.db-wal"
    return log.stat().st_size if log.exists() else 0


def _zombies(deployment: Deployment) -> int:
    """Count zombies that are nobody's but the daemon's, launcher's and workers'."""
    count = 0
    for process in deployment.family():
        try:
            count += process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            continue
    return count


def soak(seed: int, minutes: float, folder: Path) -> tuple[Run, dict[str, Any]]:
    """Soak once; return what came of it, and the figures, none if it broke off at once.

    Args:
        seed: of what is drawn.
        minutes: how long.
        folder: where it is kept if it fails.

    """
    soaks: list[Soak] = []

    def attack(test: LoadTest) -> None:
        soaks.append(Soak(test, minutes))
        soaks[0].endure()
        test.run.complaints += soaks[0].complaints()

    came = run_under_load(seed, attack, folder)
    return came, soaks[0].report() if soaks and soaks[0].looks else {}


def run(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Soak once."""
    came, figures = soak(chosen.first, chosen.minutes, chosen.keep)
    return [{**came.report(), **figures, "minutes": chosen.minutes}]
