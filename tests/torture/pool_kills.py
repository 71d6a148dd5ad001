"""Random kills of a pool's processes, and cuts of its links, while it computes a batch.

    python -m torture pool --seeds 15 --count 20

Each run is a batch of jobs; until it ends, workers, agents, daemons and the scheduler are
killed at random moments and started again, and links are cut and mended. At the end each
job must have the one result that it would have had without that, and none may have run in
two places at once; executions are counted. Links are network namespaces: where the kernel
does not allow them, cuts are left out and counted as such, with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetpool.setup.namespaces import obstacle
from pool.private_pool import DAEMON, HEAD, PATIENCE, kill, private_pool
from torture.pool_batch import JOBS, PATIENCE_S, judge

if TYPE_CHECKING:
    import argparse

    from pool.private_pool import PrivatePool

PAUSE_S = (0.1, 1.5)
"""Before a kill, seconds, when enough jobs have been computed since the last one..."""
LONGEST_S = 20.0
"""...or this time has passed: what was killed needs it to start on a busy machine."""
CUT_S = (0.5, 25.0)
"""Seconds for which a link stays cut: in a third of them the node's jobs run elsewhere."""
LOOK_S = 0.2
RAN = "ran"
"""Folder in which jobs write down that they ran."""
LINK = "link"
VICTIMS = {"worker": 4, "agent": 4, "hetd": 3, "scheduler": 2, LINK: 4}
"""Processes to kill and links to cut, with weights."""
# a job that is killed over and over must not be given up for that
CONFIG = "attempts = 1000\n" + DAEMON


@dataclass(slots=True)
class PoolOrdeal:
    """One batch and what was done to its pool.

    Attributes:
        kills: by victim; a cut of a link is one.
        unlinked: why links could not be cut; `uncut`: how many cuts were left out.
        story: what was done when, for a run that fails.

    """

    seed: int
    unlinked: str = ""
    uncut: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    executions: int = 0
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        left_out = {"cuts_left_out": self.uncut, "because": self.unlinked}
        return {
            "seed": self.seed,
            "kills": self.kills,
            **(left_out if self.unlinked else {}),
            "jobs": JOBS,
            "executions": self.executions,
            "seconds": self.seconds,
            "load": round(os.getloadavg()[0], 2),
            "complaints": self.complaints,
        }


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run a batch for each seed, with `count` kills at most."""
    rows = []
    unlinked = obstacle()
    for seed in range(options.first, options.first + options.seeds):
        ordeal = PoolOrdeal(seed, unlinked)
        try:
            with private_pool(linked=not unlinked, daemon=CONFIG) as made:
                _batch(made, ordeal, options.count)
        except Exception:  # noqa: BLE001  the run failed, the others go on
            ordeal.complaints.append(traceback.format_exc())
        rows.append(ordeal.report())
        print(rows[-1], file=sys.stderr)
    return rows


def _batch(made: PrivatePool, ordeal: PoolOrdeal, count: int) -> None:
    folder = made.folder / RAN
    folder.mkdir()
    words = [sys.executable, "-m", "torture.pool_batch", str(made.config), str(folder)]
    client = subprocess.Popen(
        made.command(HEAD, words), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    ended = threading.Event()
    killer = _Killer(made, ordeal, count, ended)
    killer.start()
    try:
        _await(client, ordeal)
    finally:
        client.kill()
        ended.set()
        killer.join()
    ordeal.executions, wrong = judge(folder)
    ordeal.complaints += killer.complaints + wrong
    if ordeal.complaints:
        ordeal.complaints += [*ordeal.story, *made.unfinished(), made.logs()]


def _await(client: subprocess.Popen[bytes], ordeal: PoolOrdeal) -> None:
    """Wait for the client and take over what it says."""
    try:
        out, errors = client.communicate(timeout=2 * PATIENCE_S)
    except subprocess.TimeoutExpired:
        client.kill()
        out, errors = client.communicate()
    if client.returncode:
        text = f"the client ended with {client.returncode}: {errors.decode()}"
        ordeal.complaints.append(text)
        return
    said = json.loads(out)
    ordeal.complaints += said["complaints"]
    ordeal.seconds = said["seconds"]


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
        self._began = time.monotonic()
        self._mend_at: dict[str, float] = {}
        self.complaints: list[str] = []

    def run(self) -> None:
        try:
            while self._done() < self._count and self._may_strike():
                self._strike()
            while not self._ended.wait(LOOK_S):
                self._revive()
        except Exception:  # noqa: BLE001  a fault of this program is a complaint, too
            self.complaints.append(traceback.format_exc())

    def _done(self) -> int:
        return sum(self._ordeal.kills.values())

    def _may_strike(self) -> bool:
        """Wait for the moment of the next kill; False: the batch has ended."""
        due = JOBS * (self._done() + 1) // (self._count + 2)
        folder, latest = self._made.folder / RAN, time.monotonic() + LONGEST_S
        while len(list(folder.iterdir())) < due and time.monotonic() < latest:
            if self._ended.wait(LOOK_S):
                return False
            self._revive()
        return not self._ended.wait(self._draw.uniform(*PAUSE_S))

    def _strike(self) -> None:
        """Kill or cut something; nothing may be there, which does not count."""
        victim = self._draw.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        name = self._draw.choice(sorted(self._made.nodes))
        if victim == LINK and self._ordeal.unlinked:
            self._ordeal.uncut += 1
        elif getattr(self, f"_kill_{victim}")(name):
            self._ordeal.kills[victim] = self._ordeal.kills.get(victim, 0) + 1
            self._note(f"{victim} ({name})")

    def _note(self, what: str) -> None:
        at = time.strftime("%H:%M:%S")
        self._ordeal.story.append(f"{at} {time.monotonic() - self._began:6.1f} {what}")

    def _kill_agent(self, name: str) -> bool:
        self._made.kill_node(name)
        self._made.start_node(name)
        return True

    def _kill_scheduler(self, _: str) -> bool:
        kill(self._made.scheduler)
        self._made.start_scheduler()
        return True

    def _kill_hetd(self, name: str) -> bool:
        daemon = self._made.nodes[name].daemon
        assert daemon is not None
        daemon.kill9()
        daemon.start(PATIENCE)
        return True

    def _kill_worker(self, _: str) -> bool:
        workers = self._made.workers()
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._draw.choice(workers), signal.SIGKILL)
            return True
        return False

    def _kill_link(self, name: str) -> bool:
        """Cut the link of a node, or that of the scheduler and the client."""
        machine = self._draw.choice([name, name, HEAD])
        if machine in self._mend_at:
            return False
        assert self._made.machines is not None
        self._made.machines.cut(machine)
        length = self._draw.uniform(*CUT_S)
        self._mend_at[machine] = time.monotonic() + length
        self._note(f"link of {machine}, for {length:.1f} s:")
        return True

    def _revive(self) -> None:
        """Start what ended by itself, and mend links whose time has come."""
        now = time.monotonic()
        for machine in [each for each, at in self._mend_at.items() if at <= now]:
            assert self._made.machines is not None
            self._made.machines.mend(machine)
            del self._mend_at[machine]
            self._note(f"link of {machine} is back")
        for ended in self._made.revive():
            self._note(ended)
