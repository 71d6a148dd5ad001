"""Simulated launchers: a model of `libtask.launcher.launcher`, which forks real processes.

Exit records lie on the user's disk: they outlive the launcher, as in `exits`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from libtask import messages as m
from libtask.launcher.exit_records import CONFIRMED_S
from libtask.launcher.launcher import Patience
from libtask.launcher.supervisor import GRACE
from torture.simulation.fake_link import SimulatedLink
from torture.simulation.processes import Process
from torture.simulation.workers import SimulatedWorker
from torture.simulation.world import MILLISECOND, SECOND

if TYPE_CHECKING:
    from libtask.messages import FromDaemon, Message
    from torture.simulation.fake_snapshots import FakeSnapshots
    from torture.simulation.network import Network
    from torture.simulation.processes import Machine

TICK = 5 * SECOND
BUSY_TICK = 50 * MILLISECOND


@dataclass(slots=True)
class Records:
    """Records that one user's launchers leave for their successors.

    Attributes:
        snapshots: of the user's tasks.
        exits: worker's name -> how it ended, and the time of the report to hetd (nanoseconds).
        workers: all that were ever made, for those who look on.

    """

    snapshots: FakeSnapshots
    exits: dict[str, tuple[m.WorkerExited, int]] = field(default_factory=dict)
    workers: list[SimulatedWorker] = field(default_factory=list)


@dataclass(slots=True)
class Child:
    """A worker, as its launcher sees it."""

    worker: SimulatedWorker
    why_killed: str = ""
    kill_at: int | None = None


class SimulatedLauncher:
    """One user's launcher.

    Args:
        records: the user's exit records.

    Attributes:
        children: worker's name -> the worker.

    """

    def __init__(
        self, network: Network, machine: Machine, uid: int, records: Records
    ) -> None:
        self.process = Process(machine, f"launcher-{uid}", uid)
        self.children: dict[str, Child] = {}
        self._network = network
        self._world = network.world
        self._machine = machine
        self._records = records
        self._retired = False
        self._busy_at = self._world.now
        self._link = SimulatedLink(
            network, self.process, self._registration, self._wake
        )
        self.process.after(TICK, self._tick)

    def _registration(self) -> list[Message]:
        now = self._world.now
        exits = self._records.exits
        for name, (exited, _) in exits.items():
            exits[name] = (exited, now)
        names = list(self.children)
        hello = m.Register("launcher", pid=self.process.pid, workers=names)
        return [hello, *(exited for exited, _ in exits.values())]

    def _wake(self) -> None:
        while (message := self._link.receive(0)) is not None:
            self._handle(message)
        self._leave_if_done()

    def _handle(self, message: FromDaemon) -> None:
        self._world.note(self.process.name, type(message).__name__)
        match message:
            case m.StartWorkers(names):
                for name in names:
                    self._start(name)
            case m.KillWorker():
                self._terminate(message.name, message.reason)
            case m.DropSnapshots(names):
                for name in names:
                    self._records.snapshots.by_name.pop(name, None)
            case m.Retire():
                self._retired = True
                for name in self.children:
                    self._terminate(name, "the daemon stops")
            case _:
                pass

    def _start(self, name: str) -> None:
        self._busy_at = self._world.now
        if name in self.children:
            return
        process = Process(self._machine, f"worker-{name}", self.process.uid)
        process.parent = self.process
        worker = SimulatedWorker(self._network, process, name, self._records.snapshots)
        self.children[name] = Child(worker)
        self._records.workers.append(worker)
        process.on_end.append(lambda status: self._reap(name, status))

    def _reap(self, name: str, status: int) -> None:
        self.process.after(self._world.some(1e-5, 1e-3), self._note_end, name, status)

    def _note_end(self, name: str, status: int) -> None:
        self._busy_at = self._world.now
        child = self.children.pop(name)
        reason = f"status {status}"
        if child.why_killed:
            reason = f"{reason}: {child.why_killed}"
        exited = m.WorkerExited(name, status, reason)
        self._records.exits[name] = (exited, self._world.now)
        self._link.send(exited)
        self._leave_if_done()

    def _terminate(self, name: str, reason: str) -> None:
        """End a worker politely; a stopped one does not hear of it."""
        child = self.children.get(name)
        if child is None or child.kill_at is not None:
            return
        child.why_killed = reason
        child.kill_at = self._world.now + int(GRACE * SECOND)
        process = child.worker.process
        process.after(self._world.some(1e-5, 1e-4), process.end, -15)
        self.process.after(BUSY_TICK, self._kill_overdue)

    def _kill_overdue(self) -> None:
        waiting = False
        for child in list(self.children.values()):
            if child.kill_at is not None and child.kill_at <= self._world.now:
                child.worker.process.end(-9)
            waiting = waiting or child.kill_at is not None
        if waiting:
            self.process.after(BUSY_TICK, self._kill_overdue)

    # ------------------------------------------------------------ leaving

    def _tick(self) -> None:
        now, exits = self._world.now, self._records.exits
        if self._link.welcome is not None:
            limit = now - int(CONFIRMED_S * SECOND)
            for name in [name for name, (_, told) in exits.items() if told < limit]:
                del exits[name]
        names = sorted(self._records.snapshots.by_name)
        if names and self._link.welcome is not None:
            self._link.send(m.SnapshotsHeld(names))
        self._leave_if_done()
        self.process.after(TICK, self._tick)

    def _leave_if_done(self) -> None:
        if self.process.alive and self._is_done():
            self._link.close()
            self.process.end(0)

    def _is_done(self) -> bool:
        if self.children:
            return False
        now, patience = self._world.now / SECOND, Patience()
        alone = self._link.welcome is None and (
            now - self._link.silent_since > patience.alone
        )
        idle = now - self._busy_at / SECOND > patience.idle
        return self._retired or alone or idle
