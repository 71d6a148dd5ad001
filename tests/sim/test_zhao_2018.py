"""The re-made figures of zhao-2018: workloads, runs, sums, pictures; small and quick."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hetpapers import figures_of
from hetpapers.figures import Figure
from hetpapers.zhao_2018 import icc
from hetpapers.zhao_2018 import tpds_runs as runs
from hetpapers.zhao_2018.drawings import lines
from hetpapers.zhao_2018.stream import throughput
from hetpapers.zhao_2018.study import improvement, over_seeds, summed_up
from hetpapers.zhao_2018.workload import ICC, Workload, draw, misjudged, mixed
from hetsched.planning.batch.planners import ComputationIntensive

if TYPE_CHECKING:
    from pathlib import Path

    from hetpapers.zhao_2018.workload import Case

SMALL = Workload(jobs=60, responders=4, each=2, requesters=10)
SMALL_ICC = replace(ICC, jobs=60, responders=6)


def test_workloads_are_drawn_as_described() -> None:
    problem = draw(SMALL, 3)
    again = draw(SMALL, 3)
    ratio = problem.seconds / problem.sizes[:, None]

    assert (problem.seconds == again.seconds).all()
    assert ratio.min() >= 0.8e-3
    assert ratio.max() <= 1.2e-3
    assert len(np.unique(ratio.round(12), axis=0)) == 60
    assert np.bincount(problem.requesters).tolist() == [6] * 10
    by_machine = draw(replace(SMALL, per="machine"), 3)
    factors = by_machine.seconds / by_machine.sizes[:, None]
    assert len(np.unique(factors.round(12), axis=0)) == 1
    dealt = draw(replace(SMALL, dealt="random"), 3)
    assert np.bincount(dealt.requesters, minlength=10).max() > 6


@pytest.mark.parametrize("case", ["computation", "network", "both"])
def test_no_plan_is_below_the_bound_and_ours_is_not_longer(case: Case) -> None:
    sample = runs.makespans(replace(SMALL, case=case), 1)

    assert all(value >= sample["bound"] * (1 - 1e-9) for value in sample.values())
    assert sample["ours"] <= sample["paper"] * (1 + 1e-6)
    assert sample["ours"] <= sample["sjf"] * (1 + 1e-6)


def test_the_better_plans_of_the_first_paper_are_in_its_order() -> None:
    found = [icc.measure(SMALL_ICC, seed) for seed in range(3)]
    mean = summed_up(found)

    assert mean["bound"] <= mean["ours"] < mean["paper"] < mean["mmi"] < mean["sct"]


def test_without_an_error_nothing_changes() -> None:
    problem = draw(SMALL, 0)

    assert (misjudged(problem, 0.0, 0).seconds == problem.seconds).all()
    plain = runs.makespans(replace(SMALL, case="computation"), 0)
    same = runs.misjudged_makespans((replace(SMALL, case="computation"), 0.0), 0)
    wrong = runs.misjudged_makespans((replace(SMALL, case="computation"), 0.5), 0)
    assert same["ours"] == pytest.approx(plain["ours"])
    assert wrong["ours"] > same["ours"]


def test_slow_streams_complete_what_arrives_and_fast_ones_what_they_can() -> None:
    batches = [draw(replace(SMALL, case="computation"), number) for number in range(5)]
    planner = ComputationIntensive()

    rates = [throughput(planner, batches, interval) for interval in (20.0, 1.0, 0.0)]

    assert rates[0] == pytest.approx(60 / 20, rel=0.4)
    assert rates[0] < rates[1] <= rates[2] * 1.05


def test_mixtures_have_both_types_and_waves_are_not_longer_than_sjf() -> None:
    problem = mixed(SMALL, 0.25, 0)
    computing = problem.sizes == 0

    assert computing.sum() == 15
    assert (problem.seconds[~computing] == 0).all()
    sample = runs.mixtures((SMALL, 0.5), 0)
    assert sample["multi-wave"] <= sample["sjf"] * (1 + 1e-9)


def test_groups_finish_small_jobs_sooner() -> None:
    network = replace(SMALL, case="network")
    one, four = runs.groups((network, 1.0), 0), runs.groups((network, 4.0), 0)

    assert four["ours: average"] < one["ours: average"]
    assert four["ours: makespan"] >= one["ours: makespan"] * (1 - 1e-9)


def test_sums_have_intervals() -> None:
    row = summed_up([{"a": 1.0}, {"a": 2.0}, {"a": 3.0}])

    assert row["a"] == 2.0
    assert row["a ±"] == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert over_seeds(lambda point, seed: {"v": point + seed}, [10, 20], 2) == [
        [{"v": 10}, {"v": 11}],
        [{"v": 20}, {"v": 21}],
    ]
    assert improvement(3.0, 4.0) == 25.0


@pytest.mark.parametrize("paper", ["zhao-2018-icc", "zhao-2018-tpds"])
def test_the_catalogues_have_the_papers_figures(paper: str) -> None:
    ids = list(figures_of(paper).recipes)

    last = 5 if paper == "zhao-2018-icc" else 9
    assert ids[0].rstrip("abc") == "fig2"
    assert ids[-1] == f"fig{last}"


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [{"case": c, "n": n, "a": 1.0 * n, "a ±": 0.1} for c in "xy" for n in (1, 2)]
    path = tmp_path / "picture.png"

    lines("n", "seconds", split="case")(Figure("f", rows), path)

    assert path.read_bytes().startswith(b"\x89PNG")
