"""Placing: jobs, nodes and links as a problem, and plans with names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hetpool.jobs import InputFile, NodeSlot, PlanEntry, PoolJob, PoolNode
from hetpool.placing import (
    OVERHEAD_S,
    Commitments,
    LinkUse,
    gathered,
    later,
    obstacle,
    placing_of,
    planned,
    seconds_of,
    seconds_on,
    uses_of,
)
from hetsched.planning.batch.executor import faults
from hetsched.planning.batch.planners import PLANNERS, make_planner
from unit.hetpool.fake_engine import a_job, a_node

CPU, GPU = NodeSlot("cpu", "cpu"), NodeSlot("gpu0", "gpu")


def a_file(number: int, size: int, *sources: str) -> InputFile:
    return InputFile(f"{number:064x}", size, sources)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({"n1/gpu0": 1.0, "gpu0": 2.0, "gpu": 3.0}, 1.0),
        ({"gpu0": 2.0, "gpu": 3.0}, 2.0),
        ({"gpu": 3.0}, 3.0),
        ({"cpu": 4.0}, math.inf),
        ({"n2/gpu0": 5.0}, math.inf),
    ],
)
def test_the_most_specific_expectation_counts(
    seconds: dict[str, float], expected: float
) -> None:
    job = a_job(seconds=seconds)

    assert seconds_on(job, a_node("n1"), GPU, {"gpu0": 9.0}) == expected


def test_a_node_is_told_what_is_expected_of_it() -> None:
    job = a_job(seconds={"gpu": 3.0, "cpu": 9.0, "n1/gpu0": 1.0, "n2/cpu": 5.0})

    assert job.seconds_at("n1") == {"gpu": 3.0, "cpu": 9.0, "gpu0": 1.0}
    assert job.seconds_at("n2") == {"gpu": 3.0, "cpu": 5.0}


def test_estimates_serve_where_the_job_says_nothing() -> None:
    job = a_job(seconds={})

    assert seconds_on(job, a_node("n1"), GPU, {"gpu0": 9.0}) == 9.0
    assert seconds_on(job, a_node("n1"), CPU, {"gpu0": 9.0}) == math.inf
    assert math.isfinite(seconds_on(job, a_node("n1"), CPU, None))


def test_nodes_and_resources_of_a_job_are_the_only_ones() -> None:
    job = a_job(seconds={"cpu": 1.0}, nodes=("n2",))
    assert seconds_on(job, a_node("n1"), CPU, None) == math.inf
    pinned = a_job(seconds={"cpu": 1.0}, options={"resources": ["gpu0"]})
    assert seconds_on(pinned, a_node("n1"), CPU, None) == math.inf


def test_absent_and_draining_nodes_take_nothing_but_send() -> None:
    nodes = [
        a_node("n1"),
        a_node("n2", present=False),
        a_node("n3", draining=True, egress=1e6),
    ]
    job = a_job(inputs=(a_file(1, 5_000_000, "n3"),))

    placing, left = placing_of([job], nodes)

    assert placing is not None
    assert left == []
    assert [node.name for node, _ in placing.slots] == ["n1"]
    assert placing.sources == ("n3",)
    plan = planned(placing, "ncjm")
    assert plan.entries[0].start == pytest.approx(5.0)


def test_what_nothing_can_run_is_left() -> None:
    able, picky = a_job(1), a_job(2, nodes=("n9",))

    placing, left = placing_of([able, picky], [a_node("n1")])

    assert placing is not None
    assert placing.jobs == (able,)
    assert left == [picky]
    assert placing_of([picky], [a_node("n1")]) == (None, [picky])


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_plan_is_valid_and_names_all_jobs(planner: str) -> None:
    nodes = [a_node("n1", 2, ingress=3e6), a_node("n2", ingress=1e6)]
    gate = PoolNode("gate", "tls://gate:9000", egress=5e6)
    jobs = [
        a_job(n, cpu=1.0 + n % 4, inputs=(a_file(n, 400_000 * (n % 3), "gate"),))
        for n in range(1, 25)
    ]
    busy = Commitments({("n1", "cpu"): [3.0]}, (LinkUse("n1", "gate", 0.0, 2.0, 1e6),))

    placing, left = placing_of(jobs, [*nodes, gate], commitments=busy)

    assert placing is not None
    assert left == []
    assert (
        faults(placing.problem, make_planner(planner, {}).plan(placing.problem)) == []
    )
    plan = planned(placing, planner, order=100)
    assert [entry.job for entry in plan.entries] == [job.id for job in jobs]
    assert sorted(entry.order for entry in plan.entries) == [*range(100, 124)]
    by_order = sorted(plan.entries, key=lambda each: each.order)
    assert [each.start for each in by_order] == sorted(each.start for each in by_order)


def test_an_order_never_reverses_the_jobs_of_a_slot() -> None:
    jobs = [a_job(n, cpu=float(n)) for n in range(1, 9)]
    placing, _ = placing_of(jobs, [a_node("n1")])
    assert placing is not None

    plan = planned(placing, "sjf")

    shortest_first = sorted(plan.entries, key=lambda each: each.order)
    assert [entry.job for entry in shortest_first] == [job.id for job in jobs]


def test_busy_slots_are_free_later() -> None:
    busy = Commitments({("n1", "cpu"): [5.0, 2.0, 4.0]})

    placing, _ = placing_of([a_job()], [a_node("n1", 2)], commitments=busy)

    assert placing is not None
    # 5 | 2 + 4
    assert sorted(placing.problem.free_at) == [5.0, 6.0]
    assert placing.problem.seconds.min() == pytest.approx(10.0 + OVERHEAD_S)


def test_uses_of_links_fade() -> None:
    job = a_job(inputs=(a_file(1, 100, "gate"),))
    entry = PlanEntry(job.id, "n1", "cpu", 0, pieces=((1.0, 3.0, 50.0),))

    uses = uses_of([entry], {job.id: job})

    assert uses == [LinkUse("n1", "gate", 1.0, 3.0, 50.0)]
    assert later(uses, 2.0) == (LinkUse("n1", "gate", 0.0, 1.0, 50.0),)
    assert later(uses, 3.0) == ()


def entries(count: int, seconds: float, node: str = "n1") -> list[PlanEntry]:
    return [
        PlanEntry(f"{n:032x}", node, "cpu", n, start=0.0, finish=seconds)
        for n in range(count)
    ]


def test_long_jobs_and_those_with_inputs_travel_alone() -> None:
    long = entries(10, 5.0)
    fed = [replace(each, pieces=((0.0, 1.0, 1.0),)) for each in entries(10, 0.1)]

    assert [len(some) for some in gathered([*long, *fed], 0.5, 50)] == [1] * 20


def test_short_jobs_travel_in_groups_of_one_node() -> None:
    groups = gathered([*entries(400, 0.1), *entries(100, 0.1, "n2")], 0.5, 50)

    assert max(len(some) for some in groups) == 50
    assert sum(len(some) for some in groups) == 500
    for some in groups:
        assert len({each.node for each in some}) == 1
        assert [each.order for each in some] == sorted(each.order for each in some)


def test_a_few_short_jobs_are_not_worth_waiting_for_each_other() -> None:
    assert [len(some) for some in gathered(entries(3, 0.1), 0.5, 50)] == [1, 1, 1]


def test_times_by_kind_of_slot_are_those_of_each_slot() -> None:
    slots = [
        (PoolNode(f"n{n}", f"n{n}", ()), NodeSlot(f"{kind}0", kind))
        for n in range(3)
        for kind in ("cpu", "gpu")
    ]
    jobs = [
        PoolJob("a", "a", seconds={"cpu": 2.0, "gpu0": 1.0}),
        PoolJob("b", "b", seconds={"n1/cpu0": 3.0, "gpu": 5.0}),
        PoolJob("c", "c", seconds={"cpu": 2.0}, nodes=("n2",)),
        PoolJob("d", "d", seconds={"cpu": 2.0}, options={"resources": ["gpu0"]}),
        PoolJob("e", "e"),
    ]
    estimates = {"e": {"n0": {"cpu0": 7.0}}}

    found = seconds_of(jobs, slots, estimates)

    assert found.tolist() == [
        [
            seconds_on(job, *each, estimates.get(job.id, {}).get(each[0].name))
            for each in slots
        ]
        for job in jobs
    ]


SMALL = replace(a_node("n1"), cores=2, memory_bytes=4 << 30)
LARGE = replace(a_node("n2"), cores=16, memory_bytes=64 << 30)


@pytest.mark.parametrize("seconds", [{}, {"cpu": 1.0}])
@pytest.mark.parametrize("needs", [{"cores": 4}, {"memory_bytes": 8 << 30}])
def test_a_job_goes_only_where_the_node_has_what_it_needs(
    seconds: dict[str, float], needs: dict[str, int]
) -> None:
    jobs = [a_job(n, seconds=seconds, options=needs) for n in range(4)]

    placing, left = placing_of([*jobs, a_job(9)], [SMALL, LARGE])
    assert placing is not None
    plan = planned(placing, "ncjm")

    assert not left
    assert {each.job: each.node for each in plan.entries} == {
        **{job.id: "n2" for job in jobs},
        a_job(9).id: "n1",
    }
    assert placing_of(jobs, [SMALL, replace(LARGE, draining=True)]) == (None, jobs)
    # a node that does not say what it has may have it
    assert placing_of(jobs, [a_node("n3")])[1] == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"nodes": ("n7", "n8")}, "n7, n8: absent or drained"),
        ({"options": {"resources": ("fpga0", "gpu0")}}, "no node has fpga0 or gpu0"),
        ({"options": {"cores": 99}}, "it needs 99 cores; the largest node has 16"),
        (
            {"options": {"memory_bytes": 9000 << 30}},
            "it needs 9,000 GiB of memory; the largest node has 64 GiB",
        ),
        (
            {"options": {"cores": 4}, "nodes": ("n1",)},
            "it needs 4 cores; the largest node has 2",
        ),
        ({"seconds": {"gpu": 1.0}}, ""),
    ],
)
def test_the_text_for_a_job_that_waits_says_what_the_nodes_lack(
    fields: dict[str, Any], why: str
) -> None:
    assert obstacle(a_job(1, **fields), [SMALL, LARGE]) == why
    drained = [replace(each, draining=True) for each in (SMALL, LARGE)]
    assert obstacle(a_job(1, **fields), drained) == "all nodes are absent or drained"
