"""Batches of tasks: as messages; results in order, or tasks as they end."""

from __future__ import annotations

import math
import time
from concurrent.futures import as_completed as futures_as_completed
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import msgspec

from libtask.apps import LateTask, drafted, resolve
from libtask.errors import InputError
from libtask.inputs import taken_out
from libtask.messages import MAX_FRAME, MAX_TASKS, TaskSpec, renumbered, unencodable
from libtask.parameters import parameters
from libtask.task import Task
from libtask.wording import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from libtask.client.control import ControlRequests
    from libtask.client.handles import TaskHandle

Handle = TypeVar("Handle", bound="TaskHandle")

BATCH = MAX_TASKS
"""Tasks in one submit: one commit of the daemon's store for all of them."""
ROOM = MAX_FRAME - 4096
"""Bytes of task descriptions in one submit; the rest of the frame is its envelope."""
LINGER_S = 0.2
"""Seconds after which described tasks are sent, although the next ones are slow to come:
some ten times what it takes to describe `BATCH` of them."""


def as_completed(
    handles: Iterable[Handle], timeout: float | None = None
) -> Iterator[Handle]:
    """Iterate over tasks in the order in which they end.

    Raises:
        TimeoutError: not all have ended `timeout` seconds after the call.

    """
    by_future = {handle.ended: handle for handle in handles}
    for future in futures_as_completed(by_future, timeout):
        yield by_future[future]


def results(
    client: ControlRequests, handles: Sequence[TaskHandle], deadline: float | None
) -> Iterator[Any]:
    """Iterate over the results in the order of the tasks; cancel the rest at the end.

    Args:
        client: the client that submitted them.
        handles: the tasks.
        deadline: deadline of each result, monotonic seconds.

    Raises:
        TaskFailedError: a task failed; the others are cancelled.
        TimeoutError: a result is not available at the deadline.

    """
    try:
        for handle in handles:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            yield handle.result(left)
    finally:
        unfinished = [handle.id for handle in handles if not handle.done()]
        if unfinished:
            client.cancel(*unfinished)


def is_application(app: object) -> TypeGuard[type[Task]]:
    """Return whether a value is the class of an application."""
    return isinstance(app, type) and issubclass(app, Task)


def tasks_of(
    socket: Path, app: str | Callable[..., Any], iterables: Sequence[Iterable[Any]]
) -> Iterator[Task | LateTask]:
    """Build a task for each group of arguments, as `map` pairs them, when it is taken.

    Args:
        socket: the daemon's socket, which determines the folder of attachments.
        app: an application's name or class, or a function.
        iterables: the arguments.

    Raises:
        InputError: `app` is something else, or arguments are invalid.

    """
    groups = zip(*iterables, strict=False)
    if isinstance(app, str):
        app = resolve(app)
    if is_application(app):
        yield from (_task_of(app, each) for each in groups)
        return
    from libtask.client.call import alone, pickled_once  # they import cloudpickle

    function = pickled_once(app)
    yield from (alone(socket, function, each) for each in groups)


def _task_of(app_class: type[Task], arguments: tuple[Any, ...]) -> Task | LateTask:
    """Build a task, in its worker if some arguments are results of other tasks."""
    _, inputs = taken_out({"": arguments})
    if not inputs:
        return app_class(*arguments)
    names = list(parameters(app_class))
    if len(arguments) > len(names):
        text = f"takes {len(names)} parameters, got {len(arguments)}"
        raise InputError(f"{app_class.__name__}: {text}")
    return drafted(app_class, dict(zip(names, arguments, strict=False)))


def checked_tasks(tasks: Iterable[Any]) -> Iterator[Task | LateTask]:
    """Iterate over tasks to submit.

    Raises:
        InputError: one is something else.

    """
    for task in tasks:
        if not isinstance(task, Task | LateTask):
            raise InputError(
                f"submit_many: expected tasks, got {shown(task)};"
                " for calls of a function use map"
            )
        yield task


def chunks(
    specs: Iterable[TaskSpec], seconds: float = math.inf
) -> Iterator[list[TaskSpec]]:
    """Split specs into chunks that fit into a message, each as soon as it is full.

    Args:
        specs: the tasks.
        seconds: time after which a chunk is complete, however few have come.

    Raises:
        InputError: as `size_of`.

    """
    chunk: list[TaskSpec] = []
    filled = 0
    due = time.monotonic() + seconds
    for spec in specs:
        length = size_of(spec)
        if chunk and filled + length > ROOM:
            yield chunk
            chunk, filled, due = [], 0, time.monotonic() + seconds
        chunk.append(spec)
        filled += length
        if len(chunk) == BATCH or time.monotonic() > due:
            yield chunk
            chunk, filled, due = [], 0, time.monotonic() + seconds
    if chunk:
        yield chunk


def size_of(spec: TaskSpec) -> int:
    """Return the bytes that a description takes in a message.

    Raises:
        InputError: it has a value that cannot be sent.

    """
    try:
        return len(msgspec.msgpack.encode(spec))
    except (OverflowError, RecursionError) as error:
        raise unencodable(spec.app, error) from error


def anchored(index: int, spec: TaskSpec, earlier: list[TaskHandle]) -> TaskSpec:
    """Replace references to earlier messages by ids: `-k` counts within one message."""
    before = [
        *spec.after,
        *spec.after_any,
        *spec.after_notok,
        *(each.task for each in spec.inputs),
    ]
    if all(number > 0 or -number <= index for number in before):
        return spec
    known = len(earlier)
    if any(-number > index + known for number in before):
        raise InputError(f"after: {min(before)} is before the first task of the submit")

    def absolute(number: int) -> int:
        if number > 0 or -number <= index:
            return number
        return earlier[known + index + number].id

    return renumbered(spec, absolute)


def key_of_part(key: str, number: int) -> str:
    """Return the key of a message of a submission that takes several."""
    return f"{key}/{number}" if key and number else key
