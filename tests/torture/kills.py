"""Random kills under load: of the daemon, of workers, of the launcher.

    python -m torture kills --seeds 3 --count 100

Clients go on asking while their daemon is killed at random moments and comes back,
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

from libtask.errors import HetError
from torture import failure_report
from torture.deployment import Deployment, NotInTimeError, eventually
from torture.history import ENDED, History, complaints
from torture.leaks import leaks
from torture.load import LoadClient, all_tasks
from torture.machine import spread

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

CLIENTS = 4
LIFE_S = 0.06
"""Longest life of a killed daemon after its first answer, seconds."""
RECOVERING = 0.2
"""Share of kills after which the daemon is killed again before it can answer."""
POLICIES = ("migration", "finish-time", "affinity", "felare")


@dataclass(slots=True)
class Run:
    """One run of an deployment under load, and what came of it.

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

    def failure_report(self) -> str:
        """Say all that matters of a run that failed, for whoever reads a test's report."""
        return "\n".join(
            [
                f"seed {self.seed}, policy {self.policy}, kills {self.kills}",
                f"everything is kept in {self.kept}",
                *(f"! {complaint}" for complaint in self.complaints),
                self.last_words,
            ]
        )


class LoadTest:
    """An deployment under load, from the first task to the judgement."""

    def __init__(self, deployment: Deployment, seed: int, policy: str) -> None:
        self.deployment = deployment
        self.run = Run(seed, policy)
        self.draw = random.Random(seed)
        self.history = History()
        deployment.start_daemon()
        deployment.await_answer()
        deployment.start_launcher()
        self.clients = [
            LoadClient(
                deployment.socket, self.history, f"c{n}", random.Random(seed * 100 + n)
            )
            for n in range(CLIENTS)
        ]
        for client in self.clients:
            client.start()

    def await_load(self) -> None:
        """Wait until some more submits were answered."""
        enough = len(self.history.acknowledged) + CLIENTS
        eventually(lambda: len(self.history.acknowledged) >= enough, "some load")

    def note_kill(self, victim: str) -> None:
        """Count a kill, and mark it in the log."""
        self.run.kills[victim] = self.run.kills.get(victim, 0) + 1
        with self.deployment.files.log.open("a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%F %T')} torture: the {victim} is killed\n")
        if victim == "daemon":
            self.run.in_flight += any(each.waits for each in self.clients)

    def disarm(self) -> None:
        """End what may have been told to fail, where an attack broke off."""
        self.deployment.kill_daemon()
        self.deployment.kill_launcher()
        self.deployment.start_launcher()

    def judge(self) -> Run:
        """Let everything end; find what is wrong."""
        if self.deployment.is_down():
            self.deployment.start_daemon()  # the attack broke off
        try:
            self._settle()
        except (NotInTimeError, HetError) as error:
            self.run.complaints.append(str(error))
        for client in self.clients:
            client.close()
            self.run.requests += client.requests
        self.run.recoveries = self.deployment.recoveries
        return self.run

    def _settle(self) -> None:
        run, deployment = self.run, self.deployment
        for client in self.clients:
            client.end()
            if client.error is not None:
                run.complaints.append(f"{client.name}: {_told(client.error)}")
        try:
            eventually(self.all_ended, "the end of all tasks")
        except NotInTimeError as error:  # the judge names who has not
            run.complaints += [
                str(error),
                *failure_report.processes(deployment.family()),
            ]
        tasks = all_tasks(deployment.socket)
        run.tasks = len(tasks)
        for task in tasks:
            run.states[task.state] = run.states.get(task.state, 0) + 1
        run.complaints += complaints(self.history, tasks)
        run.complaints += leaks(deployment, len(tasks))

    def all_ended(self) -> bool:
        """Whether every task has ended; else it pauses a little."""
        self.deployment.keep_launcher()
        tasks = all_tasks(self.deployment.socket)
        if all(task.state in ENDED for task in tasks):
            return True
        # the client that held them may have been unable to release them
        self.clients[0].release([each.id for each in tasks if each.state == "held"])
        time.sleep(0.05)
        return False

    def keep(self, folder: Path) -> None:
        """Keep what there is to the run, in a new folder."""
        run = self.run
        run.last_words = failure_report.ends_of_logs(self.deployment.folder)
        run.kept = failure_report.keep(
            run.report(), self.history, self.deployment.folder, folder
        )


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def kill_daemons(test: LoadTest, count: int) -> None:
    """Kill the daemon this number of times, at random moments."""
    for _ in range(count):
        time.sleep(test.draw.uniform(0, LIFE_S))
        _kill_daemon(test)
        if test.draw.random() < RECOVERING:
            test.deployment.start_daemon()
            time.sleep(test.draw.uniform(0, 0.03))
            _kill_daemon(test)
        test.deployment.start_daemon()
        test.deployment.await_answer()
        test.deployment.keep_launcher()


def _kill_daemon(test: LoadTest) -> None:
    test.note_kill("daemon")
    test.deployment.kill_daemon()


def kill_workers(test: LoadTest, count: int) -> None:
    """Kill workers this number of times, and now and then their launcher."""
    done = 0
    while done < count:
        time.sleep(test.draw.uniform(0, LIFE_S))
        test.deployment.keep_launcher()
        workers = test.deployment.workers()
        if not workers:
            continue
        if test.draw.random() < 0.1:
            test.note_kill("launcher")
            test.deployment.kill_launcher()
            done += 1
        else:
            done += _kill_worker(test, test.draw.choice(workers))


def _kill_worker(test: LoadTest, worker: psutil.Process) -> bool:
    """Kill a worker; return whether it was still there."""
    try:
        worker.kill()
    except psutil.NoSuchProcess:
        return False
    test.note_kill("worker")
    return True


def run_under_load(seed: int, attack: Callable[[LoadTest], None], folder: Path) -> Run:
    """Load an deployment, attack it, judge it.

    Args:
        seed: of what clients and attack draw.
        attack: does harm, and notes it.
        folder: the folder in which a run that failed is kept, in a folder of its own.

    """
    policy = POLICIES[seed % len(POLICIES)]
    began = time.monotonic()
    with Deployment(policy) as deployment:
        test = LoadTest(deployment, seed, policy)
        try:
            attack(test)
        except Exception as error:  # noqa: BLE001  the run reports it, whatever it is
            test.run.complaints.append(_told(error))
            test.disarm()
        run = test.judge()
        run.seconds = time.monotonic() - began
        if run.complaints:
            test.keep(folder)
    return run


def run_daemons(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Kill daemons, in one run for each seed."""
    return rows_of(chosen, kill_daemons)


def run_workers(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Kill workers and launchers, in one run for each seed."""
    return rows_of(chosen, kill_workers)


def rows_of(
    chosen: argparse.Namespace, attack: Callable[[LoadTest, int], None]
) -> list[dict[str, Any]]:
    """Attack so often as is chosen, in one run for each seed."""
    rows: list[dict[str, Any]] = []
    with contextlib.suppress(KeyboardInterrupt):  # what is done is reported
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            run = run_under_load(
                seed, lambda test: attack(test, chosen.count), chosen.keep
            )
            rows.append(run.report())
            sys.stderr.write(f"seed {seed}: {len(run.complaints)} complaints\n")
    return rows
