"""Characterisation: measure how long applications take on each resource of a node.

Used by `hetctl characterize` and by programs. Each application provides small sample tasks
(`Task.samples`); each runs alone, pinned to each resource in turn: first to warm up
(programs compile, files are cached), then for measurement. The order is from the least
work to the most, and a series stops before a task that would take too long: small tasks
measure slow or emulated devices, larger ones fast devices, whose start-up costs they
exceed. Each measurement is stored in the daemon at once, so that an interrupted run keeps
its results.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

from libtask.apps import Options, available, describe, name_of, resolve
from libtask.errors import HetError, InputError
from libtask.messages import Sample
from libtask.sizes import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from libtask.messages import DeviceInfo, Segment, TaskInfo
    from libtask.task import Task

QUICK_RUNS, THOROUGH_RUNS = 1, 5
"""Number of measured runs of each task on each resource, whose median is stored."""

ENOUGH_S = 0.3
"""Total seconds of measured runs after which a quick characterisation stops. Shorter
tasks run up to `THOROUGH_RUNS` times, because a single run of a few milliseconds is
mostly noise."""

QUICK_LIMIT_S, THOROUGH_LIMIT_S = 0.5, 10.0
"""Maximum expected seconds of one run."""

PREFIX = "characterise"
"""First word of the names of the submitted tasks."""


class Run(Protocol):
    """A submitted task; `libtask.client.handles.TaskHandle` is one."""

    def wait(self, timeout: float | None = None) -> str: ...
    def info(self) -> TaskInfo: ...
    def cancel(self) -> None: ...


class Node(Protocol):
    """The interface of a node that characterisation uses; `libtask.Client` is one."""

    def devices(self) -> list[DeviceInfo]: ...
    def submit(self, app: Task, /, *, resources: Sequence[str], name: str) -> Run: ...
    def learn(self, samples: Sequence[Sample]) -> None: ...
    def models(self) -> list[Sample]: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """Options of the measurements.

    Attributes:
        sizes: measure an application's middle sample with these sizes instead of its
            samples (see `libtask.sizes`).
        repeat: number of measured runs of each task; None: chosen by `quick`.
        resume: skip subjects that already have as many measurements.

    """

    sizes: tuple[str, ...] = ()
    repeat: int | None = None
    resume: bool = False


USUAL = Extent()


@dataclass(frozen=True, slots=True)
class Subject:
    """A task to be measured on a resource."""

    app: str
    type: str
    work: float
    resource: str
    task: Task


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of the characterisation; reported when it begins and when it has ended.

    Attributes:
        subject: what runs, and where.
        number: number of the run among at most `count` runs, from 1; skips numbers if
            larger tasks would take too long.
        warm_up: whether it is a warm-up, which does not count.
        seconds: its duration; None: it has not ended, or has failed.
        problem: reason of a failure; the resource then gets no sample of this task.

    """

    subject: Subject
    number: int
    count: int
    warm_up: bool
    seconds: float | None = None
    problem: str = ""


def _silent(_trial: Trial) -> None:
    """Report nothing."""


def characterise(
    node: Node,
    apps: Sequence[str] = (),
    *,
    quick: bool = True,
    report: Callable[[Trial], None] = _silent,
    extent: Extent = USUAL,
) -> list[Sample]:
    """Measure applications on every resource that can run them; store the samples.

    Args:
        node: a client of the daemon.
        apps: names of applications; empty: all installed ones that offer samples.
        quick: one measured run of each task instead of five, unless it is very short.
        report: called before and after each run.
        extent: options of the measurements.

    Raises:
        InputError: an application is unknown or has no samples, or the node is not idle.

    """
    with TemporaryDirectory(prefix="hetd-") as folder:
        samples = list(samples_of(apps, Path(folder), extent.sizes))
        series = list(_series(node.devices(), samples))
        bench = _Bench(node, report, quick=quick, extent=extent)
        series = [[each for each in some if bench.lacks(each)] for some in series]
        bench.expect(series)
        return [sample for each in series for sample in bench.measure_all(each)]


def _series(
    devices: list[DeviceInfo], samples: list[tuple[str, Sequence[Task]]]
) -> Iterator[list[Subject]]:
    """List the subjects: a series for each application and resource, least work first."""
    resources = [device.spec for device in devices if device.state == "up"]
    for app, tasks in samples:
        described = [(task, describe(task, app, Options())) for task in tasks]
        described.sort(key=lambda pair: pair[1].work)
        for resource in resources:
            yield [
                Subject(app, spec.type, spec.work, resource.name, task)
                for task, spec in described
                if resource.kind in spec.kinds
            ]


def samples_of(
    apps: Sequence[str], folder: Path, sizes: Sequence[str]
) -> Iterator[tuple[str, Sequence[Task]]]:
    """List each application's name and samples, whose files are in a folder per application."""
    for number, app in enumerate(apps or available()):
        own = folder / str(number)
        own.mkdir()
        application = resolve(app)
        tasks = application.samples(own)
        if apps and not tasks and not sizes:
            raise InputError(
                f"{app}: offers no samples to measure (Task.samples); name sizes of it: "
                f"--sizes PARAMETER=VALUE,VALUE"
            )
        if (apps or tasks) and sizes:
            tasks = sized(app, tasks, sizes)
        yield name_of(application), tasks


class _Bench:
    """Runs subjects one at a time."""

    def __init__(
        self,
        node: Node,
        report: Callable[[Trial], None],
        *,
        quick: bool,
        extent: Extent,
    ) -> None:
        self._node = node
        self._report = report
        self._repeats = extent.repeat or (QUICK_RUNS if quick else THOROUGH_RUNS)
        self._most = extent.repeat or THOROUGH_RUNS
        self._limit_s = QUICK_LIMIT_S if quick else THOROUGH_LIMIT_S
        if extent.sizes:  # named sizes are measured however long they take
            self._limit_s = math.inf
        known = node.models() if extent.resume else []
        self._known = {(s.type, s.resource, s.work): s.count for s in known}
        self._count = 0
        self._number = 0

    def lacks(self, subject: Subject) -> bool:
        """Return whether a subject lacks measurements."""
        key = (subject.type, subject.resource, subject.work)
        return self._known.get(key, 0) < self._repeats

    def expect(self, series: list[list[Subject]]) -> None:
        """Count the expected runs."""
        self._count = sum(len(each) for each in series) * (1 + self._most)

    def measure_all(self, series: list[Subject]) -> list[Sample]:
        """Measure subjects of growing work until one would take too long."""
        after = self._number + len(series) * (1 + self._most)
        samples: list[Sample] = []
        for subject in series:
            if samples and _expected(samples[-1], subject) > self._limit_s:
                break
            sample = self._measure(subject)
            samples += [sample] if sample is not None else []
        self._number = after
        return samples

    def _measure(self, subject: Subject) -> Sample | None:
        """Run a subject with a warm-up; None: it failed."""
        try:
            self._run(subject, warm_up=True)
            runs = self._repeat(subject)
        except _RunFailedError as failure:
            self._report(self._trial(subject, warm_up=False, problem=str(failure)))
            return None
        sample = _summary(subject, runs)
        self._node.learn([sample])
        return sample

    def _repeat(self, subject: Subject) -> list[TaskInfo]:
        """Measure the requested number of runs, or until the total time suffices."""
        runs: list[TaskInfo] = []
        measured = 0.0
        while len(runs) < self._repeats or (
            len(runs) < self._most and measured < ENOUGH_S
        ):
            runs.append(self._run(subject, warm_up=False))
            measured += execution_seconds(runs[-1])
        self._number += self._most - len(runs)
        return runs

    def _run(self, subject: Subject, *, warm_up: bool) -> TaskInfo:
        self._demand_idle()
        self._number += 1
        self._report(self._trial(subject, warm_up=warm_up))
        info = self._complete(subject)
        seconds = execution_seconds(info)
        self._report(self._trial(subject, warm_up=warm_up, seconds=seconds))
        return info

    def _complete(self, subject: Subject) -> TaskInfo:
        name = f"{PREFIX} {subject.type}"
        run = self._node.submit(subject.task, resources=[subject.resource], name=name)
        try:
            state = run.wait()
        except BaseException:  # also on Ctrl-C: the next run must be alone again
            run.cancel()
            raise
        info = run.info()
        if state != "completed":
            raise _RunFailedError(info.reason or state)
        return info

    def _trial(
        self,
        subject: Subject,
        *,
        warm_up: bool,
        seconds: float | None = None,
        problem: str = "",
    ) -> Trial:
        return Trial(subject, self._number, self._count, warm_up, seconds, problem)

    def _demand_idle(self) -> None:
        """Check that no other task runs or waits, which would distort the times."""
        busy = [each for each in self._node.devices() if each.running or each.queued]
        if busy:
            names = ", ".join(device.spec.name for device in busy)
            raise InputError(
                f"the node is not idle: tasks run or wait on {names};"
                " characterisation needs it alone, wait for them to end"
            )


def _expected(sample: Sample, subject: Subject) -> float:
    """Estimate the seconds of a subject from a sample of the same series."""
    return sample.seconds * subject.work / sample.work


class _RunFailedError(HetError):
    """A run ended without a result, for the task's reason."""


def execution_seconds(info: TaskInfo) -> float:
    """Return an ended task's total seconds of set-up, transfers and strips."""
    return setup_seconds(info) + sum(each.seconds for each in _right(info))


def setup_seconds(info: TaskInfo) -> float:
    """Return an ended task's total seconds of set-up and transfers."""
    return sum(
        segment.set_up + segment.transfer_in + segment.transfer_out
        for segment in _right(info)
    )


def _right(info: TaskInfo) -> list[Segment]:
    """Return the segments that did not end with an error."""
    return [each for each in info.segments if not each.error]


def _summary(subject: Subject, runs: list[TaskInfo]) -> Sample:
    """Summarise the measured runs of a subject by their medians."""
    times = [execution_seconds(info) for info in runs]
    seconds = statistics.median(times)
    joules = [info.joules for info in runs if info.measured and info.joules is not None]
    return Sample(
        subject.type,
        subject.resource,
        seconds,
        subject.work,
        spread=statistics.pstdev(times) / seconds if seconds > 0 else 0.0,
        count=len(times),
        setup=min(statistics.median(setup_seconds(info) for info in runs), seconds),
        joules=statistics.median(joules) if joules else None,
    )
