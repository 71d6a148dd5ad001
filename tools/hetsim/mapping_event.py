"""The document of one mapping event, `hetsim/mapping-1`: machines, queues, arrivals.

Machines and types are numbered from 0; times are seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from hetsim.documents import convert, decode_json, read_document
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = "hetsim/mapping-1"

Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Number: TypeAlias = Annotated[int, Meta(ge=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class TaskState(Struct, frozen=True):
    """A task that waits. `deadline` null: none."""

    id: str | int
    type: Number
    deadline: float | None = None


class RunningState(TaskState, frozen=True, kw_only=True):
    """A task that runs."""

    start: float


class MachineState(Struct, frozen=True):
    """A machine: what runs and what waits there, in order."""

    running: RunningState | None = None
    queue: list[TaskState] = []


class MappingEvent(Struct, frozen=True):
    """The whole document.

    Attributes:
        eet: type x machine -> expected seconds; null: cannot run there.
        p_dyn: dynamic power by machine.
        slots: waiting slots of a machine, the running task not counted; null: no limit.
        arriving: unmapped tasks, in order of arrival.

    """

    format: str
    now: float
    eet: Annotated[list[list[Amount | None]], Meta(min_length=1)]
    machines: Annotated[list[MachineState], Meta(min_length=1)]
    arriving: list[TaskState]
    p_dyn: list[Amount] | None = None
    slots: Number | None = 3
    fairness_factor: Amount | UnsetType = UNSET
    completion_rates: list[Share] | None = None

    def rates(self) -> dict[str, float]:
        """Completion rates by the name of the type."""
        return {str(i): rate for i, rate in enumerate(self.completion_rates or [])}


def read_event(path: Path) -> MappingEvent:
    """Read and check a mapping event.

    Raises:
        InputError: unreadable or malformed; names the file and the place.

    """
    return read_document(path, decode_event)


def decode_event(text: bytes | str) -> MappingEvent:
    """Check a mapping event as JSON text.

    Raises:
        InputError: malformed; names the place.

    """
    event = convert(decode_json(text), MappingEvent)
    for complaint in _complaints(event):
        raise InputError(complaint)
    return event


def _complaints(event: MappingEvent) -> Iterator[str]:
    if event.format != FORMAT:
        yield f'format: expected "{FORMAT}", got "{event.format}"'
    machines = len(event.machines)
    for index, row in enumerate(event.eet):
        if len(row) != machines:
            yield f"eet[{index}]: expected {machines} numbers, one a machine, got {len(row)}"
    if event.p_dyn is not None and len(event.p_dyn) != machines:
        yield f"p_dyn: expected {machines} numbers, one a machine, got {len(event.p_dyn)}"
    rates, types = event.completion_rates, len(event.eet)
    if rates is not None and len(rates) != types:
        yield f"completion_rates: expected {types} numbers, one a type, got {len(rates)}"
    yield from _task_complaints(event)


def _task_complaints(event: MappingEvent) -> Iterator[str]:
    types = len(event.eet)
    seen: set[Any] = set()
    for place, task in _tasks(event):
        if task.type >= types:
            yield f"{place}.type: no type {task.type}; there are: 0 to {types - 1}"
        if task.id in seen:
            yield f'{place}.id: "{task.id}" is there already'
        seen.add(task.id)
    for index, machine in enumerate(event.machines):
        for place, mapped in _mapped(machine):
            if mapped.type < types and event.eet[mapped.type][index] is None:
                yield f"machines[{index}].{place}: type {mapped.type} cannot run there"


def _tasks(event: MappingEvent) -> Iterator[tuple[str, TaskState]]:
    for index, machine in enumerate(event.machines):
        for place, task in _mapped(machine):
            yield f"machines[{index}].{place}", task
    for index, task in enumerate(event.arriving):
        yield f"arriving[{index}]", task


def _mapped(machine: MachineState) -> Iterator[tuple[str, TaskState]]:
    if machine.running is not None:
        yield "running", machine.running
    for index, task in enumerate(machine.queue):
        yield f"queue[{index}]", task
