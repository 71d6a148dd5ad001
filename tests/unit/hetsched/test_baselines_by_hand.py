"""Graphene, Sparrow, Paragon, HEFT and the filter: small cases worked by hand."""

from __future__ import annotations

import math

import pytest

from builders import Harness, a_resource, a_task
from hetsched import actions as a
from hetsched import events as e
from hetsched.belief import Belief
from hetsched.contention import ContentionModel, Load, SharedResource, Tenants
from hetsched.events import CounterReading
from hetsched.ids import TaskId
from hetsched.planning.completion import completed
from hetsched.planning.troublesome_first import VirtualTask, troublesome_order
from hetsched.system import SECOND
from scenario_builders import a_scenario, a_type, run_trace

CPU, GPU = a_resource("cpu"), a_resource("gpu")


def runs(actions: list[a.Action]) -> list[tuple[int, str]]:
    return sorted((x.task, x.resource) for x in actions if isinstance(x, a.Run))


def end(
    harness: Harness, actions: list[a.Action], task: int, at: float
) -> list[a.Action]:
    """End a task that was started; return what follows."""
    started = next(x for x in actions if isinstance(x, a.Run) and x.task == task)
    return harness.handle(e.TaskFinished(TaskId(task), started.epoch), at)


# ------------------------------------------------------------ HEFT


def test_heft_ranks_by_the_longest_chain_not_by_the_number_of_children() -> None:
    """Ranks: 2 + 9 = 11 with one child of 9 s, 2 + 3 = 5 with three of 3 s."""
    seconds = {"root": {"cpu": 2.0}, "long": {"cpu": 9.0}, "short": {"cpu": 3.0}}
    harness = Harness([CPU], seconds, "heft")

    actions = harness.handle_all(
        a_task(1, "root"),
        a_task(2, "root"),
        *(a_task(n, "short", after=[1]) for n in (3, 4, 5)),
        a_task(6, "long", after=[2]),
    )

    assert runs(actions) == [(2, "cpu")]
    assert runs(end(harness, actions, 2, 2.0)) == [(1, "cpu")]


def test_heft_ranks_by_mean_times() -> None:
    """Means 5 and 6: both wait for the gpu (1 and 3 s, 9 on the cpu), task 2 first."""
    seconds = {
        "mean5": {"cpu": 9.0, "gpu0": 1.0},
        "mean6": {"cpu": 9.0, "gpu0": 3.0},
        "before": {"cpu": 1.0, "gpu0": 9.0},
    }
    harness = Harness([CPU, GPU], seconds, "heft")

    first = harness.handle_all(
        a_task(8, "before"),
        a_task(1, "mean5", after=[8]),
        a_task(2, "mean6", after=[8]),
    )
    then = end(harness, first, 8, 1.0)

    assert runs(then) == [(2, "gpu0")]
    assert [task.id for task in harness.scheduler.system.queue("gpu0")] == [1]


def test_heft_binds_to_a_busy_resource_if_the_end_is_sooner_there() -> None:
    """5 s of waiting and 1 s are less than 7 s."""
    seconds = {"five": {"cpu": 50.0, "gpu0": 5.0}, "one": {"cpu": 7.0, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "heft")

    assert runs(harness.handle_all(a_task(1, "five"))) == [(1, "gpu0")]
    assert runs(harness.handle_all(a_task(2, "one"))) == []
    assert [task.id for task in harness.scheduler.system.queue("gpu0")] == [2]


def test_heft_does_not_bind_before_a_task_is_ready() -> None:
    seconds = {"t": {"cpu": 2.0}}
    harness = Harness([CPU, GPU], seconds, "heft")

    harness.handle_all(a_task(1, "t"), a_task(2, "t", after=[1]))

    assert list(harness.scheduler.system.queue("cpu")) == []


def test_heft_counts_no_contention() -> None:
    """Both go to the quicker place, where they slow each other down to twice the time."""
    shared = [{"name": "mem", "kind": "memory"}]
    uses = {"memory": "mem"}
    both = {"load": {"cpu": {"mem": 1.0}}, "bound": {"cpu": {"mem": 1.0}}}
    scenario = a_scenario(
        [
            {"name": "cpu", "kind": "cpu", "slots": 2, "uses": uses},
            {"name": "gpu0", "kind": "gpu"},
        ],
        [a_type("t", cpu=2.0, gpu0=3.0) | both],
        [{"id": "x", "type": "t", "job": "i"}, {"id": "y", "type": "t", "job": "j"}],
        shared=shared,
    )

    assert run_trace(scenario, "heft") == {"x": "cpu 0-4", "y": "cpu 0-4"}


# ------------------------------------------------------------ Graphene


def order(*tasks: tuple[dict[str, float], tuple[int, ...]]) -> list[int]:
    return troublesome_order([VirtualTask(*task) for task in tasks], ["cpu", "gpu0"])


def test_graphene_of_one_task() -> None:
    assert order(({"cpu": 1.0}, ())) == [0]


def test_graphene_puts_the_task_with_few_implementations_first() -> None:
    """4 s on the gpu only, beside two of 4 s anywhere: length 8 if it waits, else 8 or less."""
    anywhere = {"cpu": 4.0, "gpu0": 4.0}

    assert order((anywhere, ()), (anywhere, ()), ({"gpu0": 8.0}, ()))[0] == 2


def test_graphene_starts_the_ancestors_of_the_long_task_before_others() -> None:
    """1 s, then 9 s; the others, of 5 s, have the second resource and the end."""
    found = order(
        ({"cpu": 5.0, "gpu0": 5.0}, ()),
        ({"cpu": 1.0, "gpu0": 1.0}, ()),
        ({"cpu": 9.0, "gpu0": 9.0}, (1,)),
        ({"cpu": 5.0, "gpu0": 5.0}, ()),
    )

    assert found.index(1) < found.index(2)
    assert found.index(2) < max(found.index(0), found.index(3))


def test_graphene_keeps_what_lies_between_two_long_tasks_with_them() -> None:
    """Closure: 0 and 2 are long, 1 is between them; 3 comes when a slot is free."""
    one = {"cpu": 1.0}
    found = order(({"cpu": 9.0}, ()), (one, (0,)), ({"cpu": 9.0}, (1,)), (one, ()))

    assert [task for task in found if task != 3] == [0, 1, 2]


def test_graphene_prefers_the_job_with_less_work_left() -> None:
    """Score: 1 - 0 - 0.5 x 2 / 8 against 1 - 0 - 0.5 x 8 / 8."""
    seconds = {"large": {"cpu": 8.0}, "small": {"cpu": 2.0}, "now": {"cpu": 1.0}}
    harness = Harness([CPU], seconds, "graphene")

    first = harness.handle_all(
        a_task(1, "now"), a_task(2, "large", job="i"), a_task(3, "small", job="j")
    )

    assert runs(first) == [(1, "cpu")]
    assert runs(end(harness, first, 1, 1.0)) == [(3, "cpu")]


# ------------------------------------------------------------ Sparrow


def test_sparrow_with_as_many_probes_as_resources_takes_any_free_one() -> None:
    seconds = {"t": {"cpu": 9.0, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "sparrow", probes=2)

    found = runs(harness.handle_all(a_task(1, "t"), a_task(2, "t")))

    assert {where for _, where in found} == {"cpu", "gpu0"}


def test_sparrow_knows_no_times() -> None:
    """A free slow resource that was probed is taken, whatever it costs."""
    seconds = {"t": {"cpu": 900.0, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "sparrow", probes=2)

    harness.handle_all(a_task(1, "t"))
    second = harness.handle_all(a_task(2, "t"))

    assert len(runs(second)) == 1


def test_sparrow_waits_for_what_it_probed() -> None:
    """With one probe a task takes its resource only, though another is free."""
    seconds = {"t": {"cpu": 1.0, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "sparrow", probes=1)

    found = harness.handle_all(*(a_task(n, "t", job=f"j{n}") for n in range(1, 9)))
    probed = {where for _, where in runs(found)}

    assert len(harness.scheduler.system.unplaced) == 8 - len(probed)


def test_sparrow_serves_the_stage_that_was_ready_first() -> None:
    """Task 2 was submitted first, but has been ready since 4 s only; 3 since 1 s."""
    seconds = {"t": {"cpu": 4.0}, "u": {"cpu": 1.0}}
    harness = Harness([CPU], seconds, "sparrow")

    first = harness.handle_all(a_task(1, "t"), a_task(2, "t", after=[1]))
    harness.handle(a_task(3, "u"), 1.0)

    assert runs(end(harness, first, 1, 4.0)) == [(3, "cpu")]


def test_sparrow_gives_one_stage_several_resources() -> None:
    """Batch sampling: both tasks of the stage run where either has probed."""
    seconds = {"t": {"cpu": 1.0, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "sparrow", probes=2)

    found = harness.handle_all(a_task(1, "t", job="j"), a_task(2, "t", job="j"))

    assert len(runs(found)) == 2


# ------------------------------------------------------------ Paragon


def test_paragon_keeps_what_is_known() -> None:
    table = ((1.0, 2.0), (3.0, 4.0))

    assert completed(table) == table


def test_paragon_completes_additive_effects() -> None:
    """Rows 0 and 1, columns 0 and 2, without the corner: 1 + 2, a little drawn to the mean."""
    found = completed(((0.0, 2.0), (1.0, None)))

    assert found[1][1] == pytest.approx(3.0, abs=0.5)


def test_paragon_serves_the_task_that_was_ready_first() -> None:
    """Task 2 was submitted before 3, but has been ready since 4 s only."""
    seconds = {"t": {"cpu": 4.0}, "u": {"cpu": 4.0}}
    harness = Harness([CPU], seconds, "paragon", known=1.0)

    first = harness.handle_all(a_task(1, "t"), a_task(2, "t", after=[1]))
    harness.handle(a_task(3, "u"), 1.0)

    assert runs(end(harness, first, 1, 4.0)) == [(3, "cpu")]


def test_paragon_takes_three_times_the_best_time_rather_than_wait() -> None:
    """3 s are not more than three times 1 s."""
    seconds = {"t": {"cpu": 3.0, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "paragon", known=1.0)

    assert runs(harness.handle_all(a_task(1, "t"))) == [(1, "gpu0")]
    assert runs(harness.handle_all(a_task(2, "t"))) == [(2, "cpu")]


def test_paragon_waits_rather_than_take_more_than_three_times_the_best_time() -> None:
    seconds = {"t": {"cpu": 3.5, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "paragon", known=1.0)

    harness.handle_all(a_task(1, "t"))

    assert runs(harness.handle_all(a_task(2, "t"))) == []
    assert runs(harness.handle(e.TimerFired(), 1.9)) == []
    assert runs(harness.handle(e.TimerFired(), 2.1)) == [(2, "cpu")]


# ------------------------------------------------------------ the filter

LEVELS = (0.0, 1.0)


def a_belief(mean_s: float = 60.0) -> Belief:
    """Return a belief: the level is 0 or 1, the latter a quarter of the time."""
    tenants = Tenants(LEVELS, (0.75, 0.25), mean_s)
    return Belief(ContentionModel([SharedResource("m", "memory")], {}, {}, tenants))


def read(counter: str, mean: float, samples: int = 5) -> CounterReading:
    """Return a reading with a standard error of 0.1."""
    return CounterReading("m", counter, mean, 0.1 * math.sqrt(samples), samples)


def student(error: float, samples: int = 5) -> float:
    return float((1.0 + error**2 / (samples - 1)) ** (-samples / 2))


def test_the_filter_is_the_prior_without_counters() -> None:
    assert a_belief().probabilities("m", 10 * SECOND) == pytest.approx([0.75, 0.25])


def test_the_filter_weighs_a_counter_by_the_student_density() -> None:
    """A bandwidth of 0.2 is 2 errors from 0 and 8 from 1."""
    belief = a_belief()
    quiet, loaded = 0.75 * student(2.0), 0.25 * student(8.0)

    belief.read(read("bandwidth", 0.2), 0.0, 0)

    found = belief.probabilities("m", 0)
    assert found[0] == pytest.approx(quiet / (quiet + loaded))


def test_the_filter_subtracts_the_own_load() -> None:
    """Own load 1: stalls of a half come from one more, and 0 from none."""
    belief = a_belief()
    quiet, loaded = 0.75 * student(5.0), 0.25 * student(0.0)

    belief.read(read("stall", 0.5), 1.0, 0)

    assert belief.probabilities("m", 0)[1] == pytest.approx(loaded / (quiet + loaded))


def test_a_saturated_counter_tells_nothing() -> None:
    """With an own load of 1 the bandwidth is 1, whatever others do."""
    belief = a_belief()

    belief.read(read("bandwidth", 0.9), 1.0, 0)

    assert belief.probabilities("m", 0) == pytest.approx([0.75, 0.25])


def test_the_filter_forgets() -> None:
    """After the mean time at a level 1 / e of what was known is left."""
    belief = a_belief(mean_s=10.0)
    belief.read(read("offered", 1.0), 0.0, 0)
    known = belief.probabilities("m", 0)[1]

    later = belief.probabilities("m", 10 * SECOND)[1]

    assert later == pytest.approx(0.25 + (known - 0.25) / math.e)


def test_the_expected_slowdown_is_that_of_the_levels() -> None:
    """Own load 0.5: g is 1 for three quarters, and 1.5 for one: 1.125."""
    assert a_belief().slowdown("m", 0.5, 0) == pytest.approx(1.125)
    assert Load("m", 0.5, 1.0).bound == 1.0
