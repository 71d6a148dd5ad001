"""`learned` and `hetsim train` as a user meets them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hetpapers.banerjee.testbed import Setting, make_family, make_scenario
from hetsim.documents import decode_json
from hetsim.scenario import read_scenario
from hetsim.simulate import simulate

EXAMPLES = Path(__file__).parents[2] / "docs/examples"


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("half-rack", Setting("half-rack")),
        ("node", Setting("node", jobs=6, every_s=22.0)),
    ],
)
def test_the_example_families_are_those_of_the_study(
    name: str, setting: Setting
) -> None:
    text = (EXAMPLES / f"family-{name}.json").read_bytes()

    assert decode_json(text) == decode_json(msgspec.json.encode(make_family(setting)))


def test_the_same_seed_gives_the_same_schedule() -> None:
    scenario = make_scenario(Setting("half-rack"), 7)

    first, second = (simulate(scenario, "learned", seed=7).tasks for _ in range(2))

    assert first == second


def test_it_runs_jobs_that_it_was_not_trained_with() -> None:
    result = simulate(read_scenario(EXAMPLES / "job-graph.json"), "learned", seed=1)

    assert result.counts["completed"] == 8


def test_it_runs_where_nothing_is_shared_and_no_task_has_a_job() -> None:
    result = simulate(read_scenario(EXAMPLES / "scenario.json"), "learned")

    assert set(result.counts) >= {"completed"}
    assert result.counts["failed"] == 0


def hetsim(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hetsim", *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
    )


def test_a_trained_file_is_used_and_a_damaged_one_refused(tmp_path: Path) -> None:
    weights = tmp_path / "w.npz"
    trace = EXAMPLES / "job-graph.json"
    options = ("--updates", "1", "--episodes", "1", "--held-out", "1")

    trained = hetsim("train", trace, "-o", weights, *options)
    ran = hetsim(
        "run", trace, "--policy", "learned", "--set", f"weights={weights}", "--json"
    )
    weights.write_bytes(weights.read_bytes()[:-3000])
    refused = hetsim("run", trace, "--policy", "learned", "--set", f"weights={weights}")

    assert trained.returncode == 0, trained.stderr
    assert ran.returncode == 0, ran.stderr
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"{weights}: no weights, or damaged: ")
    assert len(refused.stderr.splitlines()) == 1
