"""How waiting tasks would fare on each resource, as arrays: `ExpectedFinish` for many at once.

What does not change while a task waits (its times alone, with the transfers of its inputs,
and its loads) is kept from one decision to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hetsched.contention import slowdown_at_capacity

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hetsched.contention import Loads
    from hetsched.crowding import Crowding
    from hetsched.ids import TaskId
    from hetsched.planning.expected_finish import ExpectedFinish
    from hetsched.system import System
    from hetsched.tasks import Row, TaskRecord

    Floats: TypeAlias = NDArray[np.float64]

MOST_KEPT = 512
"""Tasks whose arrays are kept."""
COMPUTING, MEMORY, LINK = ("cores", "slices"), ("memory",), ("link",)
"""Kinds of shared resources that a processor's features show."""
KINDS = ("cpu", "gpu", "fpga")
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
        one_hot: the kind of each resource; the last column is that of all other kinds.

    """

    def __init__(self, system: System, names: tuple[str, ...]) -> None:
        self.names = names
        crowding = system.crowding
        self._model = model = None if crowding is None else crowding.model
        self._rows: dict[Row, TaskArrays] = {}
        self._paces: dict[str, Floats] = {}
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
        self.one_hot = np.zeros((len(names), len(KINDS) + 1))
        for number, resource in enumerate(resources):
            known = resource.kind in KINDS
            kind = KINDS.index(resource.kind) if known else len(KINDS)
            self.one_hot[number, kind] = 1.0
        self.slots = np.array([system.states[name].slots for name in names], float)
        self.pace = model.seconds_per_byte() if model else 0.0
        self.law = _law_on_arrays(model.law if model else slowdown_at_capacity)

    def of_shared(self, figures: dict[str, float]) -> Floats:
        """Return a figure of each shared resource, 0 where there is none."""
        return np.array([*[figures.get(name, 0.0) for name in self.shared], 0.0])

    def arrays_of(self, row: Row, system: System) -> TaskArrays:
        """Return the times and loads of a whole task of a row, without transfers."""
        found = self._rows.get(row)
        if found is None:
            if len(self._rows) >= MOST_KEPT:
                self._rows.clear()
            found = self._rows[row] = self._arrays(row, system)
        return found

    def forget(self) -> None:
        """Forget times and loads. Called when estimates or loads have changed."""
        self._rows.clear()

    def paces_from(self, source: str) -> Floats:
        """Return the seconds per byte from a resource to each: resources by shared ones."""
        found = self._paces.get(source)
        if found is None and self._model is not None:
            found = np.zeros((len(self.names), self.last + 1))
            for place, name in enumerate(self.names):
                for shared, pace in self._model.path(source, name).items():
                    found[place, self.shared[shared]] = pace
            self._paces[source] = found
        return np.zeros((len(self.names), 1)) if found is None else found

    def _arrays(self, row: Row, system: System) -> TaskArrays:
        seconds = np.array([system.seconds(row, name) for name in self.names])
        able = np.isfinite(seconds)
        model = self._model
        loads: list[Loads] = [
            model.loads_of(row.type, name) if model and can else ()
            for name, can in zip(self.names, able, strict=True)
        ]
        shape = len(self.names), max(1, *map(len, loads))
        shared = np.full(shape, self.last, dtype=np.intp)
        demand, bound = np.zeros(shape), np.zeros(shape)
        for place, found in enumerate(loads):
            for number, load in enumerate(found):
                shared[place, number] = self.shared[load.shared]
                demand[place, number] = load.demand
                bound[place, number] = load.bound
        return TaskArrays(seconds, shared, demand, bound)

    def _find(self, uses: object, kinds: tuple[str, ...]) -> int:
        found = [uses[kind] for kind in kinds if kind in uses]  # type: ignore[index, operator]
        return self.shared[found[0]] if found else self.last


def _law_on_arrays(law: Callable[[float], float]) -> Callable[[Floats], Floats]:
    if law is slowdown_at_capacity:
        return lambda load: np.maximum(1.0, load)
    return np.vectorize(law, otypes=[float])


@dataclass(frozen=True, slots=True)
class NodeInstant:
    """Figures that the decisions of one reaction have in common.

    Attributes:
        probabilities: of the levels of each shared resource.
        shown: features of the processors that describe the loads of other programs.

    """

    ends: ExpectedFinish
    node: NodeArrays
    probabilities: Floats
    shown: Floats


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
        instant: NodeInstant,
        tasks: list[TaskRecord],
        arrays: list[TaskArrays],
    ) -> None:
        ends, node = instant.ends, instant.node
        self.node = node
        self._probabilities = instant.probabilities
        self.wait = np.array([ends.free[name][0] for name in node.names])
        self._own = node.of_shared(ends.demand)
        sensitive = node.of_shared(ends.sensitive)
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
        more = beside - self.slowdown_of_shared(0.0)[shared]
        longest = np.where(able, self.duration, 0.0)[:, :, None] * (1.0 + bound)
        self.harm = (more * np.minimum(sensitive[shared], longest)).sum(axis=2)

    def slowdown_at(self, shared: NDArray[np.intp], added: Floats) -> Floats:
        """Return the expected g of shared resources if `added` comes to their load."""
        offered = (self._own[shared] + added)[..., None] + self.node.levels[shared]
        return np.asarray(
            (self._probabilities[shared] * self.node.law(offered)).sum(axis=-1)
        )

    def slowdown_of_shared(self, added: float) -> Floats:
        """Return the expected g of each shared resource if `added` comes to its load."""
        offered = (self._own + added)[:, None] + self.node.levels
        return np.asarray((self._probabilities * self.node.law(offered)).sum(axis=-1))

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

    def prospects(self, tasks: list[TaskRecord], instant: NodeInstant) -> Prospects:
        """Return how tasks would fare now."""
        system, node = instant.ends.system, instant.node
        version = system.estimates.version, _version_of(system.crowding)
        if len(self._tasks) > MOST_KEPT or version != self._version:
            self._tasks.clear()
            node.forget()
            self._version = version
        arrays = []
        for task in tasks:
            key = task.id, task.progress, task.row
            found = self._tasks.get(key)
            if found is None:
                found = self._tasks[key] = _arrays_of(task, system, node)
            arrays.append(found)
        return Prospects(instant, tasks, arrays)


def _version_of(crowding: Crowding | None) -> int:
    return 0 if crowding is None else crowding.model.version


def probabilities_of(crowding: Crowding | None, node: NodeArrays, now: int) -> Floats:
    """Return the probabilities of the levels of each shared resource; the last has one."""
    found = np.zeros(node.levels.shape)
    found[:, 0] = 1.0
    if crowding is not None and node.shared:
        belief = crowding.belief
        found[:-1] = [belief.probabilities(name, now) for name in node.shared]
    return found


def _arrays_of(task: TaskRecord, system: System, node: NodeArrays) -> TaskArrays:
    """Return the times and loads of a task with the transfers of its inputs."""
    arrays = node.arrays_of(task.row, system)
    inputs = [] if task.progress > 0.0 else system.inputs_of(task)
    rest = max(task.left, 1e-9)
    if inputs and system.crowding is None:
        alone = [system.alone(task, name)[0] for name in node.names]
        arrays = replace(arrays, alone=np.array(alone))
    elif inputs:
        arrays = _with_transfers(arrays, inputs, node)
    return replace(arrays, alone=arrays.alone * rest)


def _with_transfers(
    arrays: TaskArrays, inputs: list[tuple[str, int]], node: NodeArrays
) -> TaskArrays:
    """Add the transfers: they are part of the time, bound to the links that they cross."""
    seconds = np.zeros((len(node.names), node.last + 1))
    for source, size in inputs:
        seconds += size * node.paces_from(source)
    able = np.isfinite(arrays.alone)
    seconds[~able] = 0.0
    whole = np.where(able, arrays.alone, 0.0) + seconds.sum(axis=1)
    known = whole > 0.0
    whole[~known] = 1.0
    share = np.where(able & known, arrays.alone / whole, 1.0)[:, None]
    places = np.arange(len(node.names))[:, None]
    demand, bound = np.zeros_like(seconds), np.zeros_like(seconds)
    # a shared resource is once among the loads of a task, but for the padding, which is 0
    demand[places, arrays.shared] = arrays.demand * share
    bound[places, arrays.shared] = arrays.bound * share
    seconds /= whole[:, None]
    alone = np.where(able, np.where(known, whole, 0.0), np.inf)
    return TaskArrays(alone, *_listed(demand + seconds, bound + seconds, node.last))


def _listed(
    demand: Floats, bound: Floats, last: int
) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Return numbers, demands and bounds of the loads of each resource, side by side."""
    places, numbers = np.nonzero((demand > 0.0) | (bound > 0.0))
    counts = np.bincount(places, minlength=len(demand))
    firsts = np.cumsum(counts) - counts
    columns = np.arange(len(places)) - firsts[places]
    shape = len(demand), max(1, int(counts.max(initial=0)))
    shared = np.full(shape, last, dtype=np.intp)
    listed = np.zeros((2, *shape))
    shared[places, columns] = numbers
    listed[0, places, columns] = demand[places, numbers]
    listed[1, places, columns] = bound[places, numbers]
    return shared, listed[0], listed[1]
