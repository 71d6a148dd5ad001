"""Wrong options of `hetsim paper` are refused before the runs, which take minutes."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest
from click.testing import CliRunner

import hetpapers.command
from libtask.errors import InputError


def _no_run(seeds: int) -> NoReturn:
    raise AssertionError(f"began to run, with {seeds} seeds")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--plot", "/dev/null/figures"], "/dev/null/figures: Not a directory"),
        (["--delay", "0.5"], "--delay: only with --live"),
    ],
)
def test_refused_before_the_runs(
    options: list[str], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper = hetpapers.figures_of("banerjee")
    recipes = {
        name: replace(each, make=_no_run) for name, each in paper.recipes.items()
    }
    monkeypatch.setattr(
        hetpapers.command, "figures_of", lambda _: replace(paper, recipes=recipes)
    )

    done = CliRunner().invoke(hetpapers.command.command, ["banerjee", *options])

    assert isinstance(done.exception, InputError)
    assert str(done.exception) == error
