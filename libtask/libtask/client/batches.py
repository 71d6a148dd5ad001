"""Batches of tasks: results in order, or tasks as they end."""

from __future__ import annotations

import time
from concurrent.futures import as_completed as futures_as_completed
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from libtask.apps import LateTask, drafted, resolve
from libtask.errors import InputError
from libtask.inputs import taken_out
from libtask.parameters import parameters
from libtask.task import Task
from libtask.wording import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from libtask.client.handles import TaskHandle

Handle = TypeVar("Handle", bound="TaskHandle")


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


def results(handles: Sequence[TaskHandle], deadline: float | None) -> Iterator[Any]:
    """Iterate over the results in the order of the tasks; cancel the rest at the end.

    Args:
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
        for handle in handles:
            if not handle.done():
                handle.cancel()


def is_application(app: object) -> TypeGuard[type[Task]]:
    """Return whether a value is the class of an application."""
    return isinstance(app, type) and issubclass(app, Task)


def tasks_of(
    socket: Path, app: str | Callable[..., Any], iterables: Sequence[Iterable[Any]]
) -> list[Task | LateTask]:
    """Build a task for each group of arguments, as `map` pairs them.

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
        return [_task_of(app, each) for each in groups]
    from libtask.client.call import alone  # it imports cloudpickle

    return [alone(socket, app, each) for each in groups]


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
