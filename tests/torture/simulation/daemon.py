"""The simulated daemon: hetd's own parts, on a simulated machine.

It starts, turns when something wakes it, and crashes at any step: whenever it receives,
sends, writes, or reaches one of the named fault points.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from hetd.assembly import assemble, make_loop
from hetd.config import ActiveConfig
from hetd.store import StoreError, StoreFullError
from hetd.tasks.journal import Journal
from hetd.tasks.stored_profiles import restore_profiles
from hetd.transport.poller import Poller, WatchedProcess
from hetd.workers.host_processes import HostProcesses
from hetd.workers.pool import WorkerPool
from hetsched.estimates.table import EstimateTable
from hetsched.policies import make_policy
from torture.simulation.disk import SimulatedStore
from torture.simulation.invariants import Violation
from torture.simulation.network import SimulatedRouter
from torture.simulation.processes import Process
from torture.simulation.trials import SimulatedTrial
from torture.simulation.world import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hetd.config import Config
    from hetd.loop import Loop
    from hetd.runtime import Runtime
    from libtask.messages import DeviceInfo
    from torture.simulation.disk import Disk
    from torture.simulation.network import Network
    from torture.simulation.processes import Machine

RESTART = 100 * MILLISECOND
"""How soon whoever supervises the daemon starts it again."""


RESTFUL, RESTLESS = 10 * MILLISECOND, 5000
"""A daemon with more turns than this in this time never waits."""


class Crash(BaseException):
    """The daemon is killed, right here."""


class SimulatedPoller(Poller):
    """Notices the ends of simulated processes."""

    def __init__(self, machine: Machine, wake: Callable[[], None]) -> None:
        # not as the real one: the daemon is called when there is something to do
        self._machine = machine
        self._wake = wake
        self._over: list[WatchedProcess] = []

    def watch(self, watched: WatchedProcess) -> bool:
        process = self._machine.running.get(watched.peer.pid)
        if process is None:
            self._over_with(watched)
            return False
        process.on_end.append(lambda _status: self._over_with(watched))
        return True

    def ended(self) -> list[WatchedProcess]:
        """Return the processes that ended since the last call."""
        over, self._over = self._over, []
        return over

    def _over_with(self, watched: WatchedProcess) -> None:
        self._over.append(watched)
        self._wake()


class SimulatedDaemon:
    """The daemon, from start to start.

    Args:
        devices: its resources.
        after_turn: called after each turn that did not crash.

    Attributes:
        node, loop, store: parts of the daemon that runs; None between runs.
        fuse: steps until it crashes; None: it does not.
        starts: how often it has started.
        supervised: it is started again when it has ended.

    """

    def __init__(
        self,
        network: Network,
        machine: Machine,
        disk: Disk,
        runtime: tuple[Config, Sequence[DeviceInfo]],
        after_turn: Callable[[], None],
    ) -> None:
        self.world = network.world
        self.disk = disk
        self.runtime: Runtime | None = None
        self.loop: Loop | None = None
        self.store: SimulatedStore | None = None
        self.router: SimulatedRouter | None = None
        self.fuse: int | None = None
        self.starts = 0
        self.supervised = True
        self.bugs: list[str] = []
        self._network = network
        self._machine = machine
        self._config, self._devices = runtime
        self._after_turn = after_turn
        self._process: Process | None = None
        self._poller: SimulatedPoller | None = None
        self._turn_at: int | None = None
        self._rested = self._turns = 0

    @property
    def alive(self) -> bool:
        return self._process is not None

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Begin a start; it takes time, and may end early."""
        if self.alive or not self.supervised:
            return
        self.starts += 1
        self._process = Process(self._machine, f"hetd-{self.starts}", 0)
        self.world.note("hetd", "starts", self.starts)
        self._guarded(self._open_store)

    def crash(self) -> None:
        """End at once, as SIGKILL does."""
        if self._process is None:
            return
        self.world.note("hetd", "crashes")
        if self.router is not None:
            self.router.crash()
        self._clear(-9)

    def _clear(self, status: int) -> None:
        if self.store is not None:
            self.store.crash()
        if self.router is not None:
            self.bugs += self.router.bugs
        process = self._process
        self.runtime = self.loop = self.store = self.router = None
        self._process = self._poller = self._turn_at = self.fuse = None
        if process is not None:
            process.end(status)
        delay = RESTART + self.world.some(0.01, 1.0)
        self.world.after(delay, self.start)

    def _open_store(self) -> None:
        self.store = SimulatedStore(self.disk, self.world, self._wake, self.burn)
        self._later(self._bind)

    def _bind(self) -> None:
        self.router = SimulatedRouter(self._network, self._wake, self.burn)
        self._network.router = self.router
        self._later(self._assemble)

    def _assemble(self) -> None:
        store, router = self.store, self.router
        assert store is not None
        assert router is not None
        estimates = EstimateTable(self._config.probing)
        for known in store.samples():
            estimates.enter(known)
        restore_profiles(estimates.profiles, store.settings())
        machine = self._machine
        processes = HostProcesses(
            machine.kill,
            machine.started_at,
            # every start of the simulated machine is a boot of its own
            boot=f"boot {machine.boots}",
        )
        parts = assemble(
            ActiveConfig(self._config),
            self._devices,
            make_policy(self._config.policy, self._config.policy_parameters),
            estimates,
            Journal(store),
            WorkerPool(router.send, str(store.incarnation), processes),
            self.world.clock,
        )
        self.runtime = parts.runtime
        self.runtime.watchdog.health.try_device = partial(SimulatedTrial, self.world)
        self.runtime.restore()
        self._poller = SimulatedPoller(self._machine, self._wake)
        self.loop = make_loop(parts, router, store, self._poller)
        self._turn()

    def _later(self, step: Callable[[], None]) -> None:
        process = self._process
        if process is not None:
            process.after(self.world.some(1e-4, 0.05), self._guarded, step)

    # ------------------------------------------------------------ turns

    def burn(self, _step: str) -> None:
        """Come to a step at which the daemon may crash.

        Raises:
            Crash: it does.

        """
        if self.fuse is None:
            return
        self.fuse -= 1
        if self.fuse < 0:
            self.fuse = None
            raise Crash

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Crash:
            self.crash()
        except (StoreError, StoreFullError) as error:
            self.world.note("hetd", "gives up", error)
            self._leave(1)
        except Exception as error:
            if isinstance(error, Violation):
                raise
            raise Violation(f"hetd raised {type(error).__name__}: {error}") from error

    def _leave(self, status: int) -> None:
        """End in good order: what was sent arrives."""
        if self.router is not None:
            self.router.close()
        self._clear(status)

    def _wake(self) -> None:
        self._turn_in(self.world.some(5e-6, 100e-6))

    def _turn_in(self, delay: int) -> None:
        """Turn then, or earlier where that was said before."""
        at = self.world.now + delay
        if self._process is None or (self._turn_at is not None and self._turn_at <= at):
            return
        self._turn_at = at
        self._process.after(delay, self._due, at)

    def _due(self, at: int) -> None:
        if self.loop is not None and self._turn_at == at:
            self._guarded(self._turn)

    def _turn(self) -> None:
        loop, poller = self.loop, self._poller
        if loop is None or poller is None:
            return
        self._turn_at = None
        self._demand_rest()
        loop.turn(poller.ended())
        if not loop.running:
            self._stop(loop)
            return
        self._turn_in(max(loop.timeout_ms() * MILLISECOND, 1000))
        self._after_turn()

    def _demand_rest(self) -> None:
        """Raise a violation if the daemon turns very often in almost no time."""
        self._turns += 1
        if self.world.now - self._rested > RESTFUL:
            self._rested, self._turns = self.world.now, 0
        if self._turns > RESTLESS:
            raise Violation("hetd turns for ever, and never waits")

    def _stop(self, loop: Loop) -> None:
        """End as after a stop request."""
        loop.finish()
        if self.runtime is not None:
            self.runtime.pool.retire_launchers(self.runtime.journal.live_of.get)
        self.world.note("hetd", "stops")
        self._leave(0)


@contextmanager
def crashes_at_fault_points(burn: Callable[[str], None]) -> Iterator[None]:
    """Make the named fault points steps at which the simulated daemon may crash.

    Modules take `reach` over by name when they are imported; it is put back at the end.
    """
    loaded = [vars(module) for name, module in sys.modules.items() if _is_ours(name)]
    before = [(names, names["reach"]) for names in loaded if "reach" in names]
    for names, _ in before:
        names["reach"] = burn
    try:
        yield
    finally:
        for names, reach in before:
            names["reach"] = reach


def _is_ours(module: str) -> bool:
    return module.startswith("hetd.")
