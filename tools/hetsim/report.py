"""A result as text: one line a task, then the sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from hetsim.result import JobResult, Result, TaskResult

MOST_TASKS = 200
"""Longer lists are cut; `--json` has them whole."""


def print_result(result: Result, resources: list[str]) -> None:
    """Print tasks, counts, energy and makespan."""
    console = Console(highlight=False)
    console.print(_tasks(result.tasks[:MOST_TASKS]))
    if len(result.tasks) > MOST_TASKS:
        console.print(f"... and {len(result.tasks) - MOST_TASKS} tasks more")
    if result.jobs:
        console.print()
        console.print(_jobs(result.jobs[:MOST_TASKS]))
    for line in _sums(result, resources):
        console.print(Text(line))


def _tasks(tasks: list[TaskResult]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("task")
    table.add_column("state")
    for name in ("arrival", "start", "finish", "moves"):
        table.add_column(name, justify="right")
    table.add_column("where")
    for task in tasks:
        table.add_row(
            str(task.id),
            task.state,
            *(_seconds(value) for value in (task.arrival, task.start, task.finish)),
            str(task.migrations),
            _where(task),
        )
    return table


def _jobs(jobs: list[JobResult]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("job")
    for name in ("arrival", "finish", "completion", "critical path", "slowdown"):
        table.add_column(name, justify="right")
    for job in jobs:
        times = (job.arrival, job.finish, job.completion, job.critical_path)
        table.add_row(job.job, *map(_seconds, times), _seconds(job.slowdown))
    return table


def _where(task: TaskResult) -> str:
    return ", ".join(f"{s.resource} {s.start:g}-{s.finish:g}" for s in task.segments)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _sums(result: Result, resources: list[str]) -> list[str]:
    counts = ", ".join(f"{count} {state}" for state, count in result.counts.items())
    energy = result.energy
    parts = (
        f"busy {energy.busy:.1f}, idle {energy.idle:.1f}, wasted {energy.wasted:.1f}"
    )
    busy = _busy(result)
    share = ", ".join(
        f"{name} {100 * busy.get(name, 0.0) / result.makespan:.0f} %"
        for name in resources
        if result.makespan
    )
    return [
        "",
        f"policy    {result.policy}",
        f"tasks     {counts}",
        f"makespan  {result.makespan:.3f} s{_bound(result)}",
        *_measured(result),
        f"computing {share or '-'}",
        f"energy    {energy.total:.1f} J ({parts})",
        f"simulated {result.events} events in {result.simulation_seconds:.3f} s",
    ]


def _busy(result: Result) -> dict[str, float]:
    """Sum the seconds of computing by resource; more than the makespan with slots."""
    busy: dict[str, float] = {}
    for task in result.tasks:
        for segment in task.segments:
            length = segment.finish - segment.start
            busy[segment.resource] = busy.get(segment.resource, 0.0) + length
    return busy


def _measured(result: Result) -> list[str]:
    measured, error = result.measured_makespan, result.makespan_error
    if not isinstance(measured, float) or not isinstance(error, float):
        return []
    return [f"measured  {measured:.3f} s  (predicted {100 * error:+.1f} %)"]


def _bound(result: Result) -> str:
    bound = result.lower_bound
    if not isinstance(bound, float) or bound <= 0:
        return ""
    return f"  (lower bound {bound:.3f} s, {result.makespan / bound:.3f} times it)"
