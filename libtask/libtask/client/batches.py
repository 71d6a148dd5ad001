"""Batches of tasks: results in order, or tasks as they end."""

from __future__ import annotations

import time
from concurrent.futures import as_completed as futures_as_completed
from typing import TYPE_CHECKING, Any, TypeVar

from libtask.apps import drafted, resolve
from libtask.errors import InputError
from libtask.inputs import taken_out
from libtask.parameters import parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from libtask.apps import LateTask
    from libtask.client.handles import TaskHandle
    from libtask.task import Task

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


def tasks_of(
    app: str | Callable[..., Task], iterables: Sequence[Iterable[Any]]
) -> list[Task | LateTask]:
    """Build a task for each group of arguments, as `map` pairs them."""
    make = resolve(app) if isinstance(app, str) else app
    return [_task_of(make, each) for each in zip(*iterables, strict=False)]


def _task_of(make: Callable[..., Task], arguments: tuple[Any, ...]) -> Task | LateTask:
    """Build a task, in its worker if some arguments are results of other tasks."""
    _, inputs = taken_out({"": arguments})
    if not (inputs and isinstance(make, type)):
        return make(*arguments)
    names = list(parameters(make))
    if len(arguments) > len(names):
        text = f"takes {len(names)} parameters, got {len(arguments)}"
        raise InputError(f"{make.__name__}: {text}")
    return drafted(make, dict(zip(names, arguments, strict=False)))
