"""Synthetic tasks: their kinds, times, failures, and that errors do not add up."""

from __future__ import annotations

from typing import Any

import pytest

from hetapps import synthetic
from hetapps.synthetic import Synthetic
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.errors import InputError
from libtask.messages import CheckpointRecord, DeviceSpec, Kind


class SleepyClock:
    """Wakes every sleeper `slack` seconds late, and remembers when it was asked."""

    def __init__(self, slack: float) -> None:
        self.now = 100.0
        self.slack = slack

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.slack


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SleepyClock:
    sleepy = SleepyClock(slack=0.0)
    monkeypatch.setattr(synthetic, "time", sleepy)
    return sleepy


def a_checkpoint(task: Synthetic, strip: int = 1) -> Checkpoint:
    record = CheckpointRecord(total=task.total())
    return Checkpoint(record, StripSizer(1, fixed=strip))


def run(task: Synthetic, kind: Kind, name: str, strip: int = 1) -> int:
    """Run a task to its end on a null device; return how many strips it took."""
    task.load()
    device = open_device(DeviceSpec(name=name, kind=kind, driver="null"))
    checkpoint = a_checkpoint(task, strip)
    return sum(1 for _ in task.implementations[kind](task, device, checkpoint))


def test_kinds_without_a_time_have_no_implementation() -> None:
    assert Synthetic({"gpu": 1.0}).kinds() == ["gpu"]
    assert Synthetic({"fpga0": 1.0, "cpu": 2.0}).kinds() == ["cpu", "fpga"]


def test_waits_the_seconds_of_the_kind(clock: SleepyClock) -> None:
    strips = run(Synthetic({"cpu": 3.0, "gpu": 2.0}, strips=10), "gpu", "gpu0", strip=4)

    assert strips == 3
    assert clock.now == pytest.approx(102.0)


def test_a_resource_wins_over_its_kind(clock: SleepyClock) -> None:
    run(Synthetic({"gpu": 2.0, "gpu1": 7.0}), "gpu", "gpu1")

    assert clock.now == pytest.approx(107.0)


def test_late_wakings_do_not_add_up(clock: SleepyClock) -> None:
    clock.slack = 0.01

    run(Synthetic({"cpu": 10.0}, strips=100), "cpu", "cpu")

    assert 110.0 <= clock.now < 110.011


def test_late_wakings_longer_than_a_strip_do_not_add_up(clock: SleepyClock) -> None:
    clock.slack = 0.25

    run(Synthetic({"cpu": 10.0}, strips=100), "cpu", "cpu")

    assert 110.0 <= clock.now < 110.3


def test_a_move_takes_its_time_and_copying_both_ways(clock: SleepyClock) -> None:
    task = Synthetic(
        {"cpu": 10.0, "gpu": 10.0},
        strips=10,
        state_bytes=400,
        move_seconds=1.0,
        links={"gpu0": 100.0},
    )
    checkpoint = a_checkpoint(task)

    places: list[tuple[Kind, str]] = [("cpu", "cpu"), ("gpu", "gpu0"), ("gpu", "gpu0")]
    times = [clock_after(clock, task, checkpoint, *place) for place in places]

    # a strip takes 1 s, copying to or from the GPU 4 s; the copy is taken at the checkpoint
    assert times == pytest.approx([101.0, 111.0, 120.0])


def clock_after(
    clock: SleepyClock, task: Synthetic, checkpoint: Checkpoint, kind: Kind, name: str
) -> float:
    """Run one strip on a resource; return the time then."""
    task.load()
    device = open_device(DeviceSpec(name=name, kind=kind, driver="null"))
    next(task.implementations[kind](task, device, checkpoint))
    return clock.now


def test_fails_at_the_given_strip_after_its_time(clock: SleepyClock) -> None:
    task = Synthetic({"cpu": 10.0}, strips=10, fail_at=6)

    with pytest.raises(RuntimeError, match="synthetic failure at strip 6"):
        run(task, "cpu", "cpu", strip=4)
    assert clock.now == pytest.approx(106.0)


def test_refuses_a_resource_without_a_time(clock: SleepyClock) -> None:
    with pytest.raises(InputError, match=r"neither 'gpu1' nor its kind 'gpu'"):
        run(Synthetic({"gpu0": 1.0}), "gpu", "gpu1")


def test_size_tells_state_and_type() -> None:
    size = Synthetic({"gpu": 1.5, "cpu": 3.0}, state_bytes=100).size()

    assert (size.signature, size.state_bytes) == ("cpu=3,gpu=1.5", 100)
    assert size.iterations == 20
    assert Synthetic({"gpu": 1.5}, label="fft").size().signature == "fft"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"seconds": {}}, "names no kind"),
        ({"seconds": {"tpu": 1.0}}, "names no kind"),
        ({"seconds": {"cpu": -1.0}}, "'cpu' is -1.0"),
        ({"seconds": {"cpu": float("nan")}}, "'cpu' is nan"),
        ({"seconds": {"cpu": 1.0}, "strips": 0}, "strips is 0"),
        ({"seconds": {"cpu": 1.0}, "state_bytes": -1}, "state_bytes is -1"),
        ({"seconds": {"cpu": 1.0}, "move_seconds": -1.0}, "move_seconds is -1.0"),
        ({"seconds": {"cpu": 1.0}, "links": {"cpu": 0.0}}, "links is {'cpu': 0.0}"),
        ({"seconds": {"cpu": 1.0}, "strips": 5, "fail_at": 5}, "give 0 to 4"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Synthetic(**parameters)
