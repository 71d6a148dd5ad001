"""The report: what ran where, how often it moved, how busy the resources were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from libtask.messages import counted
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetdemo.checks import Verdict
    from hetdemo.progress import Names
    from libtask.messages import DeviceInfo, Segment, TaskInfo


LEGEND = """\
error: largest deviation from the float64 reference; in grey levels of blurs,
degrees of plates, L1 distance of chains, and as such of correlations."""

STYLE: dict[str, Any] = {
    "title_justify": "left",
    "box": SIMPLE_HEAD,
    "pad_edge": False,
    "padding": (0, 1, 0, 0),
}
"""Narrow enough for 80 columns."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A task that ended, and what the check of its result said; None: it has no result."""

    info: TaskInfo
    verdict: Verdict | None

    @property
    def good(self) -> bool:
        """Return whether the task completed with a correct result."""
        return (
            self.info.state == "completed"
            and self.verdict is not None
            and self.verdict.passed
        )


def seconds_on(segment: Segment) -> float:
    """Return the seconds of a segment."""
    return (segment.finish or segment.start) - segment.start


def running_seconds(info: TaskInfo) -> float:
    """Return how long a task had a resource, in all, but for failed attempts."""
    return sum(seconds_on(segment) for segment in counted(info.segments))


def waiting_seconds(info: TaskInfo) -> float:
    """Return how long an ended task had no resource, or failed on one."""
    return max(0.0, (info.finished or 0.0) - info.submitted - running_seconds(info))


def makespan(infos: Sequence[TaskInfo]) -> float:
    """Return the seconds from the first arrival to the last end."""
    first = min(info.submitted for info in infos)
    return max(info.finished or first for info in infos) - first


def task_table(outcomes: Sequence[Outcome], names: Names) -> Table:
    """Tabulate the tasks in the order of arrival."""
    table = Table(title="What ran where", **STYLE)
    table.add_column("task", no_wrap=True)
    table.add_column("ran on (s)", no_wrap=True)
    for heading in ("moves", "waited", "ran", "error", "limit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        info = outcome.info
        table.add_row(
            info.name,
            _path(info, names),
            str(info.migrations),
            f"{waiting_seconds(info):.1f}",
            f"{running_seconds(info):.1f}",
            *_check(outcome),
        )
    return table


def _path(info: TaskInfo, names: Names) -> str:
    """Return the resources of a task, one per line; adjacent segments count as one."""
    stays: list[tuple[str, float]] = []
    for segment in info.segments:
        name = names(segment.resource)
        if segment.failed_attempt:
            name = f"[red]failed on[/] {name}"
        before = 0.0
        if stays and stays[-1][0] == name:
            _, before = stays.pop()
        stays.append((name, before + seconds_on(segment)))
    return "\n".join(f"{name} {seconds:.1f}" for name, seconds in stays)


def _check(outcome: Outcome) -> tuple[str, str]:
    """Format the largest error and its tolerance, or why there is no result."""
    verdict = outcome.verdict
    if verdict is None:
        reason = one_line(str(outcome.info.reason))
        return f"[red]{outcome.info.state}[/]", escape(reason)
    colour = "green" if verdict.passed else "bold red"
    return f"[{colour}]{verdict.error:.1e}[/]", f"{verdict.tolerance:g}"


def resource_table(
    devices: Sequence[DeviceInfo], infos: Sequence[TaskInfo], names: Names
) -> Table:
    """Tabulate the resources: what each computed, and its busy share."""
    table = Table(title="Resources", **STYLE)
    table.add_column("resource")
    for heading in (
        "slots",
        "strips",
        "segments",
        "failed attempts",
        "busy s",
        "busy share",
    ):
        table.add_column(heading, justify="right")
    span = makespan(infos)
    for device in devices:
        name = device.spec.name
        segments = [
            segment
            for info in infos
            for segment in info.segments
            if segment.resource == name
        ]
        useful = counted(segments)
        busy = sum(seconds_on(segment) for segment in useful)
        share = busy / (device.slots * span) if span else 0.0
        table.add_row(
            names(name),
            str(device.slots),
            str(strips_on(name, infos)),
            str(len(useful)),
            str(len(segments) - len(useful)),
            f"{busy:.1f}",
            f"{share:.0%}",
        )
    return table


def strips_on(resource: str, infos: Sequence[TaskInfo]) -> int:
    """Count the strips that a resource computed."""
    return sum(
        segment.strips
        for info in infos
        for segment in info.segments
        if segment.resource == resource
    )


def shortcomings(
    devices: Sequence[DeviceInfo], outcomes: Sequence[Outcome], names: Names
) -> list[str]:
    """List the failures of the demo, one line each; empty if it succeeded.

    Where a real accelerator takes all the work, that an emulated one gets none is right.
    """
    infos = [outcome.info for outcome in outcomes]
    bad = [outcome.info.name for outcome in outcomes if not outcome.good]
    found = [f"no right result: {', '.join(bad)}"] if bad else []
    real = any(
        device.spec.kind != "cpu" and not device.spec.emulated for device in devices
    )
    for device in devices:
        name = device.spec.name
        spared = real and device.spec.emulated and not _errors(name, infos)
        if not strips_on(name, infos) and not spared:
            found.append(f"{names(name)} computed nothing{_why(name, infos)}")
    return found


def _why(resource: str, infos: Sequence[TaskInfo]) -> str:
    """Return why a resource failed last, if it was tried."""
    errors = _errors(resource, infos)
    return f": {one_line(errors[-1])}" if errors else ": no task was given to it"


def _errors(resource: str, infos: Sequence[TaskInfo]) -> list[str]:
    """List the errors that ended segments on a resource."""
    return [
        segment.error
        for info in infos
        for segment in info.segments
        if segment.resource == resource and segment.error
    ]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Sum the demo up in a line."""
    infos = [outcome.info for outcome in outcomes]
    good = sum(outcome.good for outcome in outcomes)
    moves = sum(info.migrations for info in infos)
    moved = sum(info.migrations > 0 for info in infos)
    return (
        f"{good} of {len(outcomes)} tasks completed with a right result;"
        f" {moves} migrations of {moved} tasks; makespan {makespan(infos):.1f} s"
    )
