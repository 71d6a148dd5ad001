"""Processes of the simulated machine: they live, stop, go on and die."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torture.simulation.world import World

FIRST_PID = 100
PIDS = 400
"""Process ids in all: a small number, so that they are used again, as they are."""


class Process:
    """A process: what it does happens only while it lives and is not stopped.

    Attributes:
        stuck: the kernel holds it; it ends when that is over, whatever signal it gets.
        parent: the process that reaps it; None: init.
        on_end: called with the exit status when it has ended, whatever way it ended.

    """

    def __init__(self, machine: Machine, name: str, uid: int) -> None:
        self.name = name
        self.uid = uid
        self.pid = machine.take_pid(self)
        self.born = machine.world.now + 1
        self.alive = True
        self.stopped = False
        self.stuck = False
        self.parent: Process | None = None
        self.on_end: list[Callable[[int], None]] = []
        self._machine = machine
        self._world = machine.world
        self._ends_with: int | None = None
        self._missed: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay: int, call: Callable[..., None], *given: Any) -> None:
        """Do something in `delay` nanoseconds; later where it is stopped then."""
        self._world.after(delay, self._do, call, *given)

    def _do(self, call: Callable[..., None], *given: Any) -> None:
        if not self.alive:
            return
        if self.stopped:
            self._missed.append((call, given))
        else:
            call(*given)

    def stop(self) -> None:
        """Stop it, as SIGSTOP does."""
        self.stopped = True
        self._world.note(self.name, "stopped")

    def get_stuck(self) -> None:
        """Stop it so that no signal ends it, as a driver does that never answers."""
        self.stop()
        self.stuck = True

    def get_loose(self) -> None:
        """End it where that was asked meanwhile; else let it go on."""
        self.stuck = False
        if self._ends_with is not None:
            self.end(self._ends_with)
        self.go_on()

    def go_on(self) -> None:
        """Let it go on, as SIGCONT does."""
        if self.stuck or not self.stopped or not self.alive:
            return
        self.stopped = False
        self._world.note(self.name, "goes on")
        missed, self._missed = self._missed, []
        for call, given in missed:
            self._do(call, *given)

    def end(self, status: int) -> None:
        """End it; a negative status is the signal that did it."""
        if not self.alive:
            return
        if self.stuck:
            self._ends_with = status
            return
        self.alive = False
        self._world.note(self.name, "ends", status)
        self._machine.give_pid(self)
        for call in self.on_end:
            call(status)


class Machine:
    """All processes, by pid.

    Attributes:
        boots: how often it was started.

    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.running: dict[int, Process] = {}
        self.boots = 1

    def take_pid(self, process: Process) -> int:
        """Give a process a free pid; nobody can tell which."""
        pid = FIRST_PID + self.world.chance.randrange(PIDS)
        while pid in self.running:
            pid = FIRST_PID + self.world.chance.randrange(PIDS)
        self.running[pid] = process
        return pid

    def give_pid(self, process: Process) -> None:
        del self.running[process.pid]

    def kill(self, pid: int) -> None:
        """Kill the process that has this pid, if any; stopped ones too."""
        process = self.running.get(pid)
        if process is not None:
            process.end(-9)

    def started_at(self, pid: int) -> int:
        """Return when the process that has this pid was made; 0: there is none."""
        process = self.running.get(pid)
        return process.born if process is not None else 0

    def alike(self, kind: str) -> list[Process]:
        """Return the living processes whose names begin so, oldest name first."""
        found = [p for p in self.running.values() if p.name.startswith(kind)]
        return sorted(found, key=lambda process: process.name)
