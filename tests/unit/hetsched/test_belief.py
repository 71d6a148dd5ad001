"""The filter's posterior: cases worked by hand, and against an enumeration."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from builders import Harness, a_resource, a_task, estimates
from hetsched import events as e
from hetsched.belief import COUNTERS, Belief
from hetsched.contention import ContentionModel, Load, SharedResource, Tenants
from hetsched.crowding import Crowding
from hetsched.events import CounterReading
from hetsched.ids import TaskId
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.system import SECOND
from hetsched.tasks import Row

TWO = Tenants((0.0, 1.0), (0.75, 0.25), mean_s=60.0)


def a_model(tenants: Tenants = TWO, **loads: tuple[Load, ...]) -> ContentionModel:
    return ContentionModel(
        [SharedResource("mem", "memory"), SharedResource("pcie", "link", 100.0)],
        {"cpu": {"memory": "mem"}, "gpu0": {"link": "pcie"}},
        {("t", resource): each for resource, each in loads.items()},
        tenants,
    )


def test_without_counters_the_belief_is_the_prior() -> None:
    belief = Belief(a_model())

    assert belief.probabilities("mem", 5 * SECOND) == pytest.approx([0.75, 0.25])
    assert belief.expected_level("mem", 5 * SECOND) == pytest.approx(0.25)
    assert belief.slowdown("mem", 0.5, 0) == pytest.approx(0.75 + 0.25 * 1.5)


def test_one_bandwidth_counter_of_two_samples() -> None:
    """One degree of freedom: z = (0.5 - v) / (0.5 / sqrt 2), likelihood 1 / (1 + z^2).

    Level 0 shows 0: z^2 = 0.5, likelihood 2/3. Level 1 shows 1: the same. No news.
    """
    belief = Belief(a_model())

    belief.read(CounterReading("mem", "bandwidth", 0.5, 0.5, 2), 0.0, 0)

    assert belief.probabilities("mem", 0) == pytest.approx([0.75, 0.25])


def test_a_counter_that_shows_a_full_resource() -> None:
    """Mean 1, error 0.5 / sqrt 2: z^2 = 8 at level 0, 0 at level 1: likelihoods 1/9 and 1.

    0.75 / 9 : 0.25 = 1 : 3.
    """
    belief = Belief(a_model())

    belief.read(CounterReading("mem", "bandwidth", 1.0, 0.5, 2), 0.0, 0)

    assert belief.probabilities("mem", 0) == pytest.approx([0.25, 0.75])


def test_own_tasks_are_no_news() -> None:
    """With an own load of 1 both levels use the whole bandwidth; only stalls tell.

    Stall 0.5 at level 1: z^2 = 2 for level 0 with error 0.5 / sqrt 2, likelihood 1/3.
    """
    belief = Belief(a_model())

    belief.read(CounterReading("mem", "bandwidth", 1.0, 0.1, 8), 1.0, 0)
    assert belief.probabilities("mem", 0) == pytest.approx([0.75, 0.25])
    belief.read(CounterReading("mem", "stall", 0.5, 0.5, 2), 1.0, 0)

    assert belief.probabilities("mem", 0) == pytest.approx([0.5, 0.5])


def test_what_was_seen_is_forgotten_over_time() -> None:
    belief = Belief(a_model())
    belief.read(CounterReading("mem", "bandwidth", 1.0, 0.5, 2), 0.0, 0)

    later = belief.probabilities("mem", 60 * SECOND)

    kept = math.exp(-1.0)
    assert later[1] == pytest.approx(kept * 0.75 + (1 - kept) * 0.25)


def test_counters_that_say_nothing_are_ignored() -> None:
    belief = Belief(a_model())

    for reading in (
        CounterReading("mem", "bandwidth", math.nan, 0.1, 8),
        CounterReading("mem", "bandwidth", 1.0, 0.1, 1),
        CounterReading("mem", "unheard", 1.0, 0.1, 8),
        CounterReading("elsewhere", "bandwidth", 1.0, 0.1, 8),
    ):
        belief.read(reading, 0.0, 0)

    assert belief.probabilities("mem", 0) == pytest.approx([0.75, 0.25])


def test_no_level_is_ruled_out_for_good() -> None:
    belief = Belief(a_model())
    sure = CounterReading("mem", "offered", 0.0, 0.0, 1000)
    for second in range(20):
        belief.read(sure, 0.0, second * SECOND)
    assert belief.probabilities("mem", 20 * SECOND)[0] == pytest.approx(0.996, abs=0.01)

    for second in range(20, 23):
        other = CounterReading("mem", "offered", 1.0, 0.01, 8)
        belief.read(other, 0.0, second * SECOND)

    assert belief.probabilities("mem", 22 * SECOND)[1] > 0.99


def test_any_history_gives_the_posterior_of_an_enumeration() -> None:
    """All paths of three levels over five readings, with Student-t densities."""
    draw = random.Random(7)
    levels, weights, mean_s = (0.0, 0.6, 1.5), (0.5, 0.3, 0.2), 10.0
    belief = Belief(a_model(Tenants(levels, weights, mean_s)))
    instants = [0.0, 1.0, 4.0, 4.5, 9.0]
    own = [draw.random() for _ in instants]
    readings = [
        CounterReading("mem", name, draw.random(), 0.1 + draw.random(), 8)
        for name in draw.choices(["bandwidth", "stall"], k=len(instants))
    ]
    joint: dict[tuple[int, ...], float] = {}
    for path in product(range(3), repeat=len(instants)):
        chance = weights[path[0]]
        for step in range(1, len(instants)):
            kept = math.exp(-(instants[step] - instants[step - 1]) / mean_s)
            same = path[step] == path[step - 1]
            chance *= kept * same + (1 - kept) * weights[path[step]]
        for step, reading in enumerate(readings):
            shown = COUNTERS[reading.counter](own[step] + levels[path[step]])
            z = (reading.mean - shown) / (reading.deviation / math.sqrt(8))
            chance *= (1 + z * z / 7) ** -4
        joint[path] = chance
    whole = sum(joint.values())

    for at, load, reading in zip(instants, own, readings, strict=True):
        belief.read(reading, load, int(at * SECOND))

    found = belief.probabilities("mem", int(instants[-1] * SECOND))
    expected = [
        sum(c for path, c in joint.items() if path[-1] == level) / whole
        for level in range(3)
    ]
    assert found == pytest.approx(expected, abs=1e-9)


def test_progress_of_own_tasks_tells_about_others() -> None:
    """Half bound, own load 0.5: factor 1 at level 0, 1.25 at level 1; the noise is 15 %."""
    crowding = Crowding(a_model(cpu=(Load("mem", 0.5, 0.5),)))
    crowding.enter(TaskId(1), 10.0, (Load("mem", 0.5, 0.5),), 0)

    crowding.report(TaskId(1), 0.4, 5.0, 5 * SECOND)

    deviation = 0.15 * 1.25
    likelihood = math.exp(-((1.25 - 1.0) ** 2) / (2 * deviation**2))
    kept = 0.75 * likelihood
    assert crowding.belief.probabilities("mem", 5 * SECOND)[0] == pytest.approx(
        kept / (kept + 0.25)
    )


def test_progress_says_nothing_if_the_own_load_changed_meanwhile() -> None:
    crowding = Crowding(a_model())
    loads = (Load("mem", 0.5, 0.5),)
    crowding.enter(TaskId(1), 10.0, loads, 0)
    crowding.enter(TaskId(2), 10.0, loads, 2 * SECOND)

    crowding.report(TaskId(1), 0.4, 5.0, 5 * SECOND)

    assert crowding.belief.probabilities("mem", 5 * SECOND) == pytest.approx(
        [0.75, 0.25]
    )
    assert crowding.demand["mem"] == 1.0
    crowding.leave(TaskId(1), 6 * SECOND)
    crowding.leave(TaskId(2), 6 * SECOND)
    assert crowding.demand["mem"] == 0.0


def test_short_reports_count_once_they_make_up_enough_of_a_task() -> None:
    crowding = Crowding(a_model(cpu=(Load("mem", 0.5, 1.0),)))
    crowding.enter(TaskId(1), 100.0, (Load("mem", 0.5, 1.0),), 0)
    prior = list(crowding.belief.probabilities("mem", 0))

    for number in range(1, 10):  # 0.5 % of the task each, in three times the time
        crowding.report(TaskId(1), 0.005, 0.5 / 3, number)
    before = list(crowding.belief.probabilities("mem", 0))
    for number in range(10, 20):
        crowding.report(TaskId(1), 0.005, 1.5, number)

    assert before == prior
    # the tenth makes up 5 %; then four times 1.5 s are more than 5 s, twice
    evidence = crowding.evidence["mem", "progress"]
    assert evidence.count == 3
    assert evidence.value == pytest.approx(3.0)


def test_an_uncertain_expectation_says_less() -> None:
    sure, unsure = Crowding(a_model()), Crowding(a_model())
    loads = (Load("mem", 0.5, 1.0),)
    for crowding, spread in ((sure, 0.0), (unsure, 1.0)):
        crowding.enter(TaskId(1), 10.0, loads, 0, spread)
        crowding.report(TaskId(1), 0.5, 7.5, 1)

    crowded = [each.belief.probabilities("mem", 1)[1] for each in (sure, unsure)]
    assert crowded[0] > 0.75
    assert 0.25 < crowded[1] < 0.5


def test_the_system_offers_the_expected_slowdown() -> None:
    load = (Load("mem", 0.5, 0.5),)
    table = estimates({"t": {"cpu": 10.0, "gpu0": 8.0}})
    scheduler = Scheduler(
        [a_resource("cpu", slots=2), a_resource("gpu")],
        table,
        make_policy("affinity", {}),
        contention=a_model(cpu=load),
    )
    system = scheduler.system
    row = Row("t", frozenset({"cpu", "gpu"}), frozenset(), 1.0)

    # 0.5 + 0.5 E max(1, 0.5 + b): 1 or 1.5
    assert system.stretch(row, "cpu") == pytest.approx(1 + 0.5 * 0.25 * 0.5)
    assert system.expected(row, "cpu") == pytest.approx(10 * 1.0625)
    assert system.stretch(row, "gpu0") == 1.0
    scheduler.handle(a_task(1, "t", resources={"cpu"}), 0)
    scheduler.handle(
        e.CountersRead((CounterReading("mem", "offered", 1.5, 0.001, 8),)), 0
    )
    # own 0.5 runs, so others offer 1: with a second task the load is 2
    assert system.stretch(row, "cpu") == pytest.approx(1.5, abs=1e-3)


def test_without_a_model_nothing_is_slower() -> None:
    harness = Harness([a_resource("cpu")], {"t": {"cpu": 10.0}})
    row = Row("t", frozenset({"cpu"}), frozenset(), 1.0)

    harness.handle(e.CountersRead((CounterReading("mem", "stall", 0.5, 0.1, 8),)))

    assert harness.scheduler.system.stretch(row, "cpu") == 1.0
    assert harness.scheduler.system.expected(row, "cpu") == 10.0
