"""HEFT, Graphene, Sparrow, Paragon and `contention-aware`: cases worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from builders import Harness, a_resource, a_task, estimates
from hetpapers.banerjee.testbed import Setting, make_scenario
from hetsched import actions as a
from hetsched import events as e
from hetsched.contention import ContentionModel, Load, SharedResource, Tenants
from hetsched.events import CounterReading
from hetsched.ids import TaskId
from hetsched.planning import baselines_of_graphs, expected_finish
from hetsched.planning.baselines_of_graphs import order_of
from hetsched.planning.classification import Classification
from hetsched.planning.completion import completed
from hetsched.planning.expected_finish import (
    ExpectedFinish,
    KnownTimes,
    waiting_without_place,
)
from hetsched.planning.probing import probes_of
from hetsched.planning.troublesome_first import VirtualTask, troublesome_order
from hetsched.policies import make_policy
from hetsched.policy import uses_belief
from hetsched.scheduler import Scheduler
from hetsched.system import SECOND
from hetsim.simulate import simulate
from scenario_builders import a_node, a_scenario, a_type, run_trace

CPU, GPU = a_resource("cpu"), a_resource("gpu")


def runs(actions: list[a.Action]) -> list[tuple[int, str]]:
    return [(x.task, x.resource) for x in actions if isinstance(x, a.Run)]


# ------------------------------------------------------------ HEFT


def test_heft_takes_the_higher_rank_first() -> None:
    """Ranks 4 + 6 and 5: task 1 gets the quicker gpu; task 3 would end at 6 there, 5 here."""
    seconds = {
        "short": {"cpu": 5.0, "gpu0": 3.0},
        "long": {"cpu": 6.0, "gpu0": 6.0},
        "other": {"cpu": 5.0, "gpu0": 5.0},
    }
    harness = Harness([CPU, GPU], seconds, "heft")

    actions = harness.handle_all(
        a_task(3, "other"), a_task(1, "short"), a_task(2, "long", after=[1])
    )

    assert runs(actions) == [(3, "cpu"), (1, "gpu0")]


def test_heft_counts_the_queue() -> None:
    """Three of 2 s on the gpu end at 2, 4 and 6; the third ends at 5 on the cpu."""
    seconds = {"t": {"cpu": 5.0, "gpu0": 2.0}}
    harness = Harness([CPU, GPU], seconds, "heft")

    actions = harness.handle_all(a_task(1, "t"), a_task(2, "t"), a_task(3, "t"))

    assert runs(actions) == [(3, "cpu"), (1, "gpu0")]
    assert [t.id for t in harness.scheduler.system.queue("gpu0")] == [2]


def test_heft_counts_the_copy_of_inputs() -> None:
    """4 s on the gpu and 2 s of copying are more than 5 s where the input lies."""
    scenario = a_scenario(
        a_node("cpu") + a_node("gpu0", link_bytes_per_s=100.0),
        [
            a_type("first", cpu=1.0, output_bytes=200),
            a_type("second", cpu=5.0, gpu0=4.0),
        ],
        [
            {"id": "a", "type": "first"},
            {"id": "b", "type": "second", "inputs": [{"from": "a"}]},
        ],
    )

    assert run_trace(scenario, "heft") == {"a": "cpu 0-1", "b": "cpu 1-6"}


# ------------------------------------------------------------ Graphene


def virtual(
    times: list[float], parents: dict[int, tuple[int, ...]]
) -> list[VirtualTask]:
    return [
        VirtualTask({"cpu": seconds}, parents.get(number, ()))
        for number, seconds in enumerate(times)
    ]


def test_graphene_starts_the_long_task_first() -> None:
    """Two slots, 1 + 1 + 4: with the long one first all is done at 4."""
    assert troublesome_order(virtual([1.0, 1.0, 4.0], {}), ["cpu", "cpu"])[0] == 2


def test_graphene_starts_what_the_long_task_depends_on_first() -> None:
    order = troublesome_order(virtual([2.0, 1.0, 9.0], {2: (1,)}), ["cpu"])

    assert order.index(1) < order.index(2)
    assert order[0] == 1


def test_graphene_keeps_parents_before_children() -> None:
    parents = {2: (0, 1), 3: (2,), 4: (0,), 5: (3, 4)}
    order = troublesome_order(
        virtual([3.0, 1.0, 8.0, 2.0, 2.0, 1.0], parents), ["cpu", "cpu"]
    )

    assert sorted(order) == list(range(6))
    for child, before in parents.items():
        assert all(order.index(parent) < order.index(child) for parent in before)


def test_graphene_orders_large_jobs_by_upward_rank() -> None:
    times = [1.0] * 50
    chain: dict[int, tuple[int, ...]] = {n: (n - 1,) for n in range(1, 50)}

    assert troublesome_order(virtual(times, chain), ["cpu"]) == list(range(50))


def test_graphene_leaves_a_resource_that_is_too_slow() -> None:
    """On the cpu it would end at 9; the gpu, free at 2, ends it at 4, so 8 is the limit."""
    seconds = {"t": {"cpu": 9.0, "gpu0": 2.0}}
    harness = Harness([CPU, GPU], seconds, "graphene")

    actions = harness.handle_all(a_task(1, "t"), a_task(2, "t"))

    assert runs(actions) == [(1, "gpu0")]
    assert harness.scheduler.system.tasks[TaskId(2)].resource is None


# ------------------------------------------------------------ Sparrow


def test_sparrow_probes_as_many_resources_as_it_is_asked_to() -> None:
    harness = Harness([a_resource("cpu", f"cpu{n}") for n in range(6)], {}, "sparrow")
    harness.handle(e.NodeStarted())
    system = harness.scheduler.system
    for number in range(1, 30):
        system_task = a_task(number, "t")
        harness.handle(system_task)
    waiting = list(system.unplaced)

    probes = [probes_of(task, system, 2, 0) for task in waiting]

    assert all(len(set(each)) == 2 for each in probes)
    assert len({name for each in probes for name in each}) == 6
    assert probes == [probes_of(task, system, 2, 0) for task in waiting]


def test_sparrow_probes_capable_resources_only() -> None:
    harness = Harness([CPU, GPU], {}, "sparrow")

    actions = harness.handle(a_task(1, "t", kinds={"gpu"}))

    assert runs(actions) == [(1, "gpu0")]


def test_sparrow_gives_a_free_resource_the_first_task_of_the_stage_that_probed_it() -> (
    None
):
    """Both tasks of the stage have probed both resources: the first come is served."""
    seconds = {"t": {"cpu": 1.0, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "sparrow")

    actions = harness.handle_all(
        *(a_task(number, "t", job="j") for number in (1, 2, 3))
    )

    assert runs(actions) == [(1, "cpu"), (2, "gpu0")]


# ------------------------------------------------------------ Paragon


def test_paragon_completes_rows_that_are_proportional() -> None:
    """Logarithms 0 1 2 / 1 2 3 / 2 ? 4: the unknown one is 3."""
    table = ((0.0, 1.0, 2.0), (1.0, 2.0, 3.0), (2.0, None, 4.0))

    assert completed(table)[2][1] == pytest.approx(3.0, abs=0.15)
    assert completed(table)[0] == (0.0, 1.0, 2.0)


def test_paragon_takes_the_quickest_free_resource() -> None:
    seconds = {"t": {"cpu": 2.0, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "paragon", known=1.0)

    actions = harness.handle_all(a_task(1, "t"), a_task(2, "t"))

    assert runs(actions) == [(2, "cpu"), (1, "gpu0")]


def test_paragon_waits_up_to_twice_its_best_time() -> None:
    """The cpu is more than three times slower: task 2 waits 2 s for the gpu, then takes it."""
    seconds = {"t": {"cpu": 4.0, "gpu0": 1.0}}
    harness = Harness([CPU, GPU], seconds, "paragon", known=1.0)

    actions = harness.handle_all(a_task(1, "t"), a_task(2, "t"))

    assert runs(actions) == [(1, "gpu0")]
    assert a.SetTimer(SECOND) in actions
    assert runs(harness.handle(e.TimerFired(), 1.0)) == []
    assert runs(harness.handle(e.TimerFired(), 2.0)) == [(2, "cpu")]


# ------------------------------------------------------------ contention-aware


def a_crowded_scheduler(policy: str, **parameters: Any) -> Scheduler:
    """Two processors of equal speed, each with a memory of its own."""
    model = ContentionModel(
        [SharedResource("mem0", "memory"), SharedResource("mem1", "memory")],
        {"cpu0": {"memory": "mem0"}, "cpu1": {"memory": "mem1"}},
        {("t", f"cpu{n}"): (Load(f"mem{n}", 0.6, 0.8),) for n in range(2)},
        Tenants((0.0, 1.5), (0.5, 0.5)),
    )
    table = estimates({"t": {"cpu0": 10.0, "cpu1": 10.0}})
    resources = [a_resource("cpu", f"cpu{n}", slots=2) for n in range(2)]
    return Scheduler(
        resources, table, make_policy(policy, parameters), contention=model
    )


def counters(**loads: float) -> e.CountersRead:
    return e.CountersRead(
        tuple(CounterReading(n, "offered", load, 0.01, 8) for n, load in loads.items())
    )


def test_a_task_goes_where_it_is_quiet() -> None:
    scheduler = a_crowded_scheduler("contention-aware")
    scheduler.handle(counters(mem0=1.5, mem1=0.0), 0)

    assert runs(scheduler.handle(a_task(1, "t"), 0)) == [(1, "cpu1")]


def test_a_task_keeps_away_from_one_that_it_would_slow_down() -> None:
    """Beside task 1 the load is 1.2: both take 16 % longer, alone neither does."""
    scheduler = a_crowded_scheduler("contention-aware")
    scheduler.handle(counters(mem0=0.0, mem1=0.0), 0)

    actions = scheduler.handle_all([a_task(1, "t"), a_task(2, "t")], 0)

    assert sorted(runs(actions)) == [(1, "cpu0"), (2, "cpu1")]


@pytest.mark.parametrize("policy", ["contention-aware", "finish-time"])
def test_a_running_task_leaves_a_place_that_became_crowded(policy: str) -> None:
    scheduler = a_crowded_scheduler(policy)
    scheduler.handle(counters(mem0=0.0, mem1=1.5), 0)
    assert runs(scheduler.handle(a_task(1, "t"), 0)) == [(1, "cpu0")]

    actions = scheduler.handle(counters(mem0=2.1, mem1=0.0), SECOND)

    assert [type(action) for action in actions] == [a.Preempt]
    assert scheduler.system.tasks[TaskId(1)].destination == "cpu1"


@pytest.mark.parametrize(
    ("policy", "parameter"),
    [("contention-aware", "least_gain"), ("finish-time", "crowded_gain")],
)
def test_no_task_moves_if_a_move_must_not_save_anything(
    policy: str, parameter: str
) -> None:
    scheduler = a_crowded_scheduler(policy, **{parameter: 0.0})
    scheduler.handle(counters(mem0=0.0, mem1=1.5), 0)
    scheduler.handle(a_task(1, "t"), 0)

    assert scheduler.handle(counters(mem0=2.1, mem1=0.0), SECOND) == []


def test_a_task_waits_where_that_is_sooner() -> None:
    """The gpu is free at 2 s and takes 2 s; the cpu would take 9 s."""
    seconds = {"t": {"cpu": 9.0, "gpu0": 2.0}}
    harness = Harness([CPU, GPU], seconds, "contention-aware")

    actions = harness.handle_all(a_task(1, "t"), a_task(2, "t"))

    assert runs(actions) == [(1, "gpu0")]
    assert a.SetTimer(2 * SECOND) in actions


def test_the_job_with_the_least_work_left_goes_first() -> None:
    seconds = {"t": {"cpu": 2.0}, "u": {"cpu": 1.0}}
    harness = Harness([CPU], seconds, "contention-aware")

    actions = harness.handle_all(
        a_task(1, "u", job="long"),
        a_task(2, "t", job="long"),
        a_task(3, "t", job="short"),
    )

    assert runs(actions) == [(3, "cpu")]


def test_knowing_the_contention_is_worth_something_in_the_simulator() -> None:
    shared = [{"name": f"mem{n}", "kind": "memory"} for n in range(2)]
    scenario = a_scenario(
        [
            {"name": f"cpu{n}", "kind": "cpu", "uses": {"memory": f"mem{n}"}}
            for n in range(2)
        ],
        [
            {
                "name": "t",
                "seconds": {"cpu0": 10.0, "cpu1": 10.0},
                "load": {f"cpu{n}": {f"mem{n}": 0.5} for n in range(2)},
                "bound": {f"cpu{n}": {f"mem{n}": 0.8} for n in range(2)},
            }
        ],
        [("a", "t", 5.0)],
        shared=shared,
        background=[{"shared": "mem0", "steps": [[0.0, 1.5]]}],
        counters={},
    )

    aware, blind = (
        simulate(scenario, policy).makespan for policy in ("contention-aware", "heft")
    )

    assert aware == pytest.approx(10.0)
    assert blind == pytest.approx(18.0)


# ------------------------------------------------------------ lookahead


def test_lookahead_keeps_the_quick_resource_for_what_needs_it() -> None:
    """Task 1 ends first on the gpu (4 s, not 5), but task 2, of another job, needs it.

    1 on the gpu: done at 4, 2 at 14. 1 on the cpu: 5 and 10. The rule alone takes the gpu.
    """
    seconds = {
        "either": {"cpu": 5.0, "gpu0": 4.0},
        "picky": {"cpu": 90.0, "gpu0": 10.0},
    }
    jobs = (a_task(1, "either", job="i"), a_task(2, "picky", job="j"))
    ahead = Harness([CPU, GPU], seconds, "lookahead", futures=1)
    rule = Harness([CPU, GPU], seconds, "contention-aware")

    assert sorted(runs(rule.handle_all(*jobs))) == [(1, "gpu0")]
    assert sorted(runs(ahead.handle_all(*jobs))) == [(1, "cpu"), (2, "gpu0")]


def test_lookahead_sees_what_comes_after() -> None:
    """The result of task 1 is needed on the gpu: there it need not be copied."""
    scenario = a_scenario(
        [
            {"name": "cpu", "kind": "cpu", "uses": {"memory": "mem"}},
            {"name": "gpu0", "kind": "gpu", "uses": {"link": "pcie"}},
        ],
        [
            a_type("first", cpu=1.0, gpu0=1.5, output_bytes=500),
            a_type("second", gpu0=2.0),
        ],
        [
            {"id": "a", "type": "first", "job": "j"},
            {"id": "b", "type": "second", "job": "j", "inputs": [{"from": "a"}]},
        ],
        shared=[
            {"name": "mem", "kind": "memory"},
            {"name": "pcie", "kind": "link", "bytes_per_s": 100.0},
        ],
    )

    assert run_trace(scenario, "contention-aware")["b"] == "gpu0 1-8"
    assert run_trace(scenario, "lookahead")["b"] == "gpu0 1.5-3.5"


def test_lookahead_decides_the_same_again() -> None:
    scenario = make_scenario(Setting(), 3)

    first, second = (simulate(scenario, "lookahead", seed=3) for _ in range(2))

    assert first.tasks == second.tasks


# ------------------------------------------------------------ bounded decisions


def finish(harness: Harness, actions: list[a.Action], count: int) -> None:
    """Finish so many tasks, in the order in which they started."""
    started = [x for x in actions if isinstance(x, a.Run)]
    for number in range(count):
        done = e.TaskFinished(started[number].task, started[number].epoch)
        more = harness.handle(done, number + 1.0)
        started += [x for x in more if isinstance(x, a.Run)]


NODE = make_scenario(Setting("node", jobs=4, every_s=5.0), seed=11)


@pytest.mark.parametrize(
    "policy", ["heft", "graphene", "sparrow", "paragon", "contention-aware"]
)
def test_what_is_remembered_between_decisions_changes_none(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembering = simulate(NODE, policy, seed=1)
    monkeypatch.setattr(expected_finish, "_known_times", lambda _: KnownTimes())
    monkeypatch.setattr(
        baselines_of_graphs,
        "classification_of",
        lambda system, known, seed, _: Classification(system, known, seed, {}),
    )

    forgetting = simulate(NODE, policy, seed=1)

    assert [t.segments for t in remembering.tasks] == [
        t.segments for t in forgetting.tasks
    ]


def test_times_that_are_remembered_follow_estimates_and_progress() -> None:
    harness = Harness([CPU], {"t": {"cpu": 4.0}}, "sparrow")
    harness.handle_all(a_task(1, "t"), a_task(2, "t"))
    system = harness.scheduler.system
    task = system.unplaced.first(1)[0]

    def seconds() -> float:
        ends = ExpectedFinish(system)
        return ends.alone_on(task)["cpu"][0] - ends.free["cpu"][0]

    first = seconds()
    task.progress = 0.5
    half = seconds()
    table: Any = system.estimates
    table.learn("t", "cpu", 10.0, 1.0)

    assert (first, half, seconds()) == (4.0, 2.0, 5.0)


@pytest.mark.parametrize(
    ("rows", "of_each", "looked_at"), [(3, 2, 6), (10, 9, 40), (40, 9, 40), (99, 2, 64)]
)
def test_a_decision_looks_at_so_many_waiting_tasks(
    rows: int, of_each: int, looked_at: int
) -> None:
    seconds = {f"t{n}": {"cpu": 1.0} for n in range(rows)}
    harness = Harness([CPU], seconds, "sparrow")
    count = rows * of_each
    harness.handle_all(
        *(a_task(n + 1, f"t{n % rows}") for n in range(count)), a_task(count + 1, "t0")
    )
    system = harness.scheduler.system

    found = waiting_without_place(system)

    assert len(found) == looked_at
    assert len({task.row for task in found}) == min(rows, 64)


def test_a_large_job_is_never_searched() -> None:
    """Of its last tasks either: it has been ordered by rank so far."""
    harness = Harness([CPU], {"t": {"cpu": 1.0}}, "graphene")
    tasks = [a_task(n + 1, "t", after=[n] if n else [], job="j") for n in range(41)]
    finish(harness, harness.handle_all(*tasks), 40)
    system = harness.scheduler.system
    (last,) = system.tasks.values()

    assert order_of(system, last) == 0.5  # all that is left is the task itself


def test_paragon_completes_its_table_only_when_something_changes() -> None:
    harness = Harness([CPU, GPU], {"t": {"cpu": 1.0, "gpu0": 2.0}}, "paragon")
    actions = harness.handle_all(*(a_task(n + 1, "t") for n in range(30)))
    before = completed.cache_info()

    finish(harness, actions, 20)

    assert completed.cache_info() == before


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        ("contention-aware", True),
        ("lookahead", True),
        ("learned", True),
        ("heft", False),
        ("sparrow", False),
    ],
)
def test_policies_that_look_at_the_load_of_others_ask_for_it(
    name: str, *, asks: bool
) -> None:
    """hetd reads the counters of what resources share only for these."""
    assert uses_belief(make_policy(name, {})) is asks
