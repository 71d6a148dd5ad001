"""Kills at random moments and at every named step: nothing is lost, doubled, left."""

from __future__ import annotations

import ast
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hetd
import libtask
from libtask import messages as m
from libtask.client.session import Session
from libtask.faultpoints import POINTS
from torture import calls
from torture.deployment import PATIENCE, Deployment, NotInTimeError, eventually
from torture.history import name_of
from torture.kills import LoadTest, kill_daemons, kill_workers, run_under_load
from torture.load import DEAF, all_tasks, described
from torture.moves import move_tasks
from torture.points import hits, walk_all

if TYPE_CHECKING:
    from collections.abc import Iterator

MOVES = 50
"""Of running tasks, from resource to resource."""
DOCS = Path(__file__).parents[2] / "docs" / "reliability.md"
KILLS = 100
"""Of a run at random moments; some more, where one meets a daemon that recovers."""


@pytest.mark.timeout(300)
def test_random_kills_of_the_daemon_lose_nothing(tmp_path: Path) -> None:
    run = run_under_load(0, lambda test: kill_daemons(test, KILLS), tmp_path)

    assert run.complaints == [], run.failure_report()
    assert run.kills["daemon"] >= KILLS
    assert run.in_flight > 0, "no kill met a request"
    assert run.states["completed"] > 0


@pytest.mark.timeout(300)
def test_random_kills_of_workers_and_launchers_lose_nothing(
    tmp_path: Path,
) -> None:
    run = run_under_load(3, lambda test: kill_workers(test, KILLS), tmp_path)

    assert run.complaints == [], run.failure_report()
    assert sum(run.kills.values()) == KILLS
    assert run.states["completed"] > 0


@pytest.mark.timeout(300)
def test_random_moves_change_no_result(tmp_path: Path) -> None:
    run = run_under_load(4, lambda test: move_tasks(test, MOVES), tmp_path)

    assert run.complaints == [], run.failure_report()
    assert run.moves >= MOVES


@pytest.mark.timeout(900)
def test_a_kill_at_every_fault_point_loses_nothing(tmp_path: Path) -> None:
    run, reached = walk_all(hits(POINTS, 2), tmp_path)

    assert run.complaints == [], run.failure_report()
    assert reached == sorted(POINTS)


def test_every_fault_point_is_one_place_in_the_code() -> None:
    reached = sorted(_reached())

    assert reached == sorted(POINTS)


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
    text = DOCS.read_text(encoding="utf-8")
    section = text.partition("### Fault points\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|$", section, re.MULTILINE)

    assert dict(rows) == POINTS


@pytest.mark.skipif(calls.possible() is not None, reason=str(calls.possible()))
@pytest.mark.timeout(300)
def test_kills_at_system_calls_lose_nothing(tmp_path: Path) -> None:
    run = run_under_load(4, lambda test: calls.kill_at_calls(test, 6), tmp_path)

    assert run.complaints == [], run.failure_report()
    assert run.states["completed"] > 0


def test_a_run_that_fails_is_kept_and_tells_why(tmp_path: Path) -> None:
    def attack(test: LoadTest) -> None:
        test.await_load()
        raise NotInTimeError("an end of the world")

    run = run_under_load(5, attack, tmp_path)

    assert len(run.complaints) == 1
    assert "an end of the world" in run.failure_report()
    assert str(run.kept) in run.failure_report()
    (folder,) = tmp_path.iterdir()
    assert "serving cpu" in (folder / "left" / "hetd.log").read_text()
    assert (folder / "left" / "state" / "hetd.db").exists()
    kept = json.loads((folder / "history.json").read_text())
    assert kept["seed"] == 5
    acknowledged = {key for key, _ in kept["history"]["acknowledged"]}
    assert acknowledged
    assert acknowledged <= set(kept["history"]["submissions"])


def test_an_exception_that_breaks_the_state_ends_the_daemon_and_nothing_is_lost() -> (
    None
):
    with Deployment() as deployment, ThreadPoolExecutor(1) as waiting:
        deployment.start_daemon("submit.admitted:1:raise")
        deployment.await_answer()
        with closing(_session(deployment)) as session:
            asked = waiting.submit(session.request, _submit("k"))
            eventually(deployment.is_down, "the end of the daemon")
            deployment.start_daemon()
            answer = asked.result(PATIENCE)

        assert [task.id for task in all_tasks(deployment.socket)] == answer.ids


def _session(deployment: Deployment) -> Session:
    return Session(deployment.socket, DEAF, timeout=PATIENCE, patience=PATIENCE)


def _submit(key: str) -> m.Submit:
    params = {"seed": 1, "iterations": 1}
    return m.Submit(request=0, tasks=[described(name_of(key, 0), params)], key=key)
