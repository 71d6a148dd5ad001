"""A run: work with faults, then without faults until all tasks end, then final checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask import messages as m
from torture.simulation.asking import control, drain
from torture.simulation.daemon import crashes_at_fault_points
from torture.simulation.faults import Faults
from torture.simulation.final_checks import final_complaints
from torture.simulation.invariants import Violation
from torture.simulation.setup import Setup
from torture.simulation.time_limit import EndlessError, time_limit
from torture.simulation.workers import ENDLESS
from torture.simulation.world import SECOND

if TYPE_CHECKING:
    from hetd.runtime import Runtime
    from torture.simulation.clients import SimulatedClient
    from torture.simulation.world import Note

LOOK = 2 * SECOND
"""Interval at which users check for the end of all tasks, once the faults are over."""
LAST_PATIENCE = 900 * SECOND
"""Time after the last fault by which every task must have ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        events: how many things happened.
        found: what was wrong, a line each; empty: nothing.
        digest: hash of the whole trace.
        trace: what happened, in order.
        tasks: tasks that there were.
        starts: of the daemon.

    """

    seed: int
    events: int
    found: list[str]
    digest: str
    trace: list[Note]
    tasks: int
    starts: int


class Run:
    """One simulated run.

    Args:
        seed: decides everything.
        events: how many things happen before the faults end.

    """

    def __init__(self, seed: int, events: int) -> None:
        self._seed = seed
        self._events = events
        self._setup = Setup(seed)
        self._world = self._setup.world
        self._over = False
        self._finishers: list[SimulatedClient] = []

    def go(self) -> Outcome:
        """Let it happen; what is wrong ends it."""
        try:
            with time_limit(), crashes_at_fault_points(self._setup.daemon.burn):
                self._work_with_faults()
                self._work_without_faults()
            found = [*self._unfinished(), *final_complaints(self._setup)]
        except (Violation, EndlessError) as violation:
            found = [str(violation)]
        world, daemon = self._world, self._setup.daemon
        tasks = len(daemon.disk.tasks)
        return Outcome(
            self._seed,
            world.events,
            found,
            world.digest(),
            world.trace,
            tasks,
            daemon.starts,
        )

    # ------------------------------------------------------------ the storm

    def _work_with_faults(self) -> None:
        """Let users work while there are faults."""
        setup = self._setup
        setup.daemon.start()
        setup.fill_up_clients()
        faults = Faults(setup)
        faults.begin()
        while self._world.events < self._events and self._world.step():
            self._demand_no_bugs()
        faults.end()
        setup.storm = False

    def _demand_no_bugs(self) -> None:
        """End a run in which the daemon called something its own bug."""
        router = self._setup.daemon.router
        if router is not None and router.bugs:
            raise Violation(f"hetd found a bug of its own: {router.bugs[0]}")

    # ------------------------------------------------------------ the calm

    def _work_without_faults(self) -> None:
        """Let everything end, as nothing goes wrong any more."""
        self._world.note("world", "calm")
        self._world.put_right()
        setup = self._setup
        self._finishers = [setup.client(user) for user in [*setup.users, setup.admin]]
        for client in self._finishers:
            self._begin_to_finish(client)
        self._world.after(LOOK, self._look)
        limit = self._world.now + LAST_PATIENCE
        while not self._over and self._world.now < limit and self._world.step():
            self._demand_no_bugs()

    def _begin_to_finish(self, client: SimulatedClient) -> None:
        user, setup = client.user, self._setup
        if user is setup.admin:
            for name in setup.resources:
                drain(client, name, wanted=False)
            return
        user.start_launcher(setup.network, setup.machine)
        for request in user.unanswered:
            client.submit(request)
        user.unanswered.clear()

    def _look(self) -> None:
        """See whether all is over; if not, let users see to it that tasks can end."""
        daemon, clients = self._setup.daemon, self._setup.clients
        runtime, store = daemon.runtime, daemon.store
        busy = any(client.busy for client in clients)
        durable = runtime and store and store.idle and not runtime.journal.dirty
        if runtime is not None and durable and not runtime.journal.live and not busy:
            self._over = True
            return
        for client in self._finishers:
            if client.busy:
                continue
            if client.user.uid:
                self._let_all_end(client)
            elif runtime is not None:
                self._give_back(client, runtime)
        self._world.after(LOOK, self._look)

    def _give_back(self, client: SimulatedClient, runtime: Runtime) -> None:
        """Give back what is drained: a wish from the storm may have come last."""
        for name, state in runtime.scheduler.system.states.items():
            if state.draining:
                drain(client, name, wanted=False)

    def _let_all_end(self, client: SimulatedClient) -> None:
        def take(reply: m.Request) -> None:
            for info in reply.tasks if isinstance(reply, m.TaskList) else ():
                self._let_end(client, info)

        client.ask(m.ListTasks(0, limit=1000, detail=True), take)

    def _let_end(self, client: SimulatedClient, info: m.TaskInfo) -> None:
        """Release a task that is held; cancel it, if nobody has, where it is endless."""
        if info.state == "held":
            control(client, "release", [info.id])
        endless = info.params.get("iterations", 0) >= ENDLESS
        asked_for = info.id in self._setup.promises.cancels
        if endless and info.state not in m.ENDED and not asked_for:
            control(client, "cancel", [info.id])

    def _unfinished(self) -> list[str]:
        runtime = self._setup.daemon.runtime
        if self._over:
            return []
        if runtime is None:
            return ["the daemon is not there, long after the last fault"]
        live = list(runtime.journal.live.values())
        stuck = [f"task {e.id} is {e.state} for ever: {e.reason}" for e in live]
        return stuck or ["a client waits for ever for an answer"]
