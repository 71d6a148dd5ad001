"""Training of `learned`: reproducible, resumable, and what a command refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from hetsched.planning.learned.weights import Weights, decode_weights
from hetsim.__main__ import cli
from hetsim.learning.batch import DecisionBatch, RecordedStep
from hetsim.learning.episodes import EpisodeOrder, run_episode
from hetsim.learning.family import check_family, family_of
from hetsim.learning.training import TrainingRecipe, begin
from hetsim.learning.training import _generalised as generalised
from hetsim.scenario import check_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

TINY = ("--episodes", "1", "--held-out", "1")


def a_family() -> dict[str, Any]:
    """Return a family of two processors that share a memory; chains of two kernels."""
    uses = {"memory": "mem0"}
    return {
        "format": "hetsim/family-1",
        "resources": [
            {"name": "cpu", "kind": "cpu", "slots": 2, "uses": uses},
            {"name": "gpu0", "kind": "gpu", "uses": uses},
        ],
        "shared": [{"name": "mem0", "kind": "memory"}],
        "types": [
            {
                "name": name,
                "seconds": {"cpu": cpu, "gpu0": gpu},
                "load": {"cpu": {"mem0": 0.6}, "gpu0": {"mem0": 0.2}},
                "bound": {"cpu": {"mem0": 0.7}, "gpu0": {"mem0": 0.1}},
                "strips": 4,
            }
            for name, cpu, gpu in (("align", 4.0, 2.0), ("sort", 2.0, 3.0))
        ],
        "background": {"mean_s": 10.0},
        "counters": {"every_s": 2.0},
        "templates": [
            {"tasks": [{"type": "align"}, {"type": "sort", "after": [0]}]},
        ],
        "jobs": [1, 2],
        "every_s": 1.0,
    }


@pytest.fixture
def family(tmp_path: Path) -> Path:
    path = tmp_path / "family.json"
    path.write_text(json.dumps(a_family()))
    return path


def train(family: Path, output: Path, *options: str) -> Result:
    arguments = ["train", str(family), "-o", str(output), *TINY, *options]
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def test_the_same_command_gives_the_same_bytes(family: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert train(family, tmp_path / name, "--updates", "2").exit_code == 0

    first = (tmp_path / "a").read_bytes()

    assert first == (tmp_path / "b").read_bytes()
    assert train(family, tmp_path / "c", "--updates", "2", "--seed", "2").exit_code == 0
    assert first != (tmp_path / "c").read_bytes()


def test_a_resumed_training_gives_what_one_without_a_stop_gives(
    family: Path, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"

    train(family, whole, "--updates", "12")
    train(family, parts, "--updates", "7")
    train(family, parts, "--updates", "12", "--resume")

    assert whole.read_bytes() == parts.read_bytes()


def test_a_file_says_how_it_was_trained(family: Path, tmp_path: Path) -> None:
    done = train(
        family, tmp_path / "w", "--updates", "1", "--without", "graph", "--json"
    )

    weights = decode_weights((tmp_path / "w").read_bytes())
    result = json.loads(done.stdout.splitlines()[-1])

    assert not weights.variant.graph
    assert weights.trained["updates"] == 1
    assert set(result["held_out"]) == {"learned", "contention-aware", "paragon"}
    assert weights.trained["held_out"] == result["held_out"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": "x"}, 'format: expected "hetsim/family-1"'),
        ({"templates": []}, "templates"),
        ({"jobs": [3, 1]}, "jobs: the least number is greater"),
        ({"templates": [{"tasks": [{"type": "no"}]}]}, 'there is no type "no"'),
        (
            {"templates": [{"tasks": [{"type": "align", "after": [0]}]}]},
            "templates[0].tasks[0].after: expected numbers of earlier tasks",
        ),
        ({"jobs": [1, 2000]}, "more than 2000 tasks"),
        (
            {"templates": [{"tasks": [{"type": "sort"}], "weight": 0}]},
            "all weights are 0",
        ),
    ],
)
def test_a_bad_family_is_refused_with_its_place(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(a_family() | change))

    done = train(path, tmp_path / "w")

    assert complaint in str(done.exception)
    assert str(path) in str(done.exception)


@pytest.mark.parametrize("options", [("--seed", "5"), ("--method", "a2c")])
def test_a_training_with_other_options_is_not_resumed(
    family: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    train(family, tmp_path / "w", "--updates", "1")

    done = train(family, tmp_path / "w", "--updates", "2", "--resume", *options)

    assert "other options" in str(done.exception)


def test_a_damaged_state_is_not_resumed(family: Path, tmp_path: Path) -> None:
    train(family, tmp_path / "w", "--updates", "1")
    state = tmp_path / "w.state"
    state.write_bytes(state.read_bytes()[:-1000])

    done = train(family, tmp_path / "w", "--updates", "2", "--resume")

    assert "damaged" in str(done.exception)


def test_a_recorded_run_is_a_family(tmp_path: Path) -> None:
    raw = {
        "format": "hetsim/scenario-1",
        "resources": [{"name": "cpu", "slots": 2}],
        "types": [{"name": "heat/4", "seconds": {"cpu": 2.0}}],
        "tasks": [
            {"id": 2, "type": "heat/4", "arrival": 4.0, "after": [1], "job": "a"},
            {"id": 1, "type": "heat/4", "job": "a"},
            {"id": 3, "type": "heat/4", "arrival": 8.0},
        ],
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(raw))

    drawn = family_of(check_scenario(raw)).draws
    done = train(path, tmp_path / "w", "--updates", "1")

    assert done.exit_code == 0, done.exception
    assert [[task.after for task in t.tasks] for t in drawn.templates] == [
        [[], [0]],
        [[]],
    ]
    assert drawn.every_s == 8.0


def test_rewards_add_up_to_the_slowdowns_of_the_jobs() -> None:
    """Up to the first decision's delay: it is taken when the first job arrives."""
    recipe = TrainingRecipe()
    weights = Weights(begin(recipe).arrays)
    family = check_family(a_family() | {"jobs": [1, 1]})

    episode = run_episode(family, weights, EpisodeOrder("x"))

    assert -10.0 * sum(episode.rewards) == pytest.approx(episode.slowdown)
    assert len(episode.rewards) == len(episode.steps)


def test_an_episode_depends_on_its_order_alone() -> None:
    weights = Weights(begin(TrainingRecipe()).arrays)
    family = check_family(a_family())

    first, second = (
        run_episode(family, weights, EpisodeOrder("7", 0.5)) for _ in range(2)
    )

    assert [step.choice for step in first.steps] == [s.choice for s in second.steps]
    assert first.rewards == second.rewards


def test_imitation_of_the_rule_alone_takes_its_choices() -> None:
    weights = Weights(begin(TrainingRecipe()).arrays)
    family = check_family(a_family())

    episode = run_episode(family, weights, EpisodeOrder("3", 1.0))

    assert all(step.choice == step.seen.rule for step in episode.steps)


def test_advantages_sum_later_differences() -> None:
    found = generalised(np.array([1.0, 2.0]), np.array([0.5, 0.25, 0.0]))

    assert found == pytest.approx([0.75 + 0.95 * 1.75, 1.75])


def test_a_batch_orders_decisions_by_their_number_then_by_length() -> None:
    weights = Weights(begin(TrainingRecipe()).arrays)
    family = check_family(a_family())
    episodes: list[list[RecordedStep]] = [
        run_episode(family, weights, EpisodeOrder(str(number))).steps
        for number in range(3)
    ]

    batch = DecisionBatch(episodes)

    assert len(batch.order) == sum(map(len, episodes)) == batch.count
    assert batch.widths == sorted(batch.widths, reverse=True)
    assert [t for _, t in batch.order] == sorted(t for _, t in batch.order)
