"""Options of `hetsim paper`: wrong ones are refused before the runs, which take minutes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pytest
from click.testing import CliRunner

import hetpapers.command
from hetpapers.figures import Catalogue, Figure, Recipe
from hetsim.__main__ import cli
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def _no_run(seeds: int) -> NoReturn:
    raise AssertionError(f"began to run, with {seeds} seeds")


@pytest.fixture
def no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = hetpapers.figures_of("banerjee")
    recipes = {
        name: replace(each, make=_no_run) for name, each in paper.recipes.items()
    }
    monkeypatch.setattr(
        hetpapers.command, "figures_of", lambda _: replace(paper, recipes=recipes)
    )


@pytest.mark.usefixtures("no_runs")
@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--plot", "/dev/null/figures"], "/dev/null/figures: Not a directory"),
        (["--delay", "0.5"], "--delay: only with --live"),
        (["--scale", "20"], "--scale: only with --live"),
    ],
)
def test_refused_before_the_runs(options: list[str], error: str) -> None:
    done = CliRunner().invoke(hetpapers.command.command, ["banerjee", *options])

    assert isinstance(done.exception, InputError)
    assert str(done.exception) == error


def test_pictures_that_cannot_be_drawn_are_refused_before_the_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hetsim.pictures.find_spec", lambda _: None)

    for command in (
        ["paper", "loesch-2016", "--plot", str(tmp_path / "figures")],
        ["arena", "--scenarios", "1", "--plot", str(tmp_path / "arena.png")],
    ):
        done = CliRunner().invoke(cli, command)
        assert isinstance(done.exception, InputError)
        assert str(done.exception).startswith("--plot: pictures need matplotlib: ")
    assert not list(tmp_path.iterdir())


def _interrupted(seeds: int) -> NoReturn:
    raise KeyboardInterrupt


def test_a_figure_is_shown_as_soon_as_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Figure("first", [{"jobs": 200}], title="made before the interruption")
    paper = Catalogue(
        {"first": Recipe(lambda _: first), "second": Recipe(_interrupted)}, seeds=1
    )
    monkeypatch.setattr(hetpapers.command, "figures_of", lambda _: paper)

    done = CliRunner().invoke(hetpapers.command.command, ["banerjee"])

    assert "made before the interruption" in done.output
