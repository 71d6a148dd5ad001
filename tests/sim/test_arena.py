"""`hetsim arena`: what is drawn, that a seed makes it again, and how it is summed up."""

from __future__ import annotations

import json
from collections import Counter
from statistics import mean
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from hetsim.arena.contest import Contest, Entrant, Errors, Score, hold
from hetsim.arena.generator import draw, read_generator
from hetsim.arena.losses import draw_again, first_difference
from hetsim.arena.standing import Loss, Standing, standings_of
from hetsim.commands.arena import command
from hetsim.scenario import decode_scenario
from hetsim.simulate import simulate
from libtask.errors import InputError
from scenario_builders import a_node, a_scenario, a_type, run_trace

if TYPE_CHECKING:
    from pathlib import Path

GENERATOR = read_generator()


def arena(*arguments: str) -> Any:
    done = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    return json.loads(done.stdout)


def test_a_seed_always_makes_the_same_scenario() -> None:
    assert draw(7, GENERATOR) == draw(7, GENERATOR)
    assert draw(7, GENERATOR) != draw(8, GENERATOR)


def test_what_is_drawn_is_valid_and_within_the_parameters() -> None:
    drawn = [draw(seed, GENERATOR) for seed in range(200)]

    for one in drawn:
        scenario = one.scenario
        assert decode_scenario(msgspec.json.encode(scenario)) == scenario
        assert 2 <= len(scenario.resources) <= 4
        assert 3 <= len(scenario.tasks) <= 80
        assert all(1 <= each.slots <= 4 for each in scenario.resources)
        assert all(1 <= kind.strips <= 400 for kind in scenario.types)
        # every type can run somewhere
        assert all(any(kind.seconds.values()) for kind in scenario.types)
        arrivals = [task.arrival or 0.0 for task in scenario.tasks]
        assert arrivals == sorted(arrivals)
    assert set(Counter(one.arrivals for one in drawn)) == set(GENERATOR.arrivals)
    assert set(Counter(one.matrix for one in drawn)) == set(GENERATOR.matrices)
    assert all(
        not any(task.arrival for task in one.scenario.tasks)
        for one in drawn
        if one.arrivals == "static"
    )


def test_one_scenario_of_many_is_made_again_by_its_own_seed() -> None:
    many = arena("--scenarios", "6", "--seed", "40", "--policies", "migration")
    one = arena("--scenarios", "1", "--seed", "43", "--policies", "migration")

    assert one["contests"] == [many["contests"][3]]
    assert [c["seed"] for c in many["contests"]] == [40, 41, 42, 43, 44, 45]


def test_parameters_come_from_a_file_that_holds_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('tasks = [3, 4]\narrivals = ["static"]\n', encoding="utf-8")

    generator = read_generator(path)

    assert generator == msgspec.structs.replace(
        GENERATOR, tasks=(3, 4), arrivals=["static"]
    )
    assert len(draw(1, generator).scenario.tasks) in {3, 4}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tasks = [9, 3]", "tasks: 9 is above 3"),
        ('tasks = "few"', 'tasks: expected a list, got "few"'),
        ("resources = [2, 9]", "resources: at most 4"),
        ('format = "other-1"', 'format: expected "hetsim/generator-1", got "other-1"'),
        ("tasks = [", "Invalid value"),
        ("seconds = [1.0, inf]", "seconds[1]: expected a number <= 1000000.0, got"),
        ("ratio = [1.0, 1e308]", "ratio[1]: expected a number"),
        ("span = [nan, 1.0]", "span[0]: expected a number >= 0.001, got NaN"),
        ("slots = [1, 4611686018427387904]", "slots[1]: expected a"),
        ("seconds = [1e-300, 1.0]", "seconds[0]: "),
    ],
)
def test_a_bad_file_is_complained_of(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read_generator(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert complaint in str(caught.value)


def test_parameters_reach_the_policy_that_they_are_for() -> None:
    def makespans(*settings: str) -> list[dict[str, float]]:
        options = ("--scenarios", "4", "--seed", "20", *settings)
        contests = arena(*options)["contests"]
        return [
            {name: score["makespan"] for name, score in c["scores"].items()}
            for c in contests
        ]

    plain = makespans()
    still = makespans("--set", "migration.minimum_remaining_s=1e9")

    # without moves `migration` is `work-conserving`
    assert all(one["migration"] == one["work-conserving"] for one in still)
    assert plain != still
    assert [one["finish-time"] for one in plain] == [
        one["finish-time"] for one in still
    ]


def test_a_setting_for_a_policy_that_takes_no_part_is_complained_of() -> None:
    with pytest.raises(InputError, match=r'expected POLICY\.KEY=VALUE, got "mm\.x=1"'):
        arena("--set", "mm.x=1")


def test_contests_are_summed_up() -> None:
    def contest(seed: int, **makespans: float) -> Contest:
        scores = {name: Score(at, 0.5, 2, 0) for name, at in makespans.items()}
        return Contest(seed, "static", "alike", 2, 9, 10.0, scores)

    contests = [
        contest(1, affinity=20.0, mine=10.0),
        contest(2, affinity=12.0, mine=16.0),
        contest(3, affinity=15.0, mine=15.1),
    ]

    mine = standings_of(contests, 1)[1]

    assert mine == Standing(
        policy="mine",
        speed_up=(2.0 + 0.75 + 15 / 15.1) / 3,
        beside={"affinity": (2.0 + 0.75 + 15 / 15.1) / 3},
        over_bound=(1.0 + 1.6 + 15.1 / 10) / 3,
        most_over_bound=1.6,
        clearly_lost=1,
        worst=[Loss(2, 0.75, "affinity")],
        moves=0.5,
        most_moves=2,
        unfinished=0,
    )


def test_wrong_times_and_unequal_strips_make_one_move_more_at_most() -> None:
    def moves(errors: Errors) -> tuple[float, int]:
        """Return the moves per task, and those of the task with most."""
        scores = [
            hold(seed, GENERATOR, [Entrant("finish-time")], errors).scores[
                "finish-time"
            ]
            for seed in (7, 9, 10)
        ]
        return mean(s.moves for s in scores), max(s.most_moves for s in scores)

    exact, most_exact = moves(Errors())
    wrong, most = moves(Errors(noise=0.3, correct=True, strip_variation=1.0))

    assert wrong <= exact + 1.0
    assert max(most, most_exact) <= 6
    assert most > 0


def test_the_worst_are_saved_and_a_picture_is_drawn(tmp_path: Path) -> None:
    folder, picture = tmp_path / "worst", tmp_path / "arena.png"
    options = ["--scenarios", "6", "--worst", "1", "--policies", "finish-time"]

    result = arena(*options, "--save", str(folder), "--plot", str(picture))

    seeds = {loss["seed"] for s in result["standings"] for loss in s["worst"]}
    assert {path.name for path in folder.iterdir()} == {
        f"arena-{seed}.json" for seed in seeds
    }
    for seed in seeds:
        text = (folder / f"arena-{seed}.json").read_bytes()
        assert decode_scenario(text) == draw(seed, GENERATOR).scenario
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("seed", range(20))
def test_what_arrives_after_an_instant_is_drawn_again(seed: int) -> None:
    drawn = draw(seed, GENERATOR)
    tasks = drawn.scenario.tasks
    after = tasks[len(tasks) // 2].arrival or 0.0

    again = draw_again(drawn, after, 1)

    assert again == draw_again(drawn, after, 1)
    assert decode_scenario(msgspec.json.encode(again)) == again
    known = [task for task in tasks if (task.arrival or 0.0) <= after]
    assert again.tasks[: len(known)] == known
    assert len(again.tasks) == len(tasks)
    arrivals = [task.arrival or 0.0 for task in again.tasks]
    assert arrivals == sorted(arrivals)
    if drawn.arrivals in ("even", "static"):
        assert arrivals == [task.arrival or 0.0 for task in tasks]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("absent/x.png", "no such folder"), ("x.xyz", r"ends in \.png, \.svg, \.pdf")],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(
    tmp_path: Path, name: str, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        arena("--scenarios", "1000000", "--plot", f"{tmp_path}/{name}")


def test_schedules_differ_from_the_first_start_or_stop_on() -> None:
    types = [a_type("g", cpu=15, gpu0=10), a_type("c", cpu=20)]
    tasks = [("c1", "c", 0), ("g1", "g", 0), ("g2", "g", 0)]
    scenario = a_scenario(a_node("cpu", "gpu0"), types, tasks)
    waits, moves = (simulate(scenario, name) for name in ("affinity", "migration"))

    # g2 waits for the GPU until 10 s under both
    assert first_difference(waits, waits) == waits.makespan
    assert run_trace(scenario, "affinity") == run_trace(scenario, "migration")
    assert first_difference(waits, moves) == waits.makespan

    alone = a_scenario(a_node("cpu", "gpu0"), types, tasks[1:])
    waits, moves = (simulate(alone, name) for name in ("affinity", "migration"))
    assert first_difference(waits, moves) == 0.0


def test_losses_are_explained_by_what_could_have_arrived() -> None:
    options = ("--policies", "migration", "--scenarios", "8", "--seed", "20")

    result = arena(*options, "--explain", "affinity", "--continuations", "3")

    losses = {
        contest["seed"]: contest["scores"]["migration"]["makespan"]
        / contest["scores"]["affinity"]["makespan"]
        for contest in result["contests"]
    }
    explained = result["explanations"]
    assert {one["loss"]["seed"]: one["loss"]["ratio"] for one in explained} == {
        seed: ratio for seed, ratio in losses.items() if ratio < 0.99
    }
    assert any(one["to_come"] for one in explained)
    for one in explained:
        assert one["loss"]["best"] == "migration"
        assert 0 <= one["least_lost"] <= one["lost"] <= 1
        if not one["to_come"]:
            assert (one["mean_ratio"], one["lost"]) == (one["loss"]["ratio"], 1.0)


def test_only_losses_of_those_who_take_part_are_explained() -> None:
    for options, complaint in (
        (("--explain", "sjf"), "takes no part"),
        (("--explain", "affinity", "--noise", "0.3"), "times must be right"),
    ):
        with pytest.raises(InputError, match=complaint):
            arena("--scenarios", "1", "--policies", "migration", *options)
