"""Inputs: results of tasks as parameters of other tasks.

In Python a handle stands for the result of its task, in lists, tuples and maps too. On the
wire the parameter holds nothing at that place, and the task's `inputs` name the task and the
place, so that no value of a user can be taken for a reference. Clients use `taken_out`,
workers `put_in`. Results of more than `RESULT_INLINE` bytes pass through files in the
owner's own folder, which hetd never reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from libtask.errors import InputError
from libtask.messages import MAX_INPUTS, MAX_PLACE, MAX_PLACES, ResultInput
from libtask.result_files import SUFFIX
from libtask.results import own_content, restored

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from libtask.messages import InputValue

Place = list[str | int]
"""Path to a value in a task's parameters: keys of maps, and positions in lists."""
SIMPLE = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of most parameters; their values contain no reference."""


class TaskReference:
    """Base of the objects that stand for the result of a task in parameters."""

    __slots__ = ()

    @property
    def input_id(self) -> int:
        """Id of the task.

        Raises:
            InputError: the task is not submitted yet.

        """
        raise NotImplementedError

    def reserve(self) -> bool:
        """Keep the result for a task that takes it; return False if `result()` has it here."""
        return True

    def release(self) -> None:
        """End a reservation."""


class _Collector:
    """Replaces the references in nested values, and records their places."""

    def __init__(self) -> None:
        self.places: dict[int, list[Place]] = {}
        self.count = 0

    def cleared(self, value: Any, place: Place) -> Any:
        if isinstance(value, TaskReference):
            self._add(value, place)
            return None
        if len(place) >= MAX_PLACE or not _contains_reference(value, len(place)):
            return value
        if isinstance(value, dict):
            return {
                key: self.cleared(each, [*place, _key(key)])
                for key, each in value.items()
            }
        return [self.cleared(each, [*place, index]) for index, each in enumerate(value)]

    def _add(self, reference: TaskReference, place: Place) -> None:
        self.count += 1
        if self.count > MAX_PLACES:
            raise InputError(
                f"a task may hold results at {MAX_PLACES} places of its parameters"
            )
        self.places.setdefault(reference.input_id, []).append(place)


def taken_out(
    params: Mapping[str, Any],
) -> tuple[dict[str, Any], list[ResultInput]]:
    """Separate the references in parameters from plain values.

    Returns:
        the parameters with None in place of each reference, and the inputs, one for each
        task.

    Raises:
        InputError: too many references, or one to a task that is not submitted.

    """
    collector = _Collector()
    cleared = {
        name: value if type(value) in SIMPLE else collector.cleared(value, [name])
        for name, value in params.items()
    }
    if len(collector.places) > MAX_INPUTS:
        raise InputError(
            f"results of {len(collector.places)} tasks, at most {MAX_INPUTS}: combine "
            "some of them in a task of its own"
        )
    inputs = [ResultInput(task, places=at) for task, at in collector.places.items()]
    return cleared, inputs


def put_in(
    params: Mapping[str, Any],
    inputs: Sequence[ResultInput],
    values: Iterable[InputValue],
    folder: Path,
) -> dict[str, Any]:
    """Put the results of other tasks into a task's parameters.

    Args:
        params: its parameters as submitted, which are not changed.
        inputs: tasks and places.
        values: the results that came with the command.
        folder: the folder with the files of larger results.

    Raises:
        InputError: a result is missing, or a place is not in the parameters.

    """
    known = {each.task: each for each in values}
    filled: dict[str, Any] = dict(params)
    for each in inputs:
        if not each.places:
            continue
        if each.task not in known:
            raise InputError(f"the result of task {each.task} is no longer known")
        value = _value(known[each.task], folder)
        for place in each.places:
            filled = _with(filled, place, value, each.task)
    return filled


def _value(known: InputValue, folder: Path) -> Any:
    if not known.name:
        return restored(known.result)
    path = folder / f"{known.name}{SUFFIX}"
    packed = own_content(path, known.bytes)
    return restored(msgspec.msgpack.decode(packed))


def _with(holder: Any, place: Sequence[str | int], value: Any, task: int) -> Any:
    """Return a copy of nested parameters with another value at a place."""
    if not place:
        return value
    key, rest = place[0], place[1:]
    try:
        inner = holder[key]
        copied = dict(holder) if isinstance(holder, dict) else list(holder)
        copied[key] = _with(inner, rest, value, task)  # type: ignore[index]  # checked by the line above
    except (LookupError, TypeError, ValueError) as error:
        text = f"no place {key!r} in the parameters for the result of task {task}"
        raise InputError(text) from error
    return copied


def _contains_reference(value: Any, depth: int) -> bool:
    if isinstance(value, TaskReference):
        return True
    if depth >= MAX_PLACE:
        return False
    if isinstance(value, dict):
        return any(_contains_reference(each, depth + 1) for each in value.values())
    if isinstance(value, list | tuple):
        return any(
            _contains_reference(each, depth + 1)
            for each in value
            if type(each) not in SIMPLE
        )
    return False


def _key(key: Any) -> str | int:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return key
    raise InputError(f"a map with a task's result has the key {key!r}: use text")
