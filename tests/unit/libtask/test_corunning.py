"""Loads of applications on what they share, from runs beside each other."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from libtask.corunning import (
    MOST,
    characterise_together,
    fit_loads,
    slowdown_alone_to_together,
)
from libtask.errors import InputError, NotAllowedError
from libtask.messages import (
    DeviceInfo,
    DeviceList,
    DeviceSpec,
    LearnedLoad,
    Sample,
    Segment,
    SharedLoad,
    TaskInfo,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LOADS = {"heavy": (0.8, 0.7), "middle": (0.4, 0.5), "light": (0.1, 0.2)}
MEMORY = SharedLoad("memory", "memory", ["cpu"], 0.0, [0.0], [1.0], 0.0, 1.0)
CPU = DeviceInfo(DeviceSpec("cpu", "cpu"), slots=2)


def factor(one: str, other: str) -> float:
    demand, bound = LOADS[one]
    return 1.0 + bound * (max(1.0, demand + LOADS[other][0]) - 1.0)


def test_loads_that_explain_all_pairs_are_found() -> None:
    measured = {
        (one, other): factor(one, other) for one, other in product(LOADS, LOADS)
    }

    found = fit_loads(measured)

    assert found["heavy"] == pytest.approx(LOADS["heavy"], abs=0.051)
    for (one, other), slowdown in measured.items():
        demand, bound = found[one]
        told = 1.0 + bound * (max(1.0, demand + found[other][0]) - 1.0)
        assert told == pytest.approx(slowdown, abs=0.03), (one, other)


def test_applications_that_never_slow_down_keep_the_usual_loads() -> None:
    assert fit_loads({("a", "a"): 1.0}) == {"a": (0.3, 0.3)}


@pytest.mark.parametrize(
    ("alone", "beside", "overlap", "slowdown"),
    [
        (1.0, 1.0, 1.0, 1.0),
        (1.0, 2.0, 2.0, 2.0),  # all the time beside the other
        (2.0, 3.0, 2.0, 2.0),  # half of the work beside it, in twice the time
        (1.0, 0.9, 0.9, 1.0),  # noise
        (1.0, 50.0, 50.0, MOST),
    ],
)
def test_only_the_common_time_counts(
    alone: float, beside: float, overlap: float, slowdown: float
) -> None:
    assert slowdown_alone_to_together(alone, beside, overlap) == pytest.approx(slowdown)


class Finished:
    """A run that has ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def wait(self, timeout: float | None = None) -> str:
        return "completed"

    def cancel(self) -> None:
        raise AssertionError

    def info(self) -> TaskInfo:
        segment = Segment("cpu", 0.0, self.seconds, self.seconds)
        return TaskInfo(
            *(1, "heat", "heat/64", "completed", "uid:0"),
            submitted=0.0,
            segments=[segment],
        )


class Node:
    """Runs each task in a second alone, and in `beside` if two are submitted."""

    def __init__(
        self,
        shared: Sequence[SharedLoad] = (MEMORY,),
        cpu: DeviceInfo = CPU,
        learner: str = "all",
    ) -> None:
        self.learner = learner
        self.found = DeviceList(0, [cpu], list(shared))
        self.submitted: list[str] = []
        self.learned: list[LearnedLoad] = []
        self.seconds = iter([1.0] * 4 + [1.5] * 6)

    def node_load(self) -> DeviceList:
        return self.found

    def submit(self, app: Any, /, *, resources: Sequence[str], name: str) -> Finished:
        self.submitted += resources
        return Finished(next(self.seconds))

    def learn(
        self, samples: Sequence[Sample], loads: Sequence[LearnedLoad] = ()
    ) -> None:
        if self.learner == "nobody":
            raise NotAllowedError("only root and the daemon's own user may do that")
        self.learned += loads


def test_an_application_is_measured_beside_itself() -> None:
    node = Node()
    told: list[str] = []

    (load,) = characterise_together(node, ["heat"], report=told.append)

    assert told == ["heat alone on cpu", "heat beside heat on cpu"]
    assert node.submitted == ["cpu"] * 10
    assert (load.app, load.resource, load.shared) == ("heat", "cpu", "memory")
    assert load.slowdowns == {"heat": pytest.approx(1.5)}
    assert node.learned == [load]
    assert load.bound * (2.0 * load.demand - 1.0) == pytest.approx(0.5, abs=0.03)


def test_nothing_is_measured_for_a_user_whose_loads_would_be_refused() -> None:
    node = Node(learner="nobody")

    with pytest.raises(NotAllowedError):
        characterise_together(node, ["heat"])

    assert node.submitted == []


def test_without_two_slots_or_a_memory_nothing_is_measured() -> None:
    single = DeviceInfo(DeviceSpec("cpu", "cpu"))
    with pytest.raises(InputError, match="no resource runs two tasks at once"):
        characterise_together(Node(cpu=single), ["heat"])
    with pytest.raises(InputError, match="cpu: nothing says which memory it uses"):
        characterise_together(Node(shared=()), ["heat"])
