"""Faults at random moments, at the rates of the run's fault profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torture.simulation.disk import RESERVE
from torture.simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from torture.simulation.processes import Process
    from torture.simulation.setup import Setup

HEARTBEATS = 15 * SECOND
"""A peer that is stopped for longer loses its connection."""


class Faults:
    """Lets faults strike a setup, until there are to be no more."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._world = setup.world
        self._over = False
        self._strikes: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "crash_at_step": self._crash_at_step,
            "power_cut": self._power_cut,
            "worker_killed": lambda: self._kill("worker-"),
            "worker_stopped": self._stop_worker,
            "worker_stuck": self._hold_worker,
            "launcher_stopped": self._stop_launcher,
            "launcher_killed": lambda: self._kill("launcher-"),
            "client_killed": self._kill_client,
            "connection_broken": self._break_connection,
            "disk_full": self._fill_disk,
            "disk_error": self._disk_error,
            "wall_jump": self._jump,
            "slow_network": self._slow_down,
        }

    def begin(self) -> None:
        """Enable each fault of the profile."""
        for fault in self._setup.profile.rates:
            self._next(fault)

    def end(self) -> None:
        """Repair what does not repair itself; nothing strikes any more."""
        self._over = True
        setup = self._setup
        setup.daemon.fuse = None
        disk = setup.daemon.disk
        disk.full = disk.failing = False
        disk.reserve = RESERVE
        setup.network.slowness = 0.001
        for process in setup.machine.alike(""):
            process.go_on()

    def _next(self, fault: str) -> None:
        mean = 1 / self._setup.profile.rates[fault]
        delay = int(self._world.chance.expovariate(1 / mean) * SECOND)
        self._world.after(delay, self._strike, fault)

    def _strike(self, fault: str) -> None:
        if not self._over:
            self._strikes[fault]()
            self._next(fault)

    # ------------------------------------------------------------ the daemon

    def _crash(self) -> None:
        self._setup.daemon.crash()

    def _crash_at_step(self) -> None:
        """Let it crash in the middle of what it does next; in a start too."""
        self._setup.daemon.fuse = self._world.chance.randint(0, 60)

    def _power_cut(self) -> None:
        """Lose everything but the disk."""
        self._world.note("world", "power cut")
        self._setup.daemon.crash()
        self._setup.machine.boots += 1
        for process in self._setup.machine.alike(""):
            process.stuck = False
            process.end(-9)
        self._setup.fill_up_clients()

    # ------------------------------------------------------------ processes

    def _one(self, kind: str) -> Process | None:
        found = self._setup.machine.alike(kind)
        return self._world.chance.choice(found) if found else None

    def _kill(self, kind: str) -> None:
        process = self._one(kind)
        if process is not None:
            process.end(-9)

    def _stop_worker(self) -> None:
        process = self._one("worker-")
        if process is None or process.stopped:
            return
        process.stop()
        seconds = self._world.some(0.01, 30)
        self._world.after(seconds, process.go_on)
        if seconds > HEARTBEATS:
            self._world.after(HEARTBEATS, self._disconnect, process)

    def _stop_launcher(self) -> None:
        process = self._one("launcher-")
        if process is not None and not process.stopped:
            process.stop()
            self._world.after(self._world.some(1, 150), process.go_on)

    def _hold_worker(self) -> None:
        """Let the kernel hold a worker for long: nothing ends it."""
        process = self._one("worker-")
        if process is not None and not process.stopped:
            process.get_stuck()
            self._world.after(self._world.some(1, 200), process.get_loose)

    def _kill_client(self) -> None:
        self._kill("client-")
        self._setup.fill_up_clients()

    # ------------------------------------------------------------ the rest

    def _break_connection(self) -> None:
        process = self._one("")
        if process is not None:
            self._disconnect(process)

    def _disconnect(self, process: Process) -> None:
        router = self._setup.network.router
        if router is None:
            return
        for connection in router.connections():
            if connection.process is process:
                router.break_one(connection)

    def _fill_disk(self) -> None:
        disk = self._setup.daemon.disk
        disk.full = True
        self._world.note("disk", "full")
        self._world.after(self._world.some(0.1, 10), self._empty_disk)

    def _empty_disk(self) -> None:
        self._setup.daemon.disk.full = False

    def _disk_error(self) -> None:
        self._setup.daemon.disk.failing = True

    def _jump(self) -> None:
        self._world.jump(self._world.chance.choice((-86_400, -3600, 3600, 7200, 1e6)))

    def _slow_down(self) -> None:
        self._setup.network.slowness = self._world.chance.choice((0.001, 0.01, 0.3))
