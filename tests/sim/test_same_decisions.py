"""The same events, the same decisions: the daemon's node beside the simulator.

The simulator plays the world. Whatever it tells its scheduler, and when, is told to a
real `Runtime` too, with a real journal and a pool that only notes the orders. Specifications,
estimates and resources reach the node by its own ways.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import pytest

from builders import estimates
from hetd.assembly import assemble
from hetd.clock import Clock
from hetd.config import ActiveConfig, Config
from hetd.store import Store
from hetd.tasks.journal import Journal
from hetd.workers.host_processes import HostProcesses
from hetsched import actions as a
from hetsched import events as e
from hetsched.estimates.series import PRIOR_SPREAD
from hetsched.estimates.table import application
from hetsched.policies import POLICIES, make_policy
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds
from libtask import messages as m
from scenario_builders import a_node, a_scenario, a_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from hetd.tasks.worker_key import WorkerKey
    from hetd.workers.pool import WorkerPool
    from hetsched.actions import Action
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsim.scenario import Scenario

Order = tuple[str, int, str]
"""What a worker is told: the verb, the task, and the resource or nothing."""

Step = tuple[list["Event"], "Nanoseconds", list[Order]]
"""What the simulator told its scheduler, when, and what came of it."""

CONFIG = Config(stage=0, migration_ms=500.0, queue_limit=3)
NAMES = ("cpu", "gpu0", "fpga0")


class NotingPool:
    """A worker pool that notes what it is told to send; each worker is a launcher's."""

    own = False
    assigned = ()
    """Nobody is told which process holds a task."""

    def __init__(self) -> None:
        self.processes = HostProcesses()
        self.orders: list[Order] = []

    def send(self, task: int, message: m.Message) -> None:
        self.orders.append(_order(message, task))

    def take(self) -> list[Order]:
        orders, self.orders = self.orders, []
        return orders

    def gather(self) -> bool:
        return False

    def bind(
        self, task: int, uid: int, epoch: int, key: WorkerKey, inputs: Collection[int]
    ) -> None:
        """Every task has its worker."""

    def follow(self, task: int, uid: int, epoch: int, leader: int) -> None:
        """It is the worker of the other one."""

    def part(self, task: int) -> None:
        """Nothing is told to a worker by this."""

    def binding(self, task: int) -> None:
        """No task is watched."""

    def worker_of(self, task: int) -> object:
        return self


def _order(said: m.Message | Action, task: int) -> Order:
    match said:
        case m.Run():
            return "run", task, said.device.name
        case a.Run():
            return "run", task, said.resource
        case _:
            return type(said).__name__.lower(), task, ""


def orders_of(actions: list[Action]) -> list[Order]:
    """List what workers hear of, among a scheduler's actions."""
    heard = (a.Run, a.Preempt, a.Abort, a.Recall)
    return [_order(each, each.task) for each in actions if isinstance(each, heard)]


def a_mixed_scenario(seed: int) -> Scenario:
    """Make one in which tasks wait, help out, make way, move and crash, and a GPU is drained."""
    generator = random.Random(seed)
    cpu = a_node("cpu", slots=2, sharing="processor", queue_limit=3)
    accelerators = a_node("gpu0", "fpga0", link_bytes_per_s=1e9, queue_limit=3)
    types = [_a_mixed_type(f"app{number}/1", generator) for number in range(5)]
    arrivals = sorted(
        generator.choice([0.0, generator.uniform(0, 40)]) for _ in "x" * 40
    )
    tasks = [
        {"id": number, "type": generator.choice(types)["name"], "arrival": arrival}
        for number, arrival in enumerate(arrivals, start=1)
    ]
    outage = {"resource": "gpu0", "start": 21.0, "finish": 33.0, "drain": True}
    crash = {"type": types[1]["name"], "resource": "gpu0", "after": 0.2}
    return a_scenario(
        cpu + accelerators, types, tasks, outages=[outage], crashes=[crash]
    )


def _a_mixed_type(name: str, generator: random.Random) -> dict[str, Any]:
    return a_type(
        name,
        strips=generator.choice([1, 8, 40]),
        cpu=generator.uniform(1, 30),
        gpu0=generator.uniform(1, 10),
        fpga0=generator.uniform(1, 10),
        migration_s=0.5,
        state_bytes=generator.choice([0, 10**9]),
        # what a table of estimates reckons with before it has seen anything
        spread=dict.fromkeys(NAMES, PRIOR_SPREAD),
    )


def simulated_steps(scenario: Scenario, policy: str) -> list[Step]:
    steps: list[Step] = []

    def note(events: list[Event], now: Nanoseconds, actions: list[Action]) -> None:
        steps.append((events, now, orders_of(actions)))

    expected = expected_seconds(scenario)
    Simulation(scenario, make_policy(policy, {}), expected, recorder=note).run()
    return steps


class SimulatedEpochs(Journal):
    """A journal with which the daemon numbers bindings as the simulator does."""

    first_epoch = 1


class PlayedNode:
    """A node whose clock and events are the simulator's."""

    def __init__(self, scenario: Scenario, policy: str, store: Store) -> None:
        self.now = 0
        self.pool = NotingPool()
        self.journal = SimulatedEpochs(store)
        self._strips = {kind.name: kind.strips for kind in scenario.types}
        self.runtime = assemble(
            ActiveConfig(CONFIG),
            [_device(resource) for resource in scenario.resources],
            make_policy(policy, {}),
            estimates(expected_seconds(scenario)),
            self.journal,
            cast("WorkerPool", self.pool),
            clock=Clock(now=lambda: self.now),
        ).runtime

    def orders(self, events: list[Event], now: Nanoseconds) -> list[Order]:
        """Tell the node; return what it tells the workers."""
        self.now = now
        self.runtime.dispatch(*(self._as_submitted(event) for event in events))
        self.runtime.scheduler.check()
        return self.pool.take()

    def _as_submitted(self, event: Event) -> Event:
        """Let a task come as users submit it."""
        if not isinstance(event, e.TaskSubmitted):
            return event
        spec = m.TaskSpec(
            app=application(event.type),
            type=event.type,
            kinds=["cpu", "gpu", "fpga"],
            state_bytes=event.state_bytes,
            strip=1,
            iterations=self._strips[event.type],
        )
        return self.runtime.submission(self.journal.admit(spec, 0, 0.0, b""))


def _device(resource: Any) -> m.DeviceInfo:
    return m.DeviceInfo(
        m.DeviceSpec(resource.name, resource.kind, "null"),
        slots=resource.slots,
        link_bytes_per_s=resource.link_bytes_per_s,
        shared=resource.sharing == "processor",
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "hetd.db")
    yield opened
    opened.close()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_node_and_simulator_decide_alike(policy: str, seed: int, store: Store) -> None:
    scenario = a_mixed_scenario(seed)
    steps = simulated_steps(scenario, policy)
    played = PlayedNode(scenario, policy, store)

    decided = [(events, now, played.orders(events, now)) for events, now, _ in steps]

    assert decided == steps
    ran = {order[1] for _, _, orders in steps for order in orders if order[0] == "run"}
    assert len(ran) > len(scenario.tasks) / 2, "felare evicts some"


def test_the_scenario_has_what_there_is_to_decide() -> None:
    orders = [
        order for _, _, some in simulated_steps(a_mixed_scenario(0), "migration")
        for order in some
    ]  # fmt: skip

    assert {order[0] for order in orders} == {"run", "preempt"}
    assert {order[2] for order in orders if order[0] == "run"} == set(NAMES)


@pytest.mark.parametrize("policy", POLICIES)
def test_there_are_crashes_in_it(policy: str) -> None:
    steps = simulated_steps(a_mixed_scenario(0), policy)

    told = [type(event) for events, _, _ in steps for event in events]
    assert e.WorkerLost in told
    assert e.TrialDue in told
