"""Whose reports of times count for whom: workers are users' processes, and may lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.tasks.task_types import kept_type
from hetsched.estimates.table import POINTS_OF_APP
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.messages import Sample

MINE = "/home/other/mine.py:Mine"
ROOT = 0


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    shell.worker("w")
    shell.worker("o", uid=OTHER)
    yield shell
    shell.close()


def _measure(
    shell: Shell, name: str, seconds: float, uid: int = USER, **fields: str
) -> None:
    """Run a task whose worker says how long it took."""
    (task,) = shell.submit(a_spec(resources=["cpu"], **fields), uid=uid)
    run = shell.sent.to(name, m.Run)[-1]
    assert run.task == task
    finished = m.Finished(task, run.epoch, seconds=seconds, iterations=1, strips=1)
    shell.reports.report(a_peer(name, uid), finished)


def _expected(shell: Shell, uid: int, app: str, kind: str) -> dict[str, float]:
    """Return what a user's task is expected to take."""
    (task,) = shell.submit(a_spec(app=app, type=kind, hold=True), uid=uid)
    (info,) = shell.ask(m.ListTasks(1, ids=[task], detail=True), uid).tasks
    found: dict[str, float] = info.expected
    return found


def _samples(shell: Shell, uid: int) -> list[Sample]:
    found: list[Sample] = shell.ask(m.Models(1), uid).samples
    return found


def test_what_a_user_reports_of_a_program_counts_for_that_user_alone(
    shell: Shell,
) -> None:
    kind = f"{MINE}/64"
    _measure(shell, "w", 1e8, app=MINE, type=kind)

    assert _expected(shell, USER, MINE, kind) == {"cpu": 1e8}
    assert _expected(shell, OTHER, MINE, kind) == {}

    _measure(shell, "o", 2.0, OTHER, app=MINE, type=kind)

    assert _expected(shell, USER, MINE, kind) == {"cpu": 1e8}
    assert _expected(shell, OTHER, MINE, kind) == {"cpu": 2.0}


def test_another_application_has_no_type_of_an_installed_one(shell: Shell) -> None:
    _measure(shell, "w", 1e8, app="/home/user/evil.py:X", type="heat/4096")
    assert _expected(shell, OTHER, "heat", "heat/4096") == {}

    _measure(shell, "o", 2.0, OTHER, app="heat", type="heat/4096")

    assert _expected(shell, USER, "heat", "heat/4096") == {"cpu": 2.0}


def test_what_an_administrator_enters_counts_until_a_user_has_measured(
    shell: Shell,
) -> None:
    entered = m.Sample(f"{MINE}/64", "cpu", 3.0)
    shell.ask(m.AddSamples(1, [entered], key="k"), ROOT)
    assert _expected(shell, USER, MINE, f"{MINE}/64") == {"cpu": 3.0}
    other_size = _expected(shell, USER, MINE, f"{MINE}/128")
    assert other_size == {"cpu": pytest.approx(3.0)}

    _measure(shell, "w", 9.0, app=MINE, type=f"{MINE}/64")

    assert _expected(shell, USER, MINE, f"{MINE}/64") == {"cpu": 9.0}
    assert _expected(shell, OTHER, MINE, f"{MINE}/64") == {"cpu": 3.0}


def test_users_see_their_own_types_as_they_named_them(shell: Shell) -> None:
    _measure(shell, "w", 4.0, app=MINE, type=f"{MINE}/64")

    assert [each.type for each in _samples(shell, USER)] == [f"{MINE}/64"]
    assert _samples(shell, OTHER) == []
    assert shell.ask(m.Models(1), OTHER).hidden == 1
    assert [each.type for each in _samples(shell, ROOT)] == [f"uid:{USER}:{MINE}/64"]

    gone = shell.ask(m.DeleteSamples(1, names=[MINE], key="k"), ROOT)

    assert gone.count == 1
    assert _samples(shell, USER) == []


def test_names_of_forgotten_types_take_up_no_memory(shell: Shell) -> None:
    for number in range(POINTS_OF_APP + 2):
        _measure(shell, "w", 1.0, app="heat", type=f"heat/{number}")
    for number in range(3):
        _measure(shell, "w", 1.0, app=f"a{number}", type=f"a{number}")

    assert len(shell.journal.measurers) == POINTS_OF_APP
    assert "heat/0" not in shell.journal.measurers


def test_a_type_as_long_as_may_be_still_fits_into_a_message() -> None:
    name = kept_type("\N{SNOWMAN}" * 341, "app", USER)

    assert len(name.encode()) <= 1024
    assert name.startswith(f"uid:{USER}:")
