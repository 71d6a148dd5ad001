"""The study of Banerjee et al.: its testbed, its jobs and its figures, with few draws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hetpapers.banerjee.acceptance import NODE, RACK
from hetpapers.banerjee.gradient import (
    CounterNetwork,
    a_network,
    batch_by_propagation,
    batch_by_sampling,
    draw_readings,
    fit,
    gradient_by_propagation,
    gradient_by_sampling,
)
from hetpapers.banerjee.kernels import figure_six
from hetpapers.banerjee.learning import figure_seven
from hetpapers.banerjee.runs import Contender, completion_of, ratio_of, run_contenders
from hetpapers.banerjee.testbed import Setting, make_scenario
from hetpapers.banerjee.workload import KERNELS
from hetsim.scenario import read_scenario
from hetsim.simulate import simulate


@pytest.mark.parametrize(
    ("setting", "resources", "slots", "shared"), [(RACK, 22, 34, 56), (NODE, 5, 7, 9)]
)
def test_the_testbed_is_that_of_the_model(
    setting: Setting, resources: int, slots: int, shared: int
) -> None:
    scenario = make_scenario(setting, 0)

    assert len(scenario.resources) == resources
    assert sum(each.slots for each in scenario.resources) == slots
    assert len(scenario.shared) == shared
    assert len({task.job for task in scenario.tasks}) == setting.jobs


def test_a_draw_depends_on_its_seed_alone() -> None:
    assert make_scenario(RACK, 7) == make_scenario(RACK, 7)
    assert make_scenario(RACK, 7) != make_scenario(RACK, 8)


def test_every_kernel_has_a_type_of_its_own_size() -> None:
    names = {kind.name for kind in make_scenario(RACK, 0).types}

    assert names >= set(KERNELS)


def test_a_ratio_comes_with_its_interval() -> None:
    found = ratio_of([1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0])

    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_contention_aware_is_ahead_of_the_baselines() -> None:
    policies = ("contention-aware", "heft", "paragon", "sparrow")

    times = run_contenders([Contender(policy, RACK) for policy in policies], 2)

    means = [sum(found) for found in times.values()]
    assert means[0] == min(means)
    assert means[-1] == max(means)


def test_knowing_nothing_of_others_costs_time() -> None:
    usual, blind = (
        sum(
            completion_of((Contender("contention-aware", setting), seed))
            for seed in range(4)
        )
        for setting in (RACK, Setting(counters="none"))
    )

    assert usual < blind


def test_an_unknown_figure_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hetsim", "paper", "banerjee", "--figure", "fig99"],
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == 2
    assert (
        "no figure 'fig99'; there are: acceptance, fig5, fig6, fig7, fig8"
        in done.stderr
    )
    assert not done.stdout


@pytest.mark.parametrize("policy", ["contention-aware", "lookahead", "heft"])
def test_the_example_of_a_job_graph_runs(policy: str) -> None:
    example = Path(__file__).parents[2] / "docs/examples/job-graph.json"

    result = simulate(read_scenario(example), policy, seed=1)

    assert result.counts["completed"] == 8
    assert result.jobs
    assert all(job.slowdown is not None for job in result.jobs)


@pytest.mark.parametrize("parents", [2, 3])
def test_both_gradients_agree(parents: int) -> None:
    network = a_network(parents)

    propagated = gradient_by_propagation(network, 48)
    sampled = gradient_by_sampling(network, 200_000, np.random.default_rng(5))

    assert propagated == pytest.approx(sampled, rel=0.03)


def test_the_gradient_is_that_of_a_difference_quotient() -> None:
    """With certain counters P(level) is a normal density around the known utilisation."""
    sure = CounterNetwork((0.6, 0.8), (1e-6, 1e-6))

    def surprise(theta: float) -> float:
        return 0.5 * float((sure.level - 0.7**theta) / 0.1) ** 2

    quotient = (surprise(sure.theta + 1e-5) - surprise(sure.theta - 1e-5)) / 2e-5

    assert gradient_by_propagation(sure, 16) == pytest.approx(quotient, rel=1e-3)


@pytest.mark.parametrize("parents", [2, 3])
def test_gradients_of_many_readings_agree(
    parents: int,
) -> None:
    readings = draw_readings(parents, 8, 1.4, seed=1)
    generator = np.random.default_rng(4)

    propagated = batch_by_propagation(readings, 1.1, 24)
    sampled = np.mean([batch_by_sampling(readings, 1.1, generator) for _ in range(200)])

    assert propagated == pytest.approx(float(sampled), rel=0.05)


def test_a_fit_finds_the_power_of_the_readings() -> None:
    readings = draw_readings(2, 256, 1.4, seed=2)

    power, updates = fit(lambda theta: batch_by_propagation(readings, theta, 16))

    assert power == pytest.approx(1.4, rel=0.05)
    assert updates < 100


def test_kernels_are_compared_with_the_schedule_of_a_job_alone() -> None:
    figure = figure_six(1)

    assert [row["policy"] for row in figure.rows][:2] == ["learned", "contention-aware"]
    for row in figure.rows:
        shares = [row[key] for key in row if key not in ("policy", "mean loss")]
        assert sum(shares) == pytest.approx(1.0)


def test_sample_efficiency_is_read_from_the_weights() -> None:
    figure = figure_seven(1)

    assert {row["network"] for row in figure.rows} == {
        "all parts",
        "without the belief",
    }
    best = {row["network"]: row["best so far"] for row in figure.rows}
    assert best["all parts"] < best["without the belief"]


def test_without_the_filter_decisions_differ() -> None:
    filtered, last = (
        sum(
            completion_of((Contender("contention-aware", Setting(counters=name)), seed))
            for seed in range(2)
        )
        for name in ("poor", "poor, last")
    )

    assert filtered != last
