"""Kills at random moments and at every named step: nothing is lost, doubled, left."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hetd
import libtask
from hettorture.kills import besiege, kill_crews, kill_daemons
from hettorture.points import walk_all
from libtask.faultpoints import POINTS

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
def test_random_kills_of_the_daemon_lose_nothing(seed: int) -> None:
    run = besiege(seed, lambda siege: kill_daemons(siege, 34))

    assert run.complaints == []
    assert run.kills["daemon"] >= 34
    assert run.in_flight > 0, "no kill met a request"
    assert run.states["completed"] > 0


@pytest.mark.timeout(300)
def test_random_kills_of_workers_and_launchers_lose_nothing() -> None:
    run = besiege(3, lambda siege: kill_crews(siege, 50))

    assert run.complaints == []
    assert sum(run.kills.values()) == 50
    assert run.states["completed"] > 0


@pytest.mark.timeout(900)
def test_a_kill_at_every_fault_point_loses_nothing() -> None:
    run, reached = walk_all(2)

    assert run.complaints == []
    assert reached == sorted(POINTS)


def test_every_fault_point_is_one_place_in_the_code() -> None:
    reached = sorted(_reached())

    assert reached == sorted(POINTS)
    assert len(reached) >= 40


def _reached() -> Iterator[str]:
    for package in (hetd, libtask):
        for file in Path(str(package.__file__)).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(ast.Name("reach"), [ast.Constant(str(point))]):
                        yield point
                    case _:
                        pass


def test_the_documentation_lists_every_fault_point() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", DOCS.read_text(), re.MULTILINE)

    assert dict(rows) == POINTS
