"""Random kills under load: of the daemon, of workers, of the launcher.

    python -m hettorture kills --seeds 3 --count 100

Customers go on asking while their daemon is killed at random moments and comes back,
now and then to be killed again while it recovers. At the end everything must have
come true that was acknowledged; of a run in which it has not, everything is kept.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from hettorture import story
from hettorture.arena import Arena, NotInTimeError, eventually
from hettorture.customers import Customer, all_tasks
from hettorture.history import ENDED, History, complaints
from hettorture.machine import spread
from hettorture.remains import remains
from libtask.errors import HetError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

CUSTOMERS = 4
LIFE_S = 0.06
"""A daemon that is killed lives so long after its first answer, at most."""
RECOVERING = 0.2
"""Share of kills after which the daemon is killed again before it can answer."""
POLICIES = ("migration", "finish-time", "affinity", "felare")


@dataclass(slots=True)
class Run:
    """One run of an arena under load, and what came of it.

    Attributes:
        moves: of the mover's tasks.
        in_flight: kills at whose moment somebody waited for an answer.
        kept: the folder that holds what there is to a run that failed.
        last_words: the ends of the logs, of a run that failed.

    """

    seed: int
    policy: str
    kills: dict[str, int] = field(default_factory=dict)
    moves: int = 0
    in_flight: int = 0
    requests: int = 0
    tasks: int = 0
    states: dict[str, int] = field(default_factory=dict)
    recoveries: list[float] = field(default_factory=list)
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)
    kept: Path | None = None
    last_words: str = ""

    def report(self) -> dict[str, Any]:
        """Return the row of this run."""
        return {
            "seed": self.seed,
            "policy": self.policy,
            "kills": self.kills,
            "moves": self.moves,
            "kills_with_requests_in_flight": self.in_flight,
            "requests": self.requests,
            "tasks": self.tasks,
            "ends": self.states,
            "time_to_answer_again": spread(self.recoveries),
            "seconds": round(self.seconds, 1),
            **({"kept": str(self.kept)} if self.kept else {}),
            "complaints": self.complaints,
        }

    def story(self) -> str:
        """Say all that matters of a run that failed, for whoever reads a test's report."""
        return "\n".join(
            [
                f"seed {self.seed}, policy {self.policy}, kills {self.kills}",
                f"everything is kept in {self.kept}",
                *(f"! {complaint}" for complaint in self.complaints),
                self.last_words,
            ]
        )


class Siege:
    """An arena under load, from the first task to the judgement."""

    def __init__(self, arena: Arena, seed: int, policy: str) -> None:
        self.arena = arena
        self.run = Run(seed, policy)
        self.draw = random.Random(seed)
        self.history = History()
        arena.start_daemon()
        arena.await_answer()
        arena.start_launcher()
        self.customers = [
            Customer(arena.socket, self.history, f"c{n}", random.Random(seed * 100 + n))
            for n in range(CUSTOMERS)
        ]
        for customer in self.customers:
            customer.start()

    def await_load(self) -> None:
        """Wait until some more submits were answered."""
        enough = len(self.history.acknowledged) + CUSTOMERS
        eventually(lambda: len(self.history.acknowledged) >= enough, "some load")

    def note_kill(self, victim: str) -> None:
        """Count a kill, and mark it in the log."""
        self.run.kills[victim] = self.run.kills.get(victim, 0) + 1
        with self.arena.files.log.open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%F %T')} torture: the {victim} is killed\n")
        if victim == "daemon":
            self.run.in_flight += any(each.waits for each in self.customers)

    def disarm(self) -> None:
        """End what may have been told to fail, where an attack broke off."""
        self.arena.kill_daemon()
        self.arena.kill_launcher()
        self.arena.start_launcher()

    def judge(self) -> Run:
        """Let everything end; find what is wrong."""
        if self.arena.is_down():
            self.arena.start_daemon()  # the attack broke off
        try:
            self._settle()
        except (NotInTimeError, HetError) as error:
            self.run.complaints.append(str(error))
        for customer in self.customers:
            customer.close()
            self.run.requests += customer.requests
        self.run.recoveries = self.arena.recoveries
        return self.run

    def _settle(self) -> None:
        run, arena = self.run, self.arena
        for customer in self.customers:
            customer.end()
            if customer.error is not None:
                run.complaints.append(f"{customer.name}: {_told(customer.error)}")
        try:
            eventually(self.all_ended, "the end of all tasks")
        except NotInTimeError as error:  # the judge names who has not
            run.complaints += [str(error), *story.processes(arena.family())]
        tasks = all_tasks(arena.socket)
        run.tasks = len(tasks)
        for task in tasks:
            run.states[task.state] = run.states.get(task.state, 0) + 1
        run.complaints += complaints(self.history, tasks)
        run.complaints += remains(arena, len(tasks))

    def all_ended(self) -> bool:
        """Whether every task has ended; else it pauses a little."""
        self.arena.keep_launcher()
        tasks = all_tasks(self.arena.socket)
        if all(task.state in ENDED for task in tasks):
            return True
        # who held them may have been unable to say that they go on
        self.customers[0].release([each.id for each in tasks if each.state == "held"])
        time.sleep(0.05)
        return False

    def keep(self, shelf: Path) -> None:
        """Keep what there is to the run, in a new folder."""
        run = self.run
        run.last_words = story.ends_of_logs(self.arena.folder)
        run.kept = story.keep(run.report(), self.history, self.arena.folder, shelf)


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def kill_daemons(siege: Siege, count: int) -> None:
    """Kill the daemon so many times, at random moments."""
    for _ in range(count):
        time.sleep(siege.draw.uniform(0, LIFE_S))
        _kill_daemon(siege)
        if siege.draw.random() < RECOVERING:
            siege.arena.start_daemon()
            time.sleep(siege.draw.uniform(0, 0.03))
            _kill_daemon(siege)
        siege.arena.start_daemon()
        siege.arena.await_answer()
        siege.arena.keep_launcher()


def _kill_daemon(siege: Siege) -> None:
    siege.note_kill("daemon")
    siege.arena.kill_daemon()


def kill_crews(siege: Siege, count: int) -> None:
    """Kill workers so many times, and now and then their launcher."""
    done = 0
    while done < count:
        time.sleep(siege.draw.uniform(0, LIFE_S))
        siege.arena.keep_launcher()
        workers = siege.arena.workers()
        if not workers:
            continue
        if siege.draw.random() < 0.1:  # noqa: PLR2004  one in ten
            siege.note_kill("launcher")
            siege.arena.kill_launcher()
            done += 1
        else:
            done += _kill_worker(siege, siege.draw.choice(workers))


def _kill_worker(siege: Siege, worker: psutil.Process) -> bool:
    """Kill a worker; return whether it was still there."""
    try:
        worker.kill()
    except psutil.NoSuchProcess:
        return False
    siege.note_kill("worker")
    return True


def besiege(seed: int, attack: Callable[[Siege], None], shelf: Path) -> Run:
    """Load an arena, attack it, judge it.

    Args:
        seed: of what customers and attack draw.
        attack: does harm, and notes it.
        shelf: the folder in which a run that failed is kept, in a folder of its own.

    """
    policy = POLICIES[seed % len(POLICIES)]
    began = time.monotonic()
    with Arena(policy) as arena:
        siege = Siege(arena, seed, policy)
        try:
            attack(siege)
        except Exception as error:  # noqa: BLE001  whatever it is, the run tells of it
            siege.run.complaints.append(_told(error))
            siege.disarm()
        run = siege.judge()
        run.seconds = time.monotonic() - began
        if run.complaints:
            siege.keep(shelf)
    return run


def run_daemons(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Kill daemons, in one run for each seed."""
    return rows_of(chosen, kill_daemons)


def run_crews(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Kill workers and launchers, in one run for each seed."""
    return rows_of(chosen, kill_crews)


def rows_of(
    chosen: argparse.Namespace, attack: Callable[[Siege, int], None]
) -> list[dict[str, Any]]:
    """Attack so often as is chosen, in one run for each seed."""
    rows: list[dict[str, Any]] = []
    with contextlib.suppress(KeyboardInterrupt):  # what is done is reported
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            run = besiege(seed, lambda siege: attack(siege, chosen.count), chosen.keep)
            rows.append(run.report())
            sys.stderr.write(f"seed {seed}: {len(run.complaints)} complaints\n")
    return rows
