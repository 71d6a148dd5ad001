"""Roll-outs of `lookahead`: cases worked by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import a_resource, a_task, estimates
from hetsched.contention import ContentionModel, Load, SharedResource, Tenants
from hetsched.ids import TaskId
from hetsched.planning.crowded_futures import ITEMS, Futures
from hetsched.planning.crowded_play import Play
from hetsched.planning.expected_finish import ExpectedFinish
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetsched.contention import Loads
    from hetsched.events import TaskSubmitted

CPU, GPU = a_resource("cpu"), a_resource("gpu")
QUIET = Tenants(levels=(0.0,), weights=(1.0,))
BOUND = (Load("mem", 0.8, 1.0),)
"""Two such tasks beside each other take 1.6 times as long."""


def futures_of(
    seconds: dict[str, dict[str, float]],
    *tasks: TaskSubmitted,
    loads: Mapping[tuple[str, str], Loads] | None = None,
) -> Futures:
    """Return the futures of tasks that were submitted at once; none was placed yet."""
    shared = [SharedResource("mem", "memory")]
    uses = {"cpu": {"memory": "mem"}, "gpu0": {"memory": "mem"}}
    model = ContentionModel(shared, uses, loads or {}, QUIET)
    scheduler = Scheduler(
        [CPU, GPU], estimates(seconds), make_policy("heft", {}), contention=model
    )
    system = scheduler.system
    scheduler.policy = Nothing()
    for task in tasks:
        scheduler.handle(task, 0)
    ends = ExpectedFinish(system)
    return Futures(ends, ends.ready(32), 1, 0)


class Nothing:
    """A policy that places nothing."""

    def react(self, *_: object) -> tuple[()]:
        return ()


def play(futures: Futures, least_gain: float = 0.1, **forced: str) -> list[float]:
    """Return the ends of the jobs; `forced`: t1 = cpu."""
    numbers = {
        futures.numbers[TaskId(int(name[1:]))]: futures.machine.number_of[place]
        for name, place in forced.items()
    }
    made = Play(futures, futures.futures[0], numbers, least_gain)
    made.play()
    return made.finishes


def test_tasks_slow_each_other_down_until_one_has_ended() -> None:
    """Both at 1 / 1.6: the short one ends at 1.6, and 9 s of the long one are left then."""
    seconds = {"short": {"cpu": 1.0, "gpu0": 99.0}, "long": {"cpu": 99.0, "gpu0": 10.0}}
    loads = {("short", "cpu"): BOUND, ("long", "gpu0"): BOUND}
    tasks = a_task(1, "short", job="i"), a_task(2, "long", job="j")

    found = play(futures_of(seconds, *tasks, loads=loads))

    assert sorted(found) == [pytest.approx(1.6), pytest.approx(1.6 + 9.0)]


def test_a_task_waits_where_it_ends_sooner() -> None:
    """The cpu takes 9 s; after 2 s of waiting the gpu takes 3."""
    seconds = {"first": {"cpu": 99.0, "gpu0": 2.0}, "second": {"cpu": 9.0, "gpu0": 3.0}}
    tasks = a_task(1, "first", job="i"), a_task(2, "second", job="j")

    assert sorted(play(futures_of(seconds, *tasks))) == [2.0, 5.0]


def test_a_forced_task_goes_where_it_is_sent_and_may_leave_later() -> None:
    """After 2 s of 10 on the cpu, four fifths of 3 s on the gpu are less than 8 s."""
    seconds = {"only": {"cpu": 10.0, "gpu0": 3.0}}
    futures = futures_of(seconds, a_task(1, "only", job="i"))

    assert play(futures) == [3.0]
    assert play(futures, 0.0, t1="cpu") == [10.0]
    assert play(futures, t1="cpu") == [pytest.approx(2.0 + 2.4, abs=0.1)]


def test_children_start_when_the_last_of_their_parents_has_ended() -> None:
    seconds = {"a": {"cpu": 2.0}, "b": {"cpu": 99.0, "gpu0": 3.0}, "c": {"cpu": 1.0}}
    tasks = a_task(1, "a"), a_task(2, "b"), a_task(3, "c", after=[1, 2])

    assert max(play(futures_of(seconds, *tasks))) == 4.0


def test_the_job_with_the_least_work_left_goes_first() -> None:
    """1 s and 4 s on the only resource: 1 and 5, not 4 and 5."""
    seconds = {"long": {"cpu": 4.0, "gpu0": 99.0}, "short": {"cpu": 1.0, "gpu0": 99.0}}
    tasks = a_task(1, "long", job="i"), a_task(2, "short", job="j")

    assert sorted(play(futures_of(seconds, *tasks))) == [1.0, 5.0]


def test_roll_outs_are_bounded() -> None:
    """Two tasks in one future: 7 played tasks pay for three choices, then for none."""
    seconds = {"a": {"cpu": 2.0, "gpu0": 1.0}}
    futures = futures_of(seconds, a_task(1, "a"), a_task(2, "a"))

    assert futures.affordable(5, most=7) == 3
    assert futures.affordable(5, most=7) == 0


def test_no_more_tasks_are_played_than_the_bound() -> None:
    seconds = {"a": {"cpu": 2.0}}
    chain = [a_task(n, "a", after=[n - 1] if n > 1 else []) for n in range(1, 100)]

    assert len(futures_of(seconds, *chain).items) == ITEMS
