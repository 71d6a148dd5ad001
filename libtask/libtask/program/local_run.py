"""Execution of a task without a daemon, in this process on one resource."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from libtask.apps import Options, describe, total_of
from libtask.checkpoint import StripSizer
from libtask.devices import open_device
from libtask.errors import HetError, InputError, TaskFailedError
from libtask.messages import CheckpointRecord
from libtask.program.local_devices import choose
from libtask.results import ResultEncoder
from libtask.worker.execution import Execution, RunCheckpoint
from libtask.worker.segment_output import one_line, trace_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.messages import DeviceSpec
    from libtask.task import Task
    from libtask.worker.execution import CheckpointCallback, StopRequest

INTERVAL_NS = 50_000_000
REDRAW_NS = 100_000_000


def run_alone(task: Task, name: str | None) -> Any:
    """Run a task on the named resource, or on the best one; return its result.

    Raises:
        HetError: the input is bad, the resource does not exist, or the task failed.

    """
    describe(
        task, type(task).__name__, Options()
    )  # raises if the task does not fit into memory
    spec = choose(task, name)
    try:
        return _execute(task, spec)
    except InputError:
        raise
    except Exception as error:
        sys.stderr.write(trace_of(error))
        if isinstance(error, HetError):
            raise
        raise TaskFailedError(f"{type(task).__name__}: {one_line(error)}") from error


def _execute(task: Task, spec: DeviceSpec) -> Any:
    task.load()
    sizer = StripSizer(INTERVAL_NS)
    checkpoint = RunCheckpoint(CheckpointRecord(0, total_of(task)), sizer)
    device = open_device(spec, task.libraries_on(spec.kind))
    with contextlib.closing(device), _progress(task, spec, checkpoint) as watch:
        implementation = task.implementations[spec.kind]
        Execution(implementation, task, device, checkpoint, watch).run()
    encoded = ResultEncoder(None).keep(task.save(checkpoint))
    for warning in encoded.warnings:
        sys.stderr.write(f"libtask: {warning}\n")
    return encoded.value


@contextlib.contextmanager
def _progress(
    task: Task, spec: DeviceSpec, checkpoint: RunCheckpoint
) -> Iterator[CheckpointCallback]:
    """Show a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield _go_on
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    emulated = " (emulated)" if spec.emulated else ""
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=Console(stderr=True), transient=True, auto_refresh=False
    ) as bar:
        line = bar.add_task(
            f"{type(task).__name__} on {spec.name}{emulated}", total=checkpoint.total
        )
        due_ns = 0

        def watch(now_ns: int) -> StopRequest | None:
            nonlocal due_ns
            if now_ns >= due_ns:
                due_ns = now_ns + REDRAW_NS
                bar.update(line, completed=checkpoint.done, refresh=True)
            return None

        yield watch


def _go_on(_now_ns: int) -> StopRequest | None:
    return None
