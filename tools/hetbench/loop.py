"""Processor time of hetd's main thread for a no-op task: the daemon's loop without sockets.

The loop, the node, the store and the codec are the daemon's own; frames come from and go
to lists, and workers answer at once. Time is that of the thread, so that what else runs
counts little; the ratio to a loop of plain Python, measured in turns with it, tells
machines (and moments) of different speed apart. A ratio well above the recorded one is
reported as a regression.
"""

from __future__ import annotations

import gc
import json
import os
import select
import statistics
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetbench.machine import STEPS, calibrate
from hetbench.noop import Noop
from hetbench.resources import CPU_ONLY
from hetd.assembly import assemble, make_loop
from hetd.config import ActiveConfig, read_config
from hetd.store import Store
from hetd.tasks.journal import Journal
from hetd.transport.router import Envelope, Peer
from hetd.workers.pool import WorkerPool
from hetsched.estimates.table import EstimateTable
from hetsched.policies import make_policy
from hetsched.tasks import State
from libtask import messages as m
from libtask.apps import Options, describe, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetd.transport.poller import WatchedProcess

TASKS = 3000
SUBMIT = 500
ROUNDS = 15
WORKERS = 2
RECORDED = Path(__file__).parents[2] / "docs/measurements/loop-2-cores.json"
"""Printed output of an earlier run, to compare with."""
TOLERANCE = 1.15
"""Ratio to the recorded calibration steps above which a regression is reported."""
AT_ONCE = 256
"""Messages that the loop takes in one turn, as from the socket."""


class ListRouter:
    """A router whose peers are lists of frames."""

    def __init__(self) -> None:
        self.inbox: deque[tuple[Peer, bytes]] = deque()
        self.sent: list[tuple[bytes, m.Message]] = []
        self.frames = 0
        self.strained = False
        self.full: frozenset[bytes] = frozenset()

    def receive(self, _is_put_off: Callable[[int], bool]) -> Iterator[Envelope]:
        for _ in range(AT_ONCE):
            if not self.inbox:
                return
            peer, frame = self.inbox.popleft()
            known = Peer(peer.route, peer.uid, peer.pid)
            yield Envelope(known, m.decode_to_daemon(frame), len(frame))

    def send(self, route: bytes, *messages: m.Message) -> bool:
        for message in messages:
            self.frames += len(m.encode(message)) > 0
            self.sent.append((route, message))
        return True

    def waiting(self) -> bool:
        return bool(self.inbox)


class NoPoller:
    """Watches over no process."""

    def watch(self, _watched: WatchedProcess) -> bool:
        return True


class Replay:
    """A daemon's loop with one client, its launcher and its workers."""

    def __init__(self, folder: Path, policy: str) -> None:
        (folder / "hetd.toml").write_text(CPU_ONLY, encoding="utf-8")
        config = read_config(folder / "hetd.toml")
        router: Any = ListRouter()
        self.router = router
        self.store = Store(folder / "hetd.db")
        poller: Any = NoPoller()
        parts = assemble(
            ActiveConfig(config),
            [each.device_info() for each in config.resource],
            make_policy(policy, {}),
            EstimateTable(config.probing),
            Journal(self.store),
            WorkerPool(router.send, prefix="1"),
        )
        self.runtime = parts.runtime
        self.runtime.restore()
        self.loop = make_loop(parts, router, self.store, poller)
        self.spent_ns = self.turns = self._requests = 0
        self._spec = describe(Noop(), name_of(Noop), Options())
        self._client = self._peer("client")
        self._workers: dict[bytes, Peer] = {}
        self.reports_progress = False
        self._say(self._peer("launcher"), m.Register(role="launcher"))
        self._say(self._client, m.Register(role="client"))
        self.turn()

    def through(self, tasks: int, at_once: int) -> None:
        """Run a number of tasks, submitted in groups, until all are durable."""
        before = self.runtime.journal.counts[State.COMPLETED]
        for _ in range(tasks // at_once):
            self._requests += 1
            key, expires = f"{self._requests:032x}", time.monotonic() + 100
            specs = [self._spec] * at_once
            submit = m.Submit(self._requests, specs, key=key, expires=expires)
            self._say(self._client, submit)
            self.turn()
        while (
            self.runtime.journal.counts[State.COMPLETED] - before < tasks
            or not self.store.idle
            or self.runtime.journal.dirty
        ):
            self._wait()
            self.turn()

    def _wait(self) -> None:
        """Wait as the daemon does: for a message, the end of a commit, or a deadline."""
        timeout_ms = self.loop.timeout_ms()
        if not self.router.inbox and timeout_ms:
            select.select([self.store.wake_fd], [], [], timeout_ms / 1e3)

    def turn(self) -> None:
        """Let the loop turn once, and its peers answer."""
        begin = time.thread_time_ns()
        self.loop.turn([])
        self.spent_ns += time.thread_time_ns() - begin
        self.turns += 1
        sent, self.router.sent = self.router.sent, []
        ends: dict[bytes, list[m.Finished]] = {}
        for route, message in sent:
            if isinstance(message, m.Run):
                if self.reports_progress:
                    self._say(self._workers[route], _progress(message))
                ends.setdefault(route, []).append(_finished(message))
            else:
                self._answer(message)
        for route, reports in ends.items():
            end = reports[0] if len(reports) == 1 else m.Reports(reports)
            self._say(self._workers[route], end)

    def _answer(self, message: m.Message) -> None:
        if isinstance(message, m.StartWorkers):
            for name in message.names:
                worker = self._workers[name.encode()] = self._peer(name)
                hello = m.Register(role="worker", pid=worker.pid, worker=name)
                self._say(worker, hello)

    def _peer(self, name: str) -> Peer:
        return Peer(name.encode(), os.getuid(), os.getpid())

    def _say(self, peer: Peer, message: m.Message) -> None:
        self.router.inbox.append((peer, m.encode(message)))


def _finished(run: m.Run) -> m.Finished:
    return m.Finished(
        task=run.task,
        epoch=run.epoch,
        seconds=2e-6,
        iterations=1,
        strips=1,
        set_up=1e-5,
        cpu_seconds=5e-5,
        log="/run/hetd/launcher/logs/1-1.log",
    )


def _progress(run: m.Run) -> m.Progress:
    """Make the first report of a segment."""
    done = m.CheckpointRecord(done=1, total=2)
    return m.Progress(run.task, run.epoch, done, 1e-6, 1, started=1.0)


def run() -> list[dict[str, Any]]:
    """Measure; return one row a case."""
    cases = {"stream, submits of 500": (TASKS, SUBMIT), "one at a time": (300, 1)}
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(Path(folder), "finish-time")
        replay.through(TASKS, SUBMIT)
        rows = [_row(case, replay, *how) for case, how in cases.items()]
        replay.reports_progress = True
        rows.append(_row("one at a time, with a first report", replay, 300, 1))
        replay.store.close()
    for line in regressions(rows, RECORDED):
        print(f"loop: {line}", file=sys.stderr)
    return rows


def regressions(rows: list[dict[str, Any]], recorded: Path) -> Iterator[str]:
    """Compare rows with recorded ones; yield a line for each that takes longer.

    Args:
        rows: each gets `over_recorded`, the ratio of its calibration steps to those
            that are recorded, if there are any.
        recorded: the printed JSON of an earlier run.

    """
    if not recorded.exists() or not recorded.stat().st_size:
        # empty: the output of this run is sent there
        yield f"nothing to compare with: {recorded} is missing or empty"
        return
    before = json.loads(recorded.read_text(encoding="utf-8"))
    steps = {row["case"]: row["calibration_steps"] for row in before["benches"]["loop"]}
    for row in rows:
        if row["case"] not in steps:
            continue
        ratio = row["calibration_steps"] / steps[row["case"]]
        row["over_recorded"] = round(ratio, 2)
        if ratio > TOLERANCE:
            yield (
                f"{row['case']}: regression, takes {ratio:.2f} times the recorded "
                f"{steps[row['case']]} calibration steps ({before['machine']['cpu']})"
            )


def _row(case: str, replay: Replay, tasks: int, at_once: int) -> dict[str, Any]:
    """Measure a case; it and the loop that it is compared with take turns."""
    spent, ratios = [], []
    commits, turns = replay.runtime.counters.commits, replay.turns
    frames = replay.router.frames
    for _ in range(ROUNDS):
        base = calibrate()
        replay.spent_ns = 0
        gc.collect()
        if at_once == 1:
            for _ in range(tasks):
                replay.through(1, 1)
        else:
            replay.through(tasks, at_once)
        spent.append(replay.spent_ns / tasks / 1e3)
        ratios.append(1e3 * STEPS * spent[-1] / base)
    done = tasks * ROUNDS
    return {
        "case": case,
        "microseconds_cpu": round(statistics.median(spent), 1),
        "least": round(min(spent), 1),
        "calibration_steps": round(statistics.median(ratios)),
        "turns": round((replay.turns - turns) / done, 3),
        "commits": round((replay.runtime.counters.commits - commits) / done, 4),
        "frames_sent": round((replay.router.frames - frames) / done, 2),
    }
