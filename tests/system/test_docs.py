"""What the documentation shows really runs."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builders import a_resource, a_task
from hetd.core.scheduler import Scheduler
from hetd.estimates.table import EstimateTable

if TYPE_CHECKING:
    from system.private_daemon import PrivateDaemon

DOCS = Path(__file__).parents[2] / "docs"
LONGEST_BELOW_20000 = {"start": 17647, "steps": 278}
"""A published record of the Collatz sequence (OEIS A006877, A006878)."""


def _first_program(page: str) -> str:
    found = re.search(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "collatz.py"
    path.write_text(_first_program("writing-a-task.md"))
    return path


def _run(program: Path, *words: str, socket: str = "") -> object:
    done = subprocess.run(
        [sys.executable, str(program), "--n", "20000", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ({"HETD_SOCKET": socket} if socket else {}),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_program_runs_alone(program: Path) -> None:
    assert _run(program, "--local", "--device", "cpu") == LONGEST_BELOW_20000


def test_the_program_runs_under_a_daemon(program: Path, daemon: PrivateDaemon) -> None:
    found = _run(program, "--device", "cpu", socket=str(daemon.socket))

    assert found == LONGEST_BELOW_20000
    newest = daemon.client.tasks()[0]
    assert (newest.state, newest.result) == ("completed", LONGEST_BELOW_20000)


def test_the_program_is_an_application(program: Path, daemon: PrivateDaemon) -> None:
    task = daemon.client.submit(f"{program}:Collatz", {"n": 20000}, resources=["cpu"])

    assert task.result(60) == LONGEST_BELOW_20000


def test_the_policy_places_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shortest_first.py").write_text(_first_program("writing-a-policy.md"))
    monkeypatch.syspath_prepend(tmp_path)
    policy = importlib.import_module("shortest_first").ShortestFirst()
    scheduler = Scheduler([a_resource("cpu")], EstimateTable(), policy)

    actions = scheduler.handle(a_task(1), 0)

    assert [type(action).__name__ for action in actions] == ["Record", "Run", "Record"]
