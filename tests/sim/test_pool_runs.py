"""`hetsim pool`: what happens to a batch on nodes that are modelled, links and losses too."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from hetpool.broker.racks import RackPlanner, deal, racks_of
from hetpool.jobs import NodeSlot, PoolJob, PoolNode
from hetpool.placing import Commitments
from hetsched.planning.batch.planners import make_planner
from hetsim.batch import decode_batch
from hetsim.commands.pool import command
from hetsim.pool.model import model_of
from hetsim.pool.result import PooledResult, result_of
from hetsim.pool.run import PoolRunSettings, simulate_pool
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

SPEEDS = {"cpu": 1.0, "gpu0": 2.0}


def a_batch(
    jobs: int = 12, nodes: int = 3, *, ingress: float | None = 10.0, **keys: Any
) -> dict[str, Any]:
    """Jobs of 1 to 4 s with 5 to 20 units of data, on nodes with two slots."""
    slots = [(f"n{n}", kind) for n in range(nodes) for kind in SPEEDS]
    lengths = [1.0 + j % 4 for j in range(jobs)]
    return {
        "format": "hetsim/batch-1",
        "accelerators": [
            {"id": f"{node}-{kind}", "responder": node} for node, kind in slots
        ],
        "responders": [{"id": f"n{n}", "ingress": ingress} for n in range(nodes)],
        "requesters": [{"id": "gw", "egress": None}, {"id": "gw2", "egress": None}],
        "jobs": [
            {"id": f"j{j}", "size": 5 * length, "requester": "gw"}
            for j, length in enumerate(lengths)
        ],
        "seconds": [[length / SPEEDS[kind] for _, kind in slots] for length in lengths],
        **keys,
    }


def ran(document: dict[str, Any], planner: str = "ncjm", **keys: Any) -> PooledResult:
    batch = decode_batch(json.dumps(document))
    model = model_of(batch, keys.pop("chunks", 16))
    made = make_planner(planner, keys.pop("parameters", {}))
    run = simulate_pool(model, PoolRunSettings(planner, made, **keys))
    return result_of(batch, model, run)


def check(document: dict[str, Any], result: PooledResult) -> None:
    """Check what must hold of every run."""
    busy = defaultdict(list)
    arrivals = {job["id"]: job.get("arrival", 0.0) for job in document["jobs"]}
    for job in result.jobs:
        busy[job.accelerator].append((job.start, job.finish, job.order))
        assert job.start >= arrivals[job.id]
        assert all(piece.finish <= job.start + 1e-9 for piece in job.transfer)
    for spans in busy.values():
        spans.sort()
        assert [order for *_, order in spans] == [*range(len(spans))]
        for (_, end, _), (start, _, _) in itertools.pairwise(spans):
            assert end <= start + 1e-9
    ended = [job.id for job in result.jobs] + result.unfinished
    assert sorted(ended) == sorted(arrivals)
    assert result.executions >= len(result.jobs)


# -------------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    "planner", ["sjf", "ljf", "cim", "ncjm", "mttf-lp", "waves", "sct"]
)
def test_a_plan_that_nothing_disturbs_comes_true(planner: str) -> None:
    document = a_batch()

    result = ran(document, planner, replan=False)

    check(document, result)
    assert result.lower_bound <= result.makespan * (1 + 1e-9)
    assert result.makespan == pytest.approx(result.planned_makespan, rel=0.12)
    assert (result.plans, result.executions, result.replaced) == (1, 12, 0)


def test_the_planned_order_beats_all_transfers_at_once() -> None:
    document = a_batch(60)

    ordered, at_once = (ran(document, transfers=way) for way in ("ordered", "at-once"))

    assert ordered.makespan < 0.85 * at_once.makespan


def test_planned_rates_hold_in_paced_transfers() -> None:
    document = a_batch(24, ingress=12.0)

    paced = ran(document, transfers="paced", chunks=64)

    check(document, paced)
    assert paced.makespan == pytest.approx(paced.planned_makespan, rel=0.05)


@pytest.mark.parametrize(
    ("planner", "seconds"), [("sjf", 12.0), ("ljf", 14.4), ("nim", 9.6)]
)
def test_word_counting_on_the_testbed_of_the_paper(
    planner: str, seconds: float
) -> None:
    """Section 5.1 of zhao-2018-tpds: 300, 300, 300 and 900 MB, 500 and 1000 Mb/s."""
    sizes = [2400, 2400, 2400, 7200]
    document = {
        "format": "hetsim/batch-1",
        "responders": [{"id": "f1", "ingress": 500}, {"id": "f2", "ingress": 1000}],
        "accelerators": [{"id": f"a{n}", "responder": f"f{n}"} for n in (1, 2)],
        "requesters": [{"id": f"q{n}", "egress": 1000} for n in range(4)],
        "jobs": [
            {"id": n, "size": size, "requester": f"q{n}"}
            for n, size in enumerate(sizes)
        ],
        "seconds": [[0, 0]] * 4,
    }

    result = ran(document, planner, chunks=128)

    assert result.makespan == pytest.approx(seconds, rel=0.01)


def test_groups_and_waves_are_planners_as_in_plans() -> None:
    document = a_batch(30)

    grouped = ran(document, "nim", parameters={"groups": 3})

    check(document, grouped)
    assert grouped.planner == "nim"


def test_a_senders_link_is_shared() -> None:
    narrow = a_batch(requesters=[{"id": "gw", "egress": 10.0}])

    result = ran(narrow)

    total = sum(job["size"] for job in narrow["jobs"])
    assert result.transfer_end >= total / 10.0 * (1 - 1e-9)
    assert result.makespan == pytest.approx(result.planned_makespan, rel=0.1)


# ----------------------------------------------------------------------- arrivals


def test_jobs_are_planned_when_they_arrive() -> None:
    document = a_batch()
    for index, job in enumerate(document["jobs"]):
        job["arrival"] = 0.5 * index

    each = ran(document, replan=False)
    gathered = ran(document, replan=False, window=2.0)

    check(document, each)
    check(document, gathered)
    assert each.plans == 12
    assert gathered.plans < 5


# ------------------------------------------------------------------------- losses


def test_jobs_of_a_lost_node_run_elsewhere() -> None:
    document = a_batch(30, losses=[{"host": "n1", "at": 6.0}])

    result = ran(document, replace=2.0)

    check(document, result)
    assert result.unfinished == []
    assert result.replaced > 0
    assert result.executions > 30
    assert result.lost_seconds > 0
    late = [job for job in result.jobs if job.finish > 6.0]
    assert not any(job.accelerator.startswith("n1") for job in late)  # type: ignore[union-attr]
    assert result.makespan > ran(a_batch(30)).makespan


def test_a_node_that_is_back_soon_keeps_its_jobs() -> None:
    document = a_batch(30, losses=[{"host": "n1", "at": 6.0, "back": 7.0}])

    result = ran(document, replace=2.0)

    check(document, result)
    assert (result.unfinished, result.replaced) == ([], 0)
    assert any(j.accelerator == "n1-cpu" and j.start > 7.0 for j in result.jobs)


def test_without_any_node_jobs_stay_unfinished() -> None:
    document = a_batch(6, nodes=1, losses=[{"host": "n0", "at": 0.5}])

    result = ran(document)

    check(document, result)
    assert sorted(result.unfinished) == [f"j{n}" for n in range(6)]


def test_another_source_takes_over_for_a_lost_one() -> None:
    document = a_batch(losses=[{"host": "gw", "at": 1.0}])
    for job in document["jobs"]:
        job["also_at"] = ["gw2"]

    result = ran(document)

    check(document, result)
    assert result.unfinished == []
    assert result.transfer_end > 2.0


def test_without_another_source_jobs_wait_until_it_is_back() -> None:
    gone = a_batch(losses=[{"host": "gw", "at": 1.0}])
    back = a_batch(losses=[{"host": "gw", "at": 1.0, "back": 20.0}])

    lost, waited = ran(gone), ran(back)

    check(gone, lost)
    check(back, waited)
    assert lost.unfinished
    assert waited.unfinished == []
    assert waited.makespan > 20.0


# -------------------------------------------------------------------------- errors


def test_the_same_seed_gives_the_same_run() -> None:
    first, again, other = (ran(a_batch(30), error=0.3, seed=n) for n in (1, 1, 2))

    assert first.jobs == again.jobs
    assert first.jobs != other.jobs


def test_what_has_not_begun_moves_to_a_node_that_is_back() -> None:
    document = a_batch(60, losses=[{"host": "n1", "at": 0.5, "back": 8.0}])

    kept, moved = (ran(document, replace=2.0, replan=r) for r in (False, True))

    check(document, moved)
    assert (kept.moved, moved.executions) == (0, 60)
    assert moved.moved > 0
    assert moved.makespan < 0.9 * kept.makespan


def test_jobs_far_off_their_plan_cause_another_plan() -> None:
    document = a_batch(60)

    kept = ran(document, error=0.8, replan=False)
    looked_at = ran(document, error=0.8)

    check(document, looked_at)
    assert kept.plans == 1
    assert looked_at.plans > 2


TENTHS = st.integers(0, 200).map(lambda tenths: tenths / 10)


@settings(max_examples=40)
@given(
    jobs=st.integers(1, 15),
    nodes=st.integers(1, 4),
    arrivals=st.lists(TENTHS, min_size=15, max_size=15),
    losses=st.lists(st.tuples(st.integers(0, 3), TENTHS, TENTHS), max_size=4),
    keys=st.fixed_dictionaries(
        {
            "transfers": st.sampled_from(["ordered", "paced", "at-once"]),
            "replan": st.booleans(),
        }
    ),
)
def test_whatever_happens_every_job_ends_once_or_is_named(
    jobs: int,
    nodes: int,
    arrivals: list[float],
    losses: list[tuple[int, float, float]],
    keys: dict[str, Any],
) -> None:
    gone = [
        {"host": f"n{n % nodes}", "at": at, "back": at + away + 0.1}
        for n, at, away in losses
    ]
    document = a_batch(jobs, nodes, losses=gone)
    for job, arrival in zip(document["jobs"], arrivals, strict=False):
        job["arrival"] = arrival

    result = ran(document, replace=1.0, error=0.3, chunks=8, **keys)

    check(document, result)
    assert result.unfinished == []


# --------------------------------------------------------------------------- racks


def a_node(name: str, slots: int = 2) -> PoolNode:
    return PoolNode(name, name, tuple(NodeSlot(f"s{n}", "cpu") for n in range(slots)))


def test_neighbours_are_a_rack() -> None:
    nodes = [a_node(f"n{n}") for n in range(5)] + [a_node("gw", 0)]

    names = [[node.name for node in rack] for rack in racks_of(nodes, 2)]

    assert names == [["n0", "n1"], ["n2", "n3"], ["n4"]]


def test_racks_get_jobs_by_their_speed() -> None:
    racks = [[a_node("n0", 3)], [a_node("n1", 1)]]
    jobs = [PoolJob(str(n), "a", seconds={"cpu": 1.0}) for n in range(40)]

    dealt, left = deal(jobs, racks, {}, [0.0, 0.0])

    assert [len(some) for some in dealt] == [30, 10]
    assert left == []


def test_a_job_goes_to_the_rack_that_can_run_it() -> None:
    racks = [[a_node("n0")], [a_node("n1")]]
    jobs = [
        PoolJob("a", "a", seconds={"cpu": 1.0}, nodes=("n1",)),
        PoolJob("b", "a", seconds={"gpu": 1.0}),
    ]

    dealt, left = deal(jobs, racks, {}, [0.0, 0.0])

    assert [[job.id for job in some] for some in dealt] == [[], ["a"]]
    assert [job.id for job in left] == ["b"]


def test_a_plan_of_racks_is_nearly_as_good_and_has_one_order() -> None:
    document = a_batch(120, nodes=12)

    whole, racked = ran(document), ran(document, rack=4)

    check(document, racked)
    assert racked.makespan <= 1.15 * whole.makespan


def test_orders_of_a_plan_of_racks_are_all_different() -> None:
    nodes = [a_node(f"n{n}") for n in range(4)]
    jobs = [PoolJob(str(n), "a", seconds={"cpu": 1.0 + n % 3}) for n in range(20)]
    planner = RackPlanner("ncjm", make_planner("ncjm", {}), rack=1)

    plan, left = planner.plan(jobs, nodes, Commitments(), order=100)

    assert left == []
    assert sorted(entry.order for entry in plan.entries) == [*range(100, 120)]


# -------------------------------------------------------------------- the command


def test_the_command_as_text_and_as_json(tmp_path: Path) -> None:
    path = tmp_path / "batch.json"
    path.write_text(json.dumps(a_batch(losses=[{"host": "n1", "at": 2.0}])))

    text = CliRunner().invoke(command, [str(path)], catch_exceptions=False)
    raw = CliRunner().invoke(command, [str(path), "--json"], catch_exceptions=False)

    assert "makespan" in text.output
    assert "placed again after a loss" in text.output
    result = json.loads(raw.output)
    assert result["format"] == "hetsim/plan-1"
    assert result["makespan"] == max(job["finish"] for job in result["jobs"])


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"losses": [{"host": "x", "at": 1}]}, r'losses\[0\].host: no host "x"'),
        (
            {"losses": [{"host": "n0", "at": 3, "back": 2}]},
            r"losses\[0\].back: not after",
        ),
        ({"promised": [{"responder": "n0", "finish": 1, "rate": 1}]}, "promised: "),
    ],
)
def test_documents_that_make_no_sense(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ran(a_batch(**keys))


def test_sources_that_are_not_there() -> None:
    unknown, inner = a_batch(), a_batch()
    unknown["jobs"][3]["also_at"] = ["gw", "gw9"]
    inner["jobs"][2].update(source="n0", requester=None)

    with pytest.raises(InputError, match=r'jobs\[3\].also_at: no requester "gw9"'):
        ran(unknown)
    with pytest.raises(InputError, match=r"jobs\[2\].source: hetsim pool knows"):
        ran(inner)


@pytest.mark.parametrize(
    "keys",
    [{"share": 0.0}, {"share": 1.5}, {"error": 1.0}, {"window": -1.0}, {"rack": -1}],
)
def test_settings_that_make_no_sense(keys: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(keys))):
        ran(a_batch(), **keys)


def test_an_empty_batch_ends_at_once() -> None:
    result = ran(a_batch(0))

    assert (result.makespan, result.plans) == (0.0, 0)
    assert math.isfinite(result.lower_bound)
