"""Live progress: bars on a terminal, else a line for each thing that happens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from hetctl.views.places import marked
from libtask.messages import ENDED
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from libtask.characterisation import Trial
    from libtask.messages import DeviceInfo, TaskChanged

MARKS = {"completed": "[green]✓[/]", "failed": "[red]✗[/]"}


def bars(console: Console) -> Progress:
    """Make the bars; nothing is drawn where the output is not a terminal."""
    return Progress(
        TextColumn("{task.description:<18}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


class Names:
    """Says what resources are called: emulated ones are marked wherever they appear."""

    def __init__(self, devices: list[DeviceInfo]) -> None:
        self._emulated = frozenset(
            each.spec.name for each in devices if each.spec.emulated
        )

    def __call__(self, resource: str | None) -> str:
        return marked(resource, self._emulated) if resource else "nowhere"


class Trials:
    """Shows the characterisation; hand `changed` to it as its report."""

    def __init__(self, console: Console, progress: Progress, names: Names) -> None:
        self._console = console
        self._progress = progress
        self._names = names
        self._bar = progress.add_task("characterising", note="")

    def changed(self, trial: Trial) -> None:
        where = f"{trial.subject.type} on {self._names(trial.subject.resource)}"
        self._progress.update(
            self._bar, total=trial.count, completed=trial.number - 1, note=where
        )
        if trial.problem:
            problem = _plain(trial.problem)
            self._console.print(f"  [red]cannot measure[/] {where}: {problem}")
        elif trial.seconds is not None and not trial.warm_up:
            self._console.print(f"  {where}: {trial.seconds:.3f} s", highlight=False)

    def over(self) -> None:
        self._progress.remove_task(self._bar)


class Followed:
    """Shows the tasks of the batch.

    Args:
        names: says what resources are called.
        clock: seconds of a steady clock.

    """

    def __init__(
        self,
        console: Console,
        progress: Progress,
        names: Names,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._progress = progress
        self._names = names
        self._clock = clock
        self._began = clock()
        self._bars: dict[int, tuple[str, TaskID]] = {}
        self._where: dict[int, str] = {}

    def arrived(self, task: int, name: str) -> None:
        """Add a task that was just submitted."""
        bar = self._progress.add_task(name, total=1.0, note="waits")
        self._bars[task] = (name, bar)
        if not self._console.is_terminal:
            self._say(f"{name} arrives")

    def changed(self, change: TaskChanged) -> None:
        """Take in what happened to a task."""
        if change.id not in self._bars:
            return
        name, bar = self._bars[change.id]
        if change.what == "retried":
            self._failed(name, change)
        if change.state in ENDED:
            self._ended(name, bar, change)
        elif change.state == "running" and change.resource:
            self._runs(name, bar, change, change.resource)
        else:
            self._progress.update(bar, note=change.state)

    def _runs(self, name: str, bar: TaskID, change: TaskChanged, resource: str) -> None:
        before = self._where.get(change.id)
        self._where[change.id] = resource
        self._progress.update(
            bar, completed=change.progress, note=self._names(resource)
        )
        if before is None:
            self._say(f"{name} starts on {self._names(resource)}")
        elif before != resource:
            done = f"{change.progress:.0%} done"
            self._say(
                f"[yellow]{name} moves[/] from {self._names(before)}"
                f" to {self._names(resource)}, {done}"
            )

    def _failed(self, name: str, change: TaskChanged) -> None:
        """Print a failed attempt; its retry elsewhere is not a migration."""
        where = self._names(self._where.pop(change.id, None))
        reason = _plain(change.reason)
        self._say(f"[red]{name} failed[/] on {where}, and is tried again: {reason}")

    def _ended(self, name: str, bar: TaskID, change: TaskChanged) -> None:
        self._progress.remove_task(bar)
        del self._bars[change.id]
        mark = MARKS.get(change.state, "")
        where = self._names(self._where.get(change.id))
        reason = "" if change.state == "completed" else f": {_plain(change.reason)}"
        self._say(f"{mark} {name} {change.state} on {where}{reason}")

    def _say(self, line: str) -> None:
        at = self._clock() - self._began
        self._console.print(f"  {at:5.1f} s  {line}", highlight=False, soft_wrap=True)


def _plain(reason: str | None) -> str:
    """Write others' words so that they are neither markup nor more than a line."""
    return escape(one_line(reason or "no reason is known"))
