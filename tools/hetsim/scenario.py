"""The scenario document: what `hetsim run` reads. Checked whole before anything runs.

Times are seconds, sizes bytes, powers watts. Unknown keys are ignored; `null` and an
absent key mean the default. Beside the fixed keys there are some of our own: `bursts`,
`outages`, `crashes`, `strip_variation`, `spread`, `measured_makespan`, `policy`, `policy_parameters`.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from hetsim.documents import convert, decode_json, read_document
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "hetsim/scenario-1"

Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Bytes: TypeAlias = Annotated[float, Meta(ge=0)]
Seconds: TypeAlias = dict[str, Amount | None]
"""Resource name -> seconds of the whole task; null: cannot run there."""


class ResourceModel(Struct, frozen=True):
    """A processor.

    Attributes:
        sharing: "processor": n running tasks each progress at 1/n of full speed.

    """

    name: str
    kind: str | None = None
    slots: Count = 1
    queue_limit: Annotated[int, Meta(ge=0)] | None = None
    busy_watts: Amount | None = 0.0
    idle_watts: Amount | None = 0.0
    link_bytes_per_s: Annotated[float, Meta(gt=0)] | None = None
    reconfigure_s: Amount | None = 0.0
    sharing: Literal["processor", "none"] | None = None


class TypeModel(Struct, frozen=True):
    """A task type. `seconds` is what the scheduler expects (EET).

    Attributes:
        spread: relative standard deviation of what is expected, as the scheduler knows it.
        strip_variation: coefficient of variation of the times of a task's strips, which
            add up to its time.

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


class TaskModel(Struct, frozen=True):
    """A task. `actual_seconds` is what happens; default: what is expected."""

    id: str | int
    type: str
    arrival: Amount | None = 0.0
    deadline: float | None = None
    priority: int | None = 0
    after: list[str | int] | None = None
    actual_seconds: Seconds | None = None


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
        policy: under which it is run if none is named; `policy_parameters`: its own.

    """

    format: str
    resources: Annotated[list[ResourceModel], Meta(min_length=1)]
    types: list[TypeModel]
    tasks: list[TaskModel] = []
    bursts: list[Burst] = []
    outages: list[Outage] = []
    crashes: list[Crash] = []
    measured_makespan: Annotated[float, Meta(gt=0)] | None = None
    policy: str | None = None
    policy_parameters: dict[str, Any] = {}

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
    _check_order(scenario)


def _demand_known(place: str, name: Any, known: list[Any], what: str) -> None:
    if name not in known:
        offered = ", ".join(f'"{one}"' for one in known[:10]) or "none"
        raise InputError(f'{place}: no {what} "{name}"; there are: {offered}')


def _check_order(scenario: Scenario) -> None:
    """See that `after` names tasks and that no task comes after itself."""
    known = {task.id for task in scenario.all_tasks()}
    graph: TopologicalSorter[str | int] = TopologicalSorter()
    for index, task in enumerate(scenario.tasks):
        for position, other in enumerate(task.after or []):
            if other not in known:
                place = f"tasks[{index}].after[{position}]"
                raise InputError(f'{place}: no task "{other}"')
        graph.add(task.id, *(task.after or []))
    try:
        graph.prepare()
    except CycleError as error:
        index = [task.id for task in scenario.tasks].index(error.args[1][0])
        circle = " after ".join(f'"{task}"' for task in error.args[1])
        raise InputError(f"tasks[{index}].after: a circle: {circle}") from error
