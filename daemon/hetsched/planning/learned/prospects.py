"""How waiting tasks would fare on each resource, as arrays: `ExpectedFinish` for many at once.

What does not change while a task waits (its times alone, with the transfers of its inputs,
and its loads) is kept from one decision to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hetsched.contention import slowdown_at_capacity

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hetsched.crowding import Crowding
    from hetsched.ids import TaskId
    from hetsched.planning.expected_finish import ExpectedFinish
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

    Floats: TypeAlias = NDArray[np.float64]

MOST_KEPT = 512
"""Tasks whose arrays are kept."""
COMPUTING, MEMORY, LINK = ("cores", "slices"), ("memory",), ("link",)
"""Kinds of shared resources that a processor's features show."""
UNKNOWN_LOAD = 0.3
"""Load with which a processor's slowdown is shown."""


class NodeArrays:
    """The usable resources of a node, and what they share.

    Attributes:
        names: of the resources, in order.
        shared: name of each shared resource -> its number.
        levels: of other programs' load, of each shared resource. The last row is that of
            a shared resource that nothing loads: it pads lists of loads.
        seen: of each resource: number of the shared resource of each kind, or the last.

    """

    def __init__(self, system: System, names: tuple[str, ...]) -> None:
        self.names = names
        crowding = system.crowding
        model = None if crowding is None else crowding.model
        self.shared = {name: i for i, name in enumerate(model.shared if model else ())}
        self.last = len(self.shared)
        width = len(model.tenants.levels) if model else 1
        self.levels = np.zeros((self.last + 1, width))
        if crowding is not None:
            for name, number in self.shared.items():
                self.levels[number] = crowding.belief.levels[name]
        uses = model.uses if model else {}
        self.seen = np.array(
            [
                [self._find(uses.get(name, {}), kinds) for name in names]
                for kinds in (COMPUTING, MEMORY, LINK)
            ],
            dtype=np.intp,
        )
        resources = [system.resources[name] for name in names]
        self.kinds = [resource.kind for resource in resources]
        self.slots = np.array([system.states[name].slots for name in names], float)
        self.pace = model.seconds_per_byte() if model else 0.0
        self.law = _law_on_arrays(model.law if model else slowdown_at_capacity)

    def _find(self, uses: object, kinds: tuple[str, ...]) -> int:
        found = [uses[kind] for kind in kinds if kind in uses]  # type: ignore[index, operator]
        return self.shared[found[0]] if found else self.last


def _law_on_arrays(law: Callable[[float], float]) -> Callable[[Floats], Floats]:
    if law is slowdown_at_capacity:
        return lambda load: np.maximum(1.0, load)
    return np.vectorize(law, otypes=[float])


@dataclass(slots=True)
class TaskArrays:
    """A waiting task on each resource.

    Attributes:
        alone: seconds of its rest alone; infinite where it cannot run.
        shared, demand, bound: its loads; resources by loads.

    """

    alone: Floats
    shared: NDArray[np.intp]
    demand: Floats
    bound: Floats


class Prospects:
    """Expected times of waiting tasks at one instant; tasks by resources.

    Attributes:
        alone: seconds alone; `duration`: slowed down as expected, with preparation.
        wait: of each resource, seconds until a slot is free.
        harm: seconds by which running tasks take longer.
        reload: whether another program is loaded first.

    """

    def __init__(
        self,
        node: NodeArrays,
        tasks: list[TaskRecord],
        arrays: list[TaskArrays],
        ends: ExpectedFinish,
        probabilities: Floats,
    ) -> None:
        self.node = node
        self._probabilities = probabilities
        self.wait = np.array([ends.free[name][0] for name in node.names])
        self._own = np.zeros(node.last + 1)
        sensitive = np.zeros(node.last + 1)
        for name, number in node.shared.items():
            self._own[number] = ends.demand.get(name, 0.0)
            sensitive[number] = ends.sensitive.get(name, 0.0)
        width = max(each.shared.shape[1] for each in arrays)
        shape = (len(tasks), len(node.names), width)
        shared = np.full(shape, node.last, dtype=np.intp)
        demand, bound = np.zeros(shape), np.zeros(shape)
        for number, each in enumerate(arrays):
            found = each.shared.shape[1]
            shared[number, :, :found] = each.shared
            demand[number, :, :found] = each.demand
            bound[number, :, :found] = each.bound
        self.alone = np.array([each.alone for each in arrays])
        able = np.isfinite(self.alone)
        here = np.where(able, self.alone, 0.0)
        beside = self.slowdown_at(shared, demand)
        self.stretch = 1.0 + (bound * (beside - 1.0)).sum(axis=2)
        prepared, self.reload = _preparation(node, tasks, ends)
        self.duration = np.where(able, here * self.stretch + prepared, np.inf)
        more = beside - self.slowdown_at(shared, np.zeros(shape))
        longest = np.where(able, self.duration, 0.0)[:, :, None] * (1.0 + bound)
        self.harm = (more * np.minimum(sensitive[shared], longest)).sum(axis=2)

    def slowdown_at(self, shared: NDArray[np.intp], added: Floats) -> Floats:
        """Return the expected g of shared resources if `added` comes to their load."""
        offered = (self._own[shared] + added)[..., None] + self.node.levels[shared]
        return np.asarray(
            (self._probabilities[shared] * self.node.law(offered)).sum(axis=-1)
        )

    @property
    def cost(self) -> Floats:
        """The costs that `contention-aware` minimises: the expected end, and the harm to others."""
        return np.asarray(self.wait + self.duration + self.harm)


def _preparation(
    node: NodeArrays, tasks: list[TaskRecord], ends: ExpectedFinish
) -> tuple[Floats, Floats]:
    """Return the seconds before tasks compute, and whether a program is loaded first."""
    system = ends.system
    seconds = np.zeros((len(tasks), len(node.names)))
    reload = np.zeros_like(seconds)
    loading = [
        (number, system.states[name].program)
        for number, name in enumerate(node.names)
        if system.resources[name].reconfigure_s
    ]
    for number, task in enumerate(tasks):
        if task.progress > 0.0 or task.last_resource is not None:
            for place, name in enumerate(node.names):
                seconds[number, place] = ends.preparing(task, name)
            continue
        for place, program in loading:
            if program != task.submitted.app:
                name = node.names[place]
                reload[number, place] = 1.0
                seconds[number, place] = system.resources[name].reconfigure_s
    return seconds, reload


class ProspectCache:
    """Makes `Prospects`, and keeps the arrays of waiting tasks."""

    def __init__(self) -> None:
        self._node: NodeArrays | None = None
        self._key: object = None
        self._tasks: dict[tuple[TaskId, float, object], TaskArrays] = {}
        self._version = -1, -1

    def node_of(self, system: System) -> NodeArrays:
        """Return the arrays of a node's usable resources."""
        states = system.usable_states()
        key = id(system), tuple((s.resource.name, s.slots) for s in states)
        if self._node is None or key != self._key:
            names = tuple(state.resource.name for state in states)
            self._node, self._key = NodeArrays(system, names), key
            self._tasks.clear()
        return self._node

    def prospects(
        self, ends: ExpectedFinish, tasks: list[TaskRecord], probabilities: Floats
    ) -> Prospects:
        """Return how tasks would fare now."""
        system = ends.system
        node = self.node_of(system)
        version = system.estimates.version, _version_of(system.crowding)
        if len(self._tasks) > MOST_KEPT or version != self._version:
            self._tasks.clear()
            self._version = version
        arrays = []
        for task in tasks:
            key = task.id, task.progress, task.row
            found = self._tasks.get(key)
            if found is None:
                found = self._tasks[key] = _arrays_of(task, system, node)
            arrays.append(found)
        return Prospects(node, tasks, arrays, ends, probabilities)


def _version_of(crowding: Crowding | None) -> int:
    return 0 if crowding is None else crowding.model.version


def probabilities_of(crowding: Crowding | None, node: NodeArrays, now: int) -> Floats:
    """Return the probabilities of the levels of each shared resource; the last has one."""
    found = np.zeros(node.levels.shape)
    found[:, 0] = 1.0
    if crowding is not None:
        for name, number in node.shared.items():
            found[number] = crowding.belief.probabilities(name, now)
    return found


def _arrays_of(task: TaskRecord, system: System, node: NodeArrays) -> TaskArrays:
    able = system.affinities(task.row)
    found = [
        system.alone(task, name) if name in able else (math.inf, ())
        for name in node.names
    ]
    width = max(1, *(len(loads) for _, loads in found))
    shape = (len(node.names), width)
    shared = np.full(shape, node.last, dtype=np.intp)
    demand, bound = np.zeros(shape), np.zeros(shape)
    for place, (_, loads) in enumerate(found):
        for number, load in enumerate(loads):
            shared[place, number] = node.shared[load.shared]
            demand[place, number] = load.demand
            bound[place, number] = load.bound
    rest = max(task.left, 1e-9)
    return TaskArrays(
        np.array([alone * rest for alone, _ in found]), shared, demand, bound
    )
