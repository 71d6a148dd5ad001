"""Characterisation against a scripted node: what runs, in which order, what is learnt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from libtask import apps
from libtask.apps import describe
from libtask.characterisation import Extent, Trial, characterise
from libtask.errors import InputError
from libtask.messages import DeviceInfo, DeviceSpec, Sample, Segment, TaskInfo
from libtask.task import Size, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from libtask.messages import TaskState


@dataclass
class Sized(Task):
    """Runs on CPU and GPU, as long as `amount` says."""

    amount: int = 1

    @classmethod
    def samples(cls, folder: Path) -> Sequence[Task]:
        (folder / "input").write_text("given")
        return [cls(10), cls(1), cls(1000)]

    def size(self) -> Size:
        return Size(str(self.amount), work=float(self.amount))


@Sized.on("cpu")
@Sized.on("gpu")
def _nothing(_task: Any, _device: Any, _checkpoint: Any) -> Any:
    yield


class Silent(Task):
    """Offers no samples."""


APPS = {"sized": Sized, "silent": Silent}


@dataclass
class FinishedRun:
    """A run that has ended before anybody waits for it."""

    record: TaskInfo
    interrupted: bool = False
    cancelled: bool = False

    def wait(self, timeout: float | None = None) -> str:
        if self.interrupted:
            raise KeyboardInterrupt
        return self.record.state

    def info(self) -> TaskInfo:
        return self.record

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class ScriptedNode:
    """A node with `cpu`, `gpu0` and a lost `fpga0`; a task takes `seconds(task, where)`.

    Attributes:
        runs: what was submitted: (amount, resource).
        learnt: the samples.

    """

    seconds: Callable[[int, str], float]
    failing: tuple[str, ...] = ()
    busy: bool = False
    interrupted: bool = False
    runs: list[tuple[int, str]] = field(default_factory=list)
    learnt: list[Sample] = field(default_factory=list)
    last: FinishedRun | None = None

    def devices(self) -> list[DeviceInfo]:
        return [
            DeviceInfo(DeviceSpec("cpu", "cpu"), slots=2),
            DeviceInfo(DeviceSpec("gpu0", "gpu"), running=[7] if self.busy else []),
            DeviceInfo(DeviceSpec("gpu1", "gpu"), state="lost"),
            DeviceInfo(DeviceSpec("fpga0", "fpga")),
        ]

    def submit(
        self, app: Task, /, *, resources: Sequence[str], name: str
    ) -> FinishedRun:
        (resource,) = resources
        assert isinstance(app, Sized)
        self.runs.append((app.amount, resource))
        state: TaskState = "failed" if resource in self.failing else "completed"
        half = self.seconds(app.amount, resource) / 2
        segment = Segment(
            resource, 0.0, 99.0, half, transfer_in=half / 2, transfer_out=half / 2
        )
        kind = describe(app, "sized", apps.Options()).type
        record = TaskInfo(
            len(self.runs), "sized", kind, state, "uid:1", segments=[segment]
        )
        self.last = FinishedRun(record, self.interrupted)
        return self.last

    def learn(self, samples: Sequence[Sample]) -> None:
        self.learnt += samples

    def models(self) -> list[Sample]:
        return self.learnt


@pytest.fixture(autouse=True)
def two_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "libtask.characterisation"
    monkeypatch.setattr(f"{module}.available", lambda: list(APPS))
    monkeypatch.setattr(f"{module}.resolve", APPS.__getitem__)
    monkeypatch.setattr(f"{module}.name_of", lambda _: "sized")


def a_millisecond_each(amount: int, _resource: str) -> float:
    return amount / 1000


def test_each_task_runs_alone_warm_first_least_work_first() -> None:
    node = ScriptedNode(a_millisecond_each)

    samples = characterise(node)

    # a thousand would take 1 s: too long for a quick run
    on_cpu = [(1, "cpu")] * 6 + [(10, "cpu")] * 6
    assert node.runs == on_cpu + [(amount, "gpu0") for amount, _ in on_cpu]
    assert samples == node.learnt
    assert node.learnt == [
        Sample(
            f"sized/{amount}", resource, amount / 1000, amount, 0.0, 5, amount / 2000
        )
        for resource in ("cpu", "gpu0")
        for amount in (1, 10)
    ]


def test_a_thorough_run_takes_the_median_of_five_and_larger_tasks() -> None:
    times = iter([9.0, 0.5, 0.1, 0.2, 0.4, 0.3] * 6)
    node = ScriptedNode(lambda _amount, _resource: next(times))

    samples = characterise(node, ["sized"], quick=False)

    assert node.runs.count((10, "gpu0")) == 6
    assert [sample.seconds for sample in samples] == [pytest.approx(0.3)] * 4
    assert [sample.count for sample in samples] == [5] * 4
    # 0.1 to 0.5 s: a standard deviation of 0.14 s
    assert samples[0].spread == pytest.approx(0.14 / 0.3, rel=0.02)


def test_a_slow_resource_is_judged_by_the_smallest_task_only() -> None:
    slow = {"cpu": 0.0001, "gpu0": 0.2}
    node = ScriptedNode(lambda amount, resource: amount * slow[resource])

    samples = characterise(node)

    measured = [(sample.type, sample.resource) for sample in samples]
    assert measured == [
        ("sized/1", "cpu"),
        ("sized/10", "cpu"),
        ("sized/1000", "cpu"),
        ("sized/1", "gpu0"),
    ]


def test_trials_are_reported_as_they_begin_and_end() -> None:
    trials: list[Trial] = []

    characterise(ScriptedNode(a_millisecond_each), report=trials.append)

    seen = [(each.number, each.warm_up, each.seconds is None) for each in trials]
    assert seen[:4] == [
        (1, True, True),
        (1, True, False),
        (2, False, True),
        (2, False, False),
    ]
    # the gpu's follow those of the cpu, of which six were left out
    assert seen[24][0] == 19
    assert {each.count for each in trials} == {36}


def test_a_resource_where_a_task_fails_gets_no_sample_and_says_why() -> None:
    node = ScriptedNode(a_millisecond_each, failing=("gpu0",))
    trials: list[Trial] = []

    samples = characterise(node, report=trials.append)

    assert {sample.resource for sample in samples} == {"cpu"}
    assert {trial.subject.resource for trial in trials if trial.problem} == {"gpu0"}
    # its warm-up failed: there is nothing to measure
    assert node.runs.count((1, "gpu0")) == 1


def test_a_busy_node_is_refused_before_anything_runs() -> None:
    node = ScriptedNode(a_millisecond_each, busy=True)

    with pytest.raises(InputError, match="not idle: tasks run or wait on gpu0"):
        characterise(node)

    assert node.runs == []


def test_an_application_without_samples_is_refused_by_name_only() -> None:
    with pytest.raises(InputError, match="silent: offers no samples"):
        characterise(ScriptedNode(a_millisecond_each), ["silent"])


def test_an_interrupt_cancels_the_run_under_way() -> None:
    node = ScriptedNode(a_millisecond_each, interrupted=True)

    with pytest.raises(KeyboardInterrupt):
        characterise(node)

    assert node.last is not None
    assert node.last.cancelled
    assert node.learnt == []


def test_other_sizes_are_made_from_the_middle_sample() -> None:
    node = ScriptedNode(a_millisecond_each)

    characterise(node, ["sized"], extent=Extent(sizes=("amount=3000", "amount=7")))

    on_cpu = [amount for amount, where in node.runs if where == "cpu"]
    # a warm-up each; the short one five times for measure, the long one once, at that
    assert on_cpu == [7] * 6 + [3000] * 2


@pytest.mark.parametrize(
    ("size", "complaint"),
    [
        ("width=3", "sized: no parameter 'width' for a size; it has: amount"),
        ("3", "sized: no parameter 'n'"),
        ("amount=many", "amount"),
    ],
)
def test_a_size_that_cannot_be_is_refused(size: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        characterise(
            ScriptedNode(a_millisecond_each), ["sized"], extent=Extent(sizes=(size,))
        )


def test_a_resumed_run_measures_what_is_missing() -> None:
    node = ScriptedNode(a_millisecond_each)
    done = [Sample("sized/1", "cpu", 0.001, 1.0), Sample("sized/10", "gpu0", 1.0, 10.0)]
    node.learn(done)

    characterise(node, extent=Extent(resume=True))

    assert node.runs == [(10, "cpu")] * 6 + [(1, "gpu0")] * 6


def test_measurements_too_few_are_made_again() -> None:
    node = ScriptedNode(a_millisecond_each)
    node.learn([Sample("sized/1", "cpu", 0.001, 1.0, count=2)])

    characterise(node, extent=Extent(resume=True, repeat=3))

    assert node.runs.count((1, "cpu")) == 4
