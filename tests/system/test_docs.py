"""What the documentation shows really runs."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import a_resource, a_task
from hetsched.estimates.table import EstimateTable
from hetsched.scheduler import Scheduler
from unit.hetsched.timed_node import ANN, BOB, Node, tasks_of

if TYPE_CHECKING:
    from system.private_daemon import PrivateDaemon
    from system.terminal import Terminal

DOCS = Path(__file__).parents[2] / "docs"
LONGEST_BELOW_20000 = {"start": 17647, "steps": 278}
"""A published record of the Collatz sequence (OEIS A006877, A006878)."""


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of code in a language that a page shows."""
    pattern = rf"```{language}\n(.*?)```"
    found: list[str] = re.findall(pattern, (DOCS / page).read_text(), re.DOTALL)
    assert found, f"{page} shows no {language}"
    return found


def _first_program(page: str) -> str:
    return blocks(page, "python")[0]


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


def test_the_test_of_the_program_passes(program: Path) -> None:
    test = program.with_name("test_collatz.py")
    test.write_text(blocks("writing-a-task.md", "python")[-1])
    plain = ["-p", "no:cacheprovider", "-o", "addopts="]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir", test.parent, *plain, test],
        capture_output=True,
        text=True,
        check=False,
        cwd=test.parent,
    )

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_policy_places_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    example = DOCS / "examples" / "shortest-first" / "shortest_first.py"
    assert _first_program("writing-a-policy.md") == example.read_text()
    monkeypatch.syspath_prepend(example.parent)
    policy = importlib.import_module("shortest_first").ShortestFirst()
    scheduler = Scheduler([a_resource("cpu")], EstimateTable(), policy)

    actions = scheduler.handle(a_task(1), 0)

    assert [type(action).__name__ for action in actions] == ["Record", "Run", "Record"]


def test_the_policy_that_binds_late_lets_users_take_turns() -> None:
    names: dict[str, Any] = {"__name__": "shown"}
    exec(blocks("writing-a-policy.md", "python")[1], names)  # noqa: S102  from our page
    node = Node(resources=[a_resource("cpu")])
    node.harness.change_policy(names["ShortestWhenFree"]())
    node.submit(*tasks_of(ANN, 30))
    node.submit(*tasks_of(BOB, 9, states=5.0, first=1001), takes=5.0)

    node.run(30.0)

    # without turns the short tasks would all go first
    assert 0.4 <= node.part_of(BOB) <= 0.6


# ---------------------------------------------------------------- the tutorial


@pytest.fixture
def tutorial(tmp_path: Path) -> Path:
    """The program that the tutorial builds up, part by part."""
    path = tmp_path / "mandelbrot.py"
    path.write_text("\n\n".join(blocks("tutorial.md", "python")))
    return path


@pytest.mark.parametrize("resource", ["cpu", "gpu0", "fpga0"])
def test_the_tutorials_program_runs_on_three_kinds(
    tutorial: Path, resource: str
) -> None:
    words = ("--n", "64", "--limit", "100", "--local", "--device", resource)
    done = subprocess.run(
        [sys.executable, str(tutorial), *words, "--output", f"{tutorial}.npy"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "no resource" in done.stderr:
        pytest.skip(f"no {resource} here, nor an emulator of one")

    assert done.returncode == 0, done.stderr
    counts = np.load(f"{tutorial}.npy")
    assert json.loads(done.stdout) == {"inside": int((counts == 100).sum())}
    # compilers may round differently on the border of the set
    assert (counts == escape_counts(64, 100)).mean() > 0.99


def escape_counts(n: int, limit: int) -> Any:
    """Count the iterations of every point, as plainly as NumPy can."""
    columns, rows = np.meshgrid(np.arange(n), np.arange(n))
    c = (3 * columns / n - 2) + 1j * (2 * rows / n - 1)
    z, counts = np.zeros_like(c), np.zeros((n, n), int)
    for _ in range(limit):
        bounded = (z.real**2 + z.imag**2 <= 4) & (counts >= 0)
        counts += bounded
        z = np.where(bounded, z * z + c, 9)
    return counts


# ---------------------------------------------------------------- the how-tos


@pytest.mark.parametrize(
    "program",
    blocks("how-to/python.md", "python"),
    ids=[
        "tasks",
        "environment",
        "results-as-parameters",
        "functions",
        "calls-that-wait",
        "dask",
        "joblib",
    ],
)
def test_the_programs_of_the_how_to_run(
    program: str, daemon: PrivateDaemon, tmp_path: Path
) -> None:
    path = tmp_path / "program.py"
    path.write_text(program)

    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HETD_SOCKET": str(daemon.socket)},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_batch_file_of_the_how_to_runs(hetctl: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(blocks("how-to/many-tasks.md", "toml")[0])

    assert "6 tasks, no mistakes" in hetctl("batch", str(path), "--check")
    ended = hetctl("batch", str(path), "--wait")
    assert ended.count(" completed on cpu") == 6


def test_the_orders_of_the_how_to_work(hetctl: Terminal) -> None:
    """All orders at the prompt of the page, one after the other."""
    console = blocks("how-to/steer.md", "console")[0]
    orders = [line.removeprefix("$ hetctl ") for line in console.splitlines()]
    told = [hetctl(*shlex.split(order)) for order in orders]

    assert "completed" in told[-1]
