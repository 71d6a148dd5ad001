"""Random kills of a pool's processes while it computes a batch: agents, daemons, the scheduler.

    python -m torture pool --seeds 15 --count 20

Each run is a batch of jobs with kills until it ends, at random moments. Each job is a call
that writes down that it ran, where and with which result. At the end each job must have the
one result that it would have had without kills; jobs that ran more than once are counted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetpool import as_completed
from libtask.errors import HetError
from pool.private_pool import kill, private_pool

if TYPE_CHECKING:
    import argparse

    from hetpool import PoolTask
    from pool.private_pool import PrivatePool

JOBS = 200
SECONDS = 0.3
ROUNDS = 50
PATIENCE_S = 300.0
PAUSE_S = (0.2, 2.0)
"""Between two kills, seconds."""
VICTIMS = ("agent", "hetd", "scheduler")
WEIGHTS = (5, 3, 2)


def digest(number: int) -> str:
    """Return the result of a job: the digest of a digest, many times."""
    text = str(number)
    for _ in range(ROUNDS):
        text = hashlib.sha256(text.encode()).hexdigest()
    return text


def job(number: int, folder: str) -> str:
    """Compute a result slowly and write down that it was computed."""
    time.sleep(SECONDS)
    result = digest(number)
    name = Path(folder) / f"{number}-{os.getpid()}-{time.monotonic_ns()}"
    name.write_text(result)
    return result


@dataclass(slots=True)
class PoolOrdeal:
    """One batch and the kills during it."""

    seed: int
    kills: dict[str, int] = field(default_factory=dict)
    executions: int = 0
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "kills": self.kills,
            "jobs": JOBS,
            "executions": self.executions,
            "seconds": round(self.seconds, 1),
            "complaints": self.complaints,
        }


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run a batch for each seed, with `count` kills at most."""
    rows = []
    for seed in range(options.first, options.first + options.seeds):
        ordeal = PoolOrdeal(seed)
        try:
            with private_pool(("n1", "n2")) as made:
                _batch(made, ordeal, options.count)
        except Exception:  # noqa: BLE001  the run failed, the others go on
            ordeal.complaints.append(traceback.format_exc())
        rows.append(ordeal.report())
        print(rows[-1], file=sys.stderr)
    return rows


def _batch(made: PrivatePool, ordeal: PoolOrdeal, count: int) -> None:
    folder = made.folder / "ran"
    folder.mkdir()
    with made.pool() as client:
        made.await_nodes(client, "n1", "n2")
        began = time.monotonic()
        tasks = client.map(job, range(JOBS), [str(folder)] * JOBS)
        ended = threading.Event()
        killer = _Killer(made, ordeal, count, ended)
        killer.start()
        try:
            _follow(tasks, ordeal)
        finally:
            ended.set()
            killer.join()
        ordeal.seconds = time.monotonic() - began
    ordeal.complaints += killer.complaints
    _judge(folder, ordeal)
    if ordeal.complaints:
        ordeal.complaints.append(made.logs())


def _follow(tasks: list[PoolTask], ordeal: PoolOrdeal) -> None:
    """Take the result of each job as it ends; compare it."""
    numbers = {id(task): number for number, task in enumerate(tasks)}
    seen: set[int] = set()
    for task in as_completed(tasks, timeout=PATIENCE_S):
        number = numbers[id(task)]
        if number in seen:
            ordeal.complaints.append(f"job {number} ended twice")
        seen.add(number)
        try:
            right = task.result(PATIENCE_S) == digest(number)
        except (HetError, TimeoutError) as error:
            ordeal.complaints.append(f"job {number}: {type(error).__name__}: {error}")
            continue
        if not right:
            ordeal.complaints.append(f"job {number}: another result")
    for number in sorted(set(range(len(tasks))) - seen):
        ordeal.complaints.append(f"job {number} never ended")


def _judge(folder: Path, ordeal: PoolOrdeal) -> None:
    """Look at what the jobs themselves wrote."""
    ran = [path.name.split("-")[0] for path in folder.iterdir()]
    ordeal.executions = len(ran)
    missing = set(map(str, range(JOBS))) - set(ran)
    ordeal.complaints += [f"job {number} never ran" for number in sorted(missing)]


class _Killer(threading.Thread):
    """Kills a process now and then and starts it again, as a service manager would."""

    def __init__(
        self, made: PrivatePool, ordeal: PoolOrdeal, count: int, ended: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self._made = made
        self._ordeal = ordeal
        self._count = count
        self._ended = ended
        self._draw = random.Random(ordeal.seed)
        self.complaints: list[str] = []

    def run(self) -> None:
        try:
            while sum(self._ordeal.kills.values()) < self._count:
                if self._ended.wait(self._draw.uniform(*PAUSE_S)):
                    return
                self._kill()
                self._revive()
            while not self._ended.wait(0.5):
                self._revive()
        except Exception:  # noqa: BLE001  a fault of this program is a complaint, too
            self.complaints.append(traceback.format_exc())

    def _kill(self) -> None:
        victim = self._draw.choices(VICTIMS, WEIGHTS)[0]
        name = self._draw.choice(sorted(self._made.nodes))
        self._ordeal.kills[victim] = self._ordeal.kills.get(victim, 0) + 1
        if victim == "agent":
            self._made.kill_node(name)
            self._made.start_node(name)
        elif victim == "scheduler":
            kill(self._made.scheduler)
            self._made.start_scheduler()
        else:
            daemon = self._made.nodes[name].daemon
            assert daemon is not None
            with contextlib.suppress(HetError):
                daemon.restart()

    def _revive(self) -> None:
        """Start what ended by itself."""
        for name, node in self._made.nodes.items():
            if node.process is not None and node.process.poll() is not None:
                self._made.start_node(name)
        scheduler = self._made.scheduler
        if scheduler is not None and scheduler.poll() is not None:
            self._made.start_scheduler()
