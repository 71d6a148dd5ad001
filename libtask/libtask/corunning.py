"""Co-runs: measure how much applications slow each other down, and load what they share.

Used by `hetctl characterize --together`. Each pair of applications runs at once on a
resource that has two slots; of each run only the time counts in which both computed. From
the slowdowns of all pairs follow, for each application, the load that it offers to the
memory and the share of its time that depends on it: the same model as the scheduler's
(`hetsched.contention`), with g(D) = max(1, D).
"""

from __future__ import annotations

import statistics
from itertools import combinations_with_replacement
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

from libtask.apps import Options, describe
from libtask.characterisation import PREFIX, samples_of
from libtask.errors import InputError
from libtask.messages import LearnedLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from libtask.characterisation import Run
    from libtask.messages import DeviceInfo, DeviceList, Sample, SharedLoad, TaskInfo
    from libtask.task import Task

RUNS = 3
"""Number of runs of each application alone and of each pair; their medians count."""
LEAST_OVERLAP = 0.3
"""Share of a run alone in which both must have computed, for a pair to count."""
MOST = 8.0
"""Slowdowns are taken for this at most: there is always some noise."""
STEPS = 20
"""Steps of the grid on which loads are sought, from 0 to 1."""
SWEEPS = 30
USUAL = 0.3
"""Load and share without any measurement; what pairs leave open stays near it."""
PULL = 1e-3
"""Weight of that, against the squared errors of slowdowns."""


class TogetherNode(Protocol):
    """The interface of a node that co-runs use; `libtask.Client` is one."""

    def node_load(self) -> DeviceList: ...
    def submit(self, app: Task, /, *, resources: Sequence[str], name: str) -> Run: ...
    def learn(
        self, samples: Sequence[Sample], loads: Sequence[LearnedLoad] = ()
    ) -> None: ...


def characterise_together(
    node: TogetherNode,
    apps: Sequence[str] = (),
    *,
    report: Callable[[str], None] = lambda _text: None,
) -> list[LearnedLoad]:
    """Measure pairs of applications on each CPU resource with two slots.

    The node stores the loads, and they are in force from then on.

    Args:
        node: a client of the daemon.
        apps: names of applications; empty: all installed ones that offer samples.
        report: called with what is run next.

    Returns:
        the loads of each application on the memory of each resource.

    Raises:
        InputError: an application is unknown or has no samples, no resource runs two
            tasks at once, or nothing is declared to be shared.
        NotAllowedError: the node takes no measurements from this user.

    """
    node.learn([])  # refused now rather than after all has been measured
    found = node.node_load()
    places = [each for each in found.devices if _holds_two(each)]
    if not places:
        raise InputError("no resource runs two tasks at once")
    with TemporaryDirectory(prefix="hetd-") as folder:
        tasks = _middle_samples(apps, Path(folder))
        loads: list[LearnedLoad] = []
        for device in places:
            measured = _measure(node, tasks, _memory_of(device, found.shared), report)
            node.learn([], measured)
            loads += measured
        return loads


def fit_loads(
    slowdowns: Mapping[tuple[str, str], float],
) -> dict[str, tuple[float, float]]:
    """Return demand and bound share of each application that explain the slowdowns best.

    Args:
        slowdowns: (application, the one beside it) -> factor.

    """
    names = sorted({name for pair in slowdowns for name in pair})
    found = dict.fromkeys(names, (USUAL, USUAL))
    grid = [step / STEPS for step in range(STEPS + 1)]
    for _ in range(SWEEPS):
        before = dict(found)
        for name in names:
            mine = {pair: s for pair, s in slowdowns.items() if name in pair}
            _, found[name] = min(
                (_error(mine, found | {name: (u, w)}, (u, w)), (u, w))
                for u in grid
                for w in grid
            )
        if found == before:
            break
    return found


def slowdown_alone_to_together(alone: float, beside: float, overlap: float) -> float:
    """Return the slowdown while two tasks computed, from the times of one of them.

    Args:
        alone: seconds of its run alone.
        beside: seconds of its run beside the other.
        overlap: seconds of that in which both computed.

    """
    done = alone - (beside - overlap)
    return MOST if done <= overlap / MOST else max(1.0, overlap / done)


def _error(
    slowdowns: Mapping[tuple[str, str], float],
    loads: Mapping[str, tuple[float, float]],
    chosen: tuple[float, float],
) -> float:
    error = PULL * sum((value - USUAL) ** 2 for value in chosen)
    for (one, other), measured in slowdowns.items():
        demand, bound = loads[one]
        together = max(1.0, demand + loads[other][0])
        error += (1.0 + bound * (together - 1.0) - measured) ** 2
    return error


def _holds_two(device: DeviceInfo) -> bool:
    return device.spec.kind == "cpu" and device.slots > 1 and device.state == "up"


def _memory_of(device: DeviceInfo, shared: Sequence[SharedLoad]) -> tuple[str, str]:
    """Return a resource and the memory that it uses."""
    name = device.spec.name
    for each in shared:
        if each.kind == "memory" and name in each.used_by:
            return name, each.name
    text = "nothing says which memory it uses; see [contention] in hetd.toml"
    raise InputError(f"{name}: {text}")


def _middle_samples(apps: Sequence[str], folder: Path) -> dict[str, Task]:
    """Return a sample of each application that the CPU can run: the middle one by work."""
    found: dict[str, Task] = {}
    for app, tasks in samples_of(apps, folder, ()):
        described = [(describe(task, app, Options()), task) for task in tasks]
        usable = [pair for pair in described if "cpu" in pair[0].kinds]
        if usable:
            usable.sort(key=lambda pair: pair[0].work)
            found[app] = usable[len(usable) // 2][1]
    return found


def _measure(
    node: TogetherNode,
    tasks: Mapping[str, Task],
    place: tuple[str, str],
    report: Callable[[str], None],
) -> list[LearnedLoad]:
    resource, shared = place
    alone: dict[str, float] = {}
    for app, task in tasks.items():
        report(f"{app} alone on {resource}")
        _run(node, resource, task)  # compiles
        runs = [_run(node, resource, task)[0] for _ in range(RUNS)]
        alone[app] = statistics.median(_seconds(info) for info in runs)
    slowdowns: dict[tuple[str, str], float] = {}
    for one, other in combinations_with_replacement(tasks, 2):
        report(f"{one} beside {other} on {resource}")
        runs2 = [_run(node, resource, tasks[one], tasks[other]) for _ in range(RUNS)]
        slowdowns |= _slowdowns((one, other), runs2, alone)
    loads = fit_loads(slowdowns)
    return [
        LearnedLoad(
            *(app, resource, shared, demand, bound),
            {other: s for (one, other), s in slowdowns.items() if one == app},
        )
        for app, (demand, bound) in loads.items()
    ]


def _run(node: TogetherNode, resource: str, *tasks: Task) -> list[TaskInfo]:
    """Run tasks at once; return their records."""
    runs = [
        node.submit(task, resources=[resource], name=f"{PREFIX} together")
        for task in tasks
    ]
    try:
        states = [run.wait() for run in runs]
    except BaseException:  # also on Ctrl-C
        for run in runs:
            run.cancel()
        raise
    infos = [run.info() for run in runs]
    for state, info in zip(states, infos, strict=True):
        if state != "completed":
            raise InputError(f"{info.type}: {info.reason or state}")
    return infos


def _slowdowns(
    names: tuple[str, str],
    runs: Sequence[Sequence[TaskInfo]],
    alone: Mapping[str, float],
) -> dict[tuple[str, str], float]:
    """Return the slowdown of each of a pair; empty: they hardly ever computed at once."""
    found: dict[tuple[str, str], list[float]] = {}
    for first, second in runs:
        overlap = _overlap(first, second)
        pairs = ((names, first), (names[::-1], second))
        for (one, other), info in pairs:
            if overlap >= LEAST_OVERLAP * alone[one]:
                factor = slowdown_alone_to_together(
                    alone[one], _seconds(info), min(overlap, _seconds(info))
                )
                found.setdefault((one, other), []).append(factor)
    return {pair: statistics.median(values) for pair, values in found.items()}


def _seconds(info: TaskInfo) -> float:
    """Return the seconds that the strips of an ended task took."""
    return sum(each.seconds for each in info.segments if not each.error)


def _overlap(first: TaskInfo, second: TaskInfo) -> float:
    """Return the seconds in which both computed."""
    starts = [_from(info) for info in (first, second)]
    ends = [_until(info) for info in (first, second)]
    return max(0.0, min(ends) - max(starts))


def _from(info: TaskInfo) -> float:
    segment = info.segments[0]
    return segment.computing or segment.start


def _until(info: TaskInfo) -> float:
    segment = info.segments[-1]
    return segment.computed or segment.finish or segment.start
