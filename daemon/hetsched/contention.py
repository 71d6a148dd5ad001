"""The model of contention: tasks that share memory, links and cores slow each other down.

The offered load D of a shared resource is the sum of the demands of the tasks that run, and
of what other programs take, which nobody reports. A task alone takes T seconds; the share w
of them that is bound to a shared resource takes w T g(D), where g is the *law*. The figures
of a node are data for the scheduler; the simulator computes the truth by the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def slowdown_at_capacity(load: float) -> float:
    """Return g(D) = max(1, D): nothing is slower until the resource is fully used."""
    return max(1.0, load)


def slowdown_by_queueing(load: float) -> float:
    """Return g(D) = 1 + 1.3 max(0, D - 0.5): requests wait before it is fully used."""
    return 1.0 + 1.3 * max(0.0, load - 0.5)


def slowdown_by_thrashing(load: float) -> float:
    """Return g(D) = max(1, D)^1.6: work is repeated once it is fully used."""
    return load**1.6 if load > 1.0 else 1.0


LAWS: dict[str, Callable[[float], float]] = {
    "max": slowdown_at_capacity,
    "queue": slowdown_by_queueing,
    "thrash": slowdown_by_thrashing,
}
"""Name of each law of contention."""


@dataclass(frozen=True, slots=True)
class SharedResource:
    """A part of the node that several tasks use at once.

    Attributes:
        kind: which of the `uses` of a processor it serves: `cores`, `memory`, `slices`;
            `link`, `bus` and `network` also carry inputs.
        bytes_per_s: rate of a transfer that has it for itself; None: it carries none. Of
            a memory: its bandwidth.

    """

    name: str
    kind: str
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The effect of a task on a shared resource, and of the resource on the task.

    Attributes:
        demand: what it adds to the offered load; 1 is the resource's capacity.
        bound: share of its time alone that is bound to the resource.

    """

    shared: str
    demand: float
    bound: float


Loads: TypeAlias = tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class Tenants:
    """Figures of other programs on the node, which nobody reports.

    Attributes:
        levels: loads that they may offer to a shared resource, ascending.
        weights: share of the time at each level.
        mean_s: mean time until a level is drawn again, in seconds.
        scale: kind of shared resource -> factor of the levels there.

    """

    levels: tuple[float, ...] = (0.0, 0.3, 0.6, 1.0, 1.5)
    weights: tuple[float, ...] = (0.35, 0.2, 0.2, 0.15, 0.1)
    mean_s: float = 60.0
    scale: Mapping[str, float] = field(default_factory=dict)

    def levels_of(self, kind: str) -> tuple[float, ...]:
        """Return the levels for shared resources of a kind."""
        factor = self.scale.get(kind, 1.0)
        return tuple(level * factor for level in self.levels)


class ContentionModel:
    """The shared resources of a node, and the loads of task types on them.

    Args:
        shared: the shared resources.
        uses: processor -> kind -> name of the shared resource of that kind that it uses.
        loads: (task type, processor) -> loads of such a task there.
        tenants: what is known about other programs.
        law: name of the law in `LAWS`.
        defaults: processor -> loads of task types that have none of their own there.
        application: returns the application of a task type; its loads are those of all
            its types. None: types stand for themselves.
        belief: what is made of counters, by its name in `hetsched.belief.BELIEFS`; all but
            `filter` serve comparisons.

    """

    def __init__(  # noqa: PLR0913, PLR0917  the figures of a node
        self,
        shared: Iterable[SharedResource],
        uses: Mapping[str, Mapping[str, str]],
        loads: Mapping[tuple[str, str], Loads],
        tenants: Tenants | None = None,
        law: str = "max",
        defaults: Mapping[str, Loads] | None = None,
        application: Callable[[str], str] | None = None,
        *,
        belief: str = "filter",
    ) -> None:
        self.belief = belief
        self.shared = {each.name: each for each in shared}
        self.uses = uses
        self.loads = dict(loads)
        self.defaults = defaults or {}
        self._application = application
        self.tenants = tenants or Tenants()
        self.law = LAWS[law]
        self.version = 0
        """Changes with the loads."""
        self._paths: dict[tuple[str, str], dict[str, float]] = {}

    def put(self, task_type: str, processor: str, loads: Loads | None) -> None:
        """Set the loads of a type or application on a processor; None: as usual there."""
        if loads is None:
            self.loads.pop((task_type, processor), None)
        else:
            self.loads[task_type, processor] = loads
        self.version += 1

    def loads_of(self, task_type: str, processor: str) -> Loads:
        """Return the loads of a task of a type on a processor."""
        found = self.loads.get((task_type, processor))
        if found is None and self._application is not None:
            found = self.loads.get((self._application(task_type), processor))
        return self.defaults.get(processor, ()) if found is None else found

    def path(self, source: str, target: str) -> dict[str, float]:
        """Return the seconds per byte on each shared resource between two processors.

        A link is crossed at each end that has one; a bus where both ends use it but
        different memories; a network at both ends, where these differ.
        """
        found = self._paths.get((source, target))
        if found is None:
            found = self._paths[source, target] = self._path(source, target)
        return found

    def transfer(
        self, inputs: Iterable[tuple[str, int]], target: str
    ) -> dict[str, float]:
        """Return the seconds that inputs take on each shared resource on their way.

        Args:
            inputs: processors that they are on, and their bytes.
            target: the processor that reads them.

        """
        seconds: dict[str, float] = {}
        for source, size in inputs:
            for name, pace in self.path(source, target).items():
                seconds[name] = seconds.get(name, 0.0) + size * pace
        return seconds

    def with_transfer(
        self, task_type: str, processor: str, alone: float, transfer: dict[str, float]
    ) -> tuple[float, Loads]:
        """Return the seconds alone of a task with its transfers, and the loads of both.

        Transfers are part of the task's time, bound to the links that they cross.
        """
        loads = self.loads_of(task_type, processor)
        if not transfer:
            return alone, loads
        whole = alone + sum(transfer.values())
        if whole <= 0.0:
            return alone, loads
        share = alone / whole
        parts = {load.shared: (load.demand, load.bound) for load in loads}
        for name in transfer:
            parts.setdefault(name, (0.0, 0.0))
        return whole, tuple(
            Load(
                name,
                demand * share + transfer.get(name, 0.0) / whole,
                bound * share + transfer.get(name, 0.0) / whole,
            )
            for name, (demand, bound) in parts.items()
        )

    def seconds_per_byte(self) -> float:
        """Return the mean time of a transfer between two different processors."""
        names = list(self.uses)
        sums = [sum(self.path(a, b).values()) for a in names for b in names if a != b]
        return sum(sums) / len(sums) if sums else 0.0

    def _path(self, source: str, target: str) -> dict[str, float]:
        if source == target:
            return {}
        here, there = self.uses.get(source, {}), self.uses.get(target, {})
        crossed = [uses["link"] for uses in (here, there) if "link" in uses]
        if here.get("network") != there.get("network"):
            crossed += [uses["network"] for uses in (here, there) if "network" in uses]
        if here.get("memory") != there.get("memory"):
            buses = {uses["bus"] for uses in (here, there) if "bus" in uses}
            crossed += sorted(buses)
        paces: dict[str, float] = {}
        for name in crossed:
            rate = self.shared[name].bytes_per_s
            if rate:
                paces[name] = paces.get(name, 0.0) + 1.0 / rate
        return paces


def slowdown(
    loads: Loads, demand: Mapping[str, float], law: Callable[[float], float]
) -> float:
    """Return the factor by which a task takes longer than alone.

    Args:
        loads: of the task.
        demand: offered load of each shared resource, that of the task included.
        law: g.

    """
    factor = 1.0
    for load in loads:
        factor += load.bound * (law(demand.get(load.shared, 0.0)) - 1.0)
    return factor
