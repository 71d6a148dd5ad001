"""The scenario document: what `hetsim run` reads. Checked whole before anything runs.

Times are seconds, sizes bytes, powers watts. Unknown keys are ignored; `null` and an
absent key mean the default. Beside the fixed keys there are some of our own: `bursts`,
`cores`, `memory_bytes`, `device_bytes`, `outages`, `crashes`, `strip_variation`, `spread`,
`measured_makespan`, `parallel`, `merge_s`, `policy`, `policy_parameters`, `set_up_s`,
`report_s`.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from hetsched.belief import COUNTERS
from hetsched.contention import Tenants
from hetsim.documents import convert, decode_json, read_document
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FORMAT = "hetsim/scenario-1"


Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Whole: TypeAlias = Annotated[int, Meta(ge=0)]
Slots: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
"""Planners of batches have a column for each slot."""
Bytes: TypeAlias = Annotated[float, Meta(ge=0)]
Seconds: TypeAlias = dict[str, Amount | None]
"""Resource name -> seconds of the whole task; null: cannot run there."""


class ResourceModel(Struct, frozen=True):
    """A processor.

    Attributes:
        sharing: "processor": n running tasks each progress at 1/n of full speed.
        memory_bytes: its own memory; null: it is not counted.

    """

    name: str
    kind: str | None = None
    slots: Slots = 1
    queue_limit: Annotated[int, Meta(ge=0)] | None = None
    busy_watts: Amount | None = 0.0
    idle_watts: Amount | None = 0.0
    link_bytes_per_s: Annotated[float, Meta(gt=0)] | None = None
    reconfigure_s: Amount | None = 0.0
    sharing: Literal["processor", "none"] | None = None
    memory_bytes: Bytes | None = None
    uses: dict[str, str] = {}


class SharedModel(Struct, frozen=True):
    """A part of the node that tasks share, such as memory or a link.

    Attributes:
        bytes_per_s: rate of a transfer over it; null: inputs do not cross it.

    """

    name: str
    kind: str
    bytes_per_s: Annotated[float, Meta(gt=0)] | None = None


class BackgroundSteps(Struct, frozen=True):
    """The load of other programs on a shared resource: [instant, load] of each change."""

    shared: str
    steps: list[tuple[Amount, Amount]]


class DrawnBackground(Struct, frozen=True):
    """Loads of other programs, drawn from the seed; the scheduler knows these figures.

    Attributes:
        levels, weights: loads, and the share of time at each.
        mean_s: mean time until a level is drawn again.
        scale: kind of shared resource -> factor of the levels there.

    """

    levels: Annotated[list[Amount], Meta(min_length=1)] = field(
        default_factory=lambda: list(Tenants().levels)
    )
    weights: Annotated[list[Amount], Meta(min_length=1)] = field(
        default_factory=lambda: list(Tenants().weights)
    )
    mean_s: Annotated[float, Meta(gt=0)] = 60.0
    scale: dict[str, Amount] = {}


class CounterModel(Struct, frozen=True):
    """Counters that are read of every shared resource.

    Attributes:
        noise: counter -> standard deviation of a sample.
        missing: probability that a counter is not there at a reading.
        belief: for comparisons, `last`: schedulers take the last readings without a filter;
            `raw`: they also take noise for stalls.

    """

    samples: Annotated[int, Meta(ge=2, le=10_000)] = 8
    noise: dict[str, Amount] = field(
        default_factory=lambda: {"bandwidth": 0.15, "stall": 0.10}
    )
    missing: Annotated[float, Meta(ge=0, le=1)] = 0.1
    every_s: Annotated[float, Meta(ge=0.001)] = 2.0
    belief: Literal["filter", "last", "raw"] = "filter"


class LawModel(Struct, frozen=True):
    """The law of contention that holds; schedulers assume `max`."""

    law: Literal["max", "queue", "thrash"] = "max"


class TypeModel(Struct, frozen=True):
    """A task type. `seconds` is what the scheduler expects (EET).

    Attributes:
        spread: relative standard deviation of what is expected, as the scheduler knows it.
        load: resource -> shared resource -> load that a running task offers to it.
        bound: the same -> share of its time alone that is bound to the shared resource.
        cores: processor cores that a running task needs; `memory_bytes`: of host memory;
            `device_bytes`: of the memory of its resource.
        strip_variation: coefficient of variation of the times of a task's strips, which
            add up to its time.
        parallel: its strips are independent: several resources may do them at once.
        merge_s: time to set up a part of a task and to merge the results.

    """

    name: str
    seconds: Seconds
    strips: Count = 1
    input_bytes: Bytes | None = 0
    state_bytes: Bytes | None = 0
    migration_s: Amount | None = 0.0
    overrun: Literal["continue", "stop_at_deadline"] | None = "continue"
    strip_variation: Amount | None = 0.0
    spread: dict[str, Amount] = {}
    output_bytes: Bytes | None = 0
    load: dict[str, dict[str, Amount]] = {}
    bound: dict[str, dict[str, Annotated[float, Meta(ge=0, le=1)]]] = {}
    cores: Whole | None = 0
    memory_bytes: Bytes | None = 0
    device_bytes: Bytes | None = 0
    parallel: bool | None = False
    merge_s: Amount | None = 0.0


class InputModel(Struct, frozen=True):
    """A result of another task that a task reads.

    Attributes:
        source: the other task; `from` in the document.
        bytes: its size; null: the `output_bytes` of that task's type.

    """

    source: str | int = field(name="from")
    bytes: Bytes | None = None


class TaskModel(Struct, frozen=True):
    """A task. `actual_seconds` is what happens; default: what is expected.

    Attributes:
        inputs: results that it reads; it comes after their tasks.
        job: name of the job that it belongs to.
        cores: replaces that of its type, as does `memory_bytes`.
        set_up_s: time before its first strip, in its slot and not part of its seconds.

    """

    id: str | int
    type: str
    arrival: Amount | None = 0.0
    deadline: float | None = None
    priority: int | None = 0
    after: list[str | int] | None = None
    actual_seconds: Seconds | None = None
    inputs: list[InputModel] | None = None
    job: str | None = None
    cores: Whole | None = None
    memory_bytes: Bytes | None = None
    set_up_s: Amount | None = 0.0

    def predecessors(self) -> list[str | int]:
        """List the tasks that it comes after, those of `inputs` after those of `after`."""
        sources = [each.source for each in self.inputs or []]
        return list(dict.fromkeys([*(self.after or []), *sources]))


class Burst(Struct, frozen=True):
    """Many tasks of one type: the first at `at`, then one every `every` seconds.

    Their ids are `prefix` and a number from 1.
    """

    type: str
    count: Count
    at: Amount = 0.0
    every: Amount = 0.0
    deadline_after: Amount | None = None
    priority: int = 0
    prefix: str | None = None


class Outage(Struct, frozen=True):
    """A resource that is away from `start` to `finish` (null: for good).

    Attributes:
        drain: it leaves in good order, at checkpoints; else what runs there is lost.

    """

    resource: str
    start: Amount
    finish: Amount | None = None
    drain: bool = False


class Crash(Struct, frozen=True):
    """A type whose tasks crash on a resource, before their first strip there.

    Attributes:
        after: seconds from a task's start there to its crash.
        start, finish: when tasks crash that start there; null: from the start, for good.

    """

    type: str
    resource: str
    after: Amount = 0.0
    start: Amount = 0.0
    finish: Amount | None = None


class Scenario(Struct, frozen=True):
    """The whole document.

    Attributes:
        measured_makespan: what the real node took, where this is a trace of one.
        shared: what tasks share; empty: they do not slow each other down.
        background: what other programs take; `counters`: what the scheduler sees of it.
        policy: under which it is run if none is named; `policy_parameters`: its own.
        cores: processor cores of the node, `memory_bytes`: its host memory; null: not counted.
        report_s: least time between two reports of a task's progress.

    """

    format: str
    resources: Annotated[list[ResourceModel], Meta(min_length=1)]
    types: list[TypeModel]
    tasks: list[TaskModel] = []
    bursts: list[Burst] = []
    outages: list[Outage] = []
    crashes: list[Crash] = []
    measured_makespan: Annotated[float, Meta(gt=0)] | None = None
    shared: list[SharedModel] = []
    background: list[BackgroundSteps] | DrawnBackground = []
    counters: CounterModel | None = None
    contention: LawModel = LawModel()
    policy: str | None = None
    policy_parameters: dict[str, Any] = {}
    cores: Count | None = None
    memory_bytes: Bytes | None = None
    report_s: Annotated[float, Meta(ge=0.001)] | None = 1.0

    def all_tasks(self) -> list[TaskModel]:
        """List the tasks, those of the bursts after the single ones."""
        return self.tasks + [task for burst in self.bursts for task in _tasks_of(burst)]


def read_scenario(path: Path) -> Scenario:
    """Read and check a scenario file.

    Raises:
        InputError: unreadable or malformed; names the file and the place.

    """
    return read_document(path, decode_scenario)


def decode_scenario(text: bytes | str) -> Scenario:
    """Check a scenario as JSON text.

    Raises:
        InputError: malformed; names the place.

    """
    return check_scenario(decode_json(text))


def check_scenario(raw: Any) -> Scenario:
    """Turn a decoded document into a scenario.

    Raises:
        InputError: malformed; names the place.

    """
    scenario = convert(_without_nulls(raw), Scenario, shown=raw)
    if scenario.format != FORMAT:
        raise InputError(f'format: expected "{FORMAT}", got "{scenario.format}"')
    _check_names(scenario)
    _check_references(scenario)
    return scenario


def _without_nulls(raw: Any) -> Any:
    """Drop null keys of the document and its entries: an absent key has a default.

    Nulls inside `seconds` mean something and stay.
    """
    if not isinstance(raw, dict):
        return raw
    return {
        key: [_drop_nulls(entry) for entry in value]
        if isinstance(value, list)
        else value
        for key, value in raw.items()
        if value is not None
    }


def _drop_nulls(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {key: value for key, value in entry.items() if value is not None}


def _tasks_of(burst: Burst) -> list[TaskModel]:
    prefix = burst.prefix or f"{burst.type}@{burst.at:g}#"
    times = [burst.at + number * burst.every for number in range(burst.count)]
    return [
        TaskModel(
            id=f"{prefix}{number}",
            type=burst.type,
            arrival=at,
            deadline=None
            if burst.deadline_after is None
            else at + burst.deadline_after,
            priority=burst.priority,
        )
        for number, at in enumerate(times, start=1)
    ]


def _check_names(scenario: Scenario) -> None:
    _demand_unique("resources", "name", [r.name for r in scenario.resources])
    _demand_unique("types", "name", [t.name for t in scenario.types])
    _demand_unique("tasks", "id", [t.id for t in scenario.all_tasks()])


def _demand_unique(table: str, key: str, names: list[Any]) -> None:
    seen: set[Any] = set()
    for index, name in enumerate(names):
        if name in seen:
            place = f"{table}[{index}].{key}"
            raise InputError(f'{place}: "{name}" is there already')
        seen.add(name)


def _check_references(scenario: Scenario) -> None:
    types = [t.name for t in scenario.types]
    resources = [r.name for r in scenario.resources]
    for index, task in enumerate(scenario.tasks):
        _demand_known(f"tasks[{index}].type", task.type, types, "type")
    for index, burst in enumerate(scenario.bursts):
        _demand_known(f"bursts[{index}].type", burst.type, types, "type")
    for index, outage in enumerate(scenario.outages):
        place = f"outages[{index}].resource"
        _demand_known(place, outage.resource, resources, "resource")
    for index, crash in enumerate(scenario.crashes):
        place = f"crashes[{index}]"
        _demand_known(f"{place}.type", crash.type, types, "type")
        _demand_known(f"{place}.resource", crash.resource, resources, "resource")
    _check_needs(scenario)
    _check_order(scenario)
    _check_sharing(scenario)


def _check_sharing(scenario: Scenario) -> None:
    """See that all that is shared has a name, and belongs to the kind that it is used as."""
    _demand_unique("shared", "name", [each.name for each in scenario.shared])
    shared = [each.name for each in scenario.shared]
    kinds = {each.name: each.kind for each in scenario.shared}
    for index, resource in enumerate(scenario.resources):
        for kind, name in resource.uses.items():
            place = f"resources[{index}].uses.{kind}"
            _demand_known(place, name, shared, "shared resource")
            if kinds[name] != kind:
                raise InputError(f'{place}: "{name}" is of kind "{kinds[name]}"')
        if resource.uses and resource.sharing == "processor":
            place = f"resources[{index}].sharing"
            raise InputError(f'{place}: not with "uses": they exclude each other')
    for index, task_type in enumerate(scenario.types):
        _check_loads_of_type(f"types[{index}]", task_type, shared)
    _check_background(scenario.background, shared)
    for counter in scenario.counters.noise if scenario.counters else ():
        _demand_known("counters.noise", counter, list(COUNTERS), "counter")


def _check_loads_of_type(place: str, kind: TypeModel, shared: list[str]) -> None:
    _check_loads(f"{place}.load", kind.load, shared)
    _check_loads(f"{place}.bound", kind.bound, shared)


def _check_loads(
    place: str, loads: Mapping[str, Mapping[str, float]], shared: list[str]
) -> None:
    for resource, parts in loads.items():
        for name in parts:
            _demand_known(f"{place}.{resource}", name, shared, "shared resource")


def _check_background(
    background: list[BackgroundSteps] | DrawnBackground, shared: list[str]
) -> None:
    if isinstance(background, DrawnBackground):
        if len(background.levels) != len(background.weights):
            raise InputError("background.weights: expected one for each level")
        if sum(background.weights) <= 0:
            raise InputError("background.weights: all are 0")
        return
    for index, each in enumerate(background):
        place = f"background[{index}].shared"
        _demand_known(place, each.shared, shared, "shared resource")


def _check_needs(scenario: Scenario) -> None:
    """See that no task needs more cores or memory than there are."""
    tables: dict[str, list[Any]] = {"types": scenario.types, "tasks": scenario.tasks}
    for key in ("cores", "memory_bytes"):
        most = getattr(scenario, key)
        for table, entries in tables.items():
            for index, entry in enumerate(entries):
                wanted = getattr(entry, key) or 0
                if most is not None and wanted > most:
                    place = f"{table}[{index}].{key}"
                    raise InputError(f"{place}: {wanted:g}, and there are {most:g}")


def _demand_known(place: str, name: Any, known: list[Any], what: str) -> None:
    if name not in known:
        offered = ", ".join(f'"{one}"' for one in known[:10]) or "none"
        raise InputError(f'{place}: no {what} "{name}"; there are: {offered}')


def _named_by(task: TaskModel) -> Iterator[tuple[str, str | int]]:
    """Iterate over the tasks that a task names, with the place of each."""
    for position, other in enumerate(task.after or []):
        yield f"after[{position}]", other
    for position, each in enumerate(task.inputs or []):
        yield f"inputs[{position}].from", each.source


def _check_order(scenario: Scenario) -> None:
    """See that `after` names tasks and that no task comes after itself."""
    known = {task.id for task in scenario.all_tasks()}
    graph: TopologicalSorter[str | int] = TopologicalSorter()
    for index, task in enumerate(scenario.tasks):
        for place, other in _named_by(task):
            if other not in known:
                raise InputError(f'tasks[{index}].{place}: no task "{other}"')
        graph.add(task.id, *task.predecessors())
    try:
        graph.prepare()
    except CycleError as error:
        index = [task.id for task in scenario.tasks].index(error.args[1][0])
        circle = " after ".join(f'"{task}"' for task in error.args[1])
        raise InputError(f"tasks[{index}].after: a circle: {circle}") from error
