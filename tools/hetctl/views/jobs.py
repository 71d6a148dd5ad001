"""Jobs: the tasks that a user submitted under one name, as one.

Tasks that were submitted again (`hetctl requeue`) count in place of those that they repeat.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from libtask.messages import ENDED, TaskInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOT_NEEDED = "not needed: "
"""Begins the reason of a task that would run only if another one had not completed."""

JobState: TypeAlias = Literal["waiting", "running", "completed", "failed"]


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job at one moment.

    Attributes:
        name: its name; `owner`: whose.
        tasks: its tasks in the order of their ids.
        now: the moment, in seconds since the epoch.

    """

    name: str
    owner: str
    tasks: tuple[TaskInfo, ...]
    now: float

    @property
    def counts(self) -> Counter[str]:
        """Number of tasks by state."""
        return Counter(info.state for info in self.tasks)

    @property
    def complete(self) -> bool:
        """Whether all tasks have ended."""
        return all(info.state in ENDED for info in self.tasks)

    @property
    def state(self) -> JobState:
        """The state of the whole: failed, if a task that was needed did not complete."""
        if not self.complete:
            begun = any(info.started is not None for info in self.tasks)
            return "running" if begun else "waiting"
        return "completed" if not unfinished_work(self.tasks) else "failed"

    @property
    def submitted(self) -> float:
        return min(info.submitted for info in self.tasks)

    @property
    def finished(self) -> float | None:
        """The last end; None: some tasks have not ended."""
        if not self.complete:
            return None
        return max(info.finished or info.submitted for info in self.tasks)

    @property
    def elapsed_s(self) -> float:
        """Seconds from the first submission to the last end, or until now."""
        end = self.now if self.finished is None else self.finished
        return max(0.0, end - self.submitted)

    @property
    def critical_path_s(self) -> float:
        """Seconds of the longest chain of tasks that depend on each other, so far."""
        return max(chain_lengths(self.tasks, self.now).values(), default=0.0)

    @property
    def slowdown(self) -> float | None:
        """Elapsed time by critical path; None: the job is not complete, or none has run."""
        path = self.critical_path_s
        return self.elapsed_s / path if self.complete and path > 0 else None


def jobs_of(tasks: Iterable[TaskInfo], now: float) -> list[JobSummary]:
    """Return the jobs of tasks, in the order of their first tasks."""
    found: dict[tuple[str, str], list[TaskInfo]] = defaultdict(list)
    for info in sorted(tasks, key=lambda info: info.id):
        if info.job:
            found[info.owner, info.job].append(info)
    return [
        JobSummary(name, owner, tuple(current(some)), now)
        for (owner, name), some in found.items()
    ]


def current(tasks: Sequence[TaskInfo]) -> list[TaskInfo]:
    """Leave out the tasks that others repeat."""
    repeated = {info.requeued for info in tasks}
    return [info for info in tasks if info.id not in repeated]


def unfinished_work(tasks: Sequence[TaskInfo]) -> list[TaskInfo]:
    """Return the ended tasks that must be submitted again to go on from where a job failed."""
    return [
        info
        for info in current(tasks)
        if info.state in ENDED
        and info.state != "completed"
        and not (info.reason or "").startswith(NOT_NEEDED)
    ]


def parents_of(info: TaskInfo) -> list[int]:
    """List the tasks that a task depends on, in any way, each once."""
    inputs = (each.task for each in info.inputs)
    every = [*info.after, *info.after_any, *info.after_notok, *inputs]
    return list(dict.fromkeys(every))


def chain_lengths(tasks: Iterable[TaskInfo], now: float) -> dict[int, float]:
    """Return the seconds of the longest chain that ends with each task.

    Dependencies have smaller ids, so one pass in the order of ids suffices.
    """
    lengths: dict[int, float] = {}
    for info in sorted(tasks, key=lambda info: info.id):
        before = (lengths.get(task, 0.0) for task in parents_of(info))
        lengths[info.id] = max(before, default=0.0) + took(info, now)
    return lengths


def took(info: TaskInfo, now: float) -> float:
    """Return the seconds from a task's start to its end, or until now; 0: not started."""
    if info.started is None:
        return 0.0
    return max(0.0, (now if info.finished is None else info.finished) - info.started)
