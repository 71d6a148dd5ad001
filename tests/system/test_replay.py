"""What ran on a real daemon runs again in the simulator, and comes out alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsim.live import run_live, warm_up
from hetsim.scenario import read_scenario
from hetsim.simulate import simulate
from libtask.client.client import Selection
from scenario_builders import a_node, a_scenario, a_type
from system.private_daemon import ROOM
from system.terminal import Terminal

if TYPE_CHECKING:
    from hetsim.result import Result
    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon

FITS_GPU = a_type("g", strips=40, cpu=6.0, gpu0=0.4)
FITS_CPU = a_type("c", strips=16, cpu=0.6, gpu0=9.0)
"""Decisions lie apart: the GPU has nothing left after 0.8 s, when it takes over a task
that would keep the CPU busy for 5 s more."""


def test_a_trace_replays(daemon: PrivateDaemon, tmp_path: Path) -> None:
    batch = a_scenario(
        a_node("cpu", slots=2) + a_node("gpu0", "fpga0"),
        [FITS_GPU, FITS_CPU],
        [("g1", "g", 0), ("c1", "c", 0), ("g2", "g", 0), ("g3", "g", 0)],
    )
    warm_up(daemon.client, batch.resources)
    run_live(daemon.client, batch, "migration")
    ran = daemon.client.tasks(Selection(limit=4, detail=True))[::-1]

    document = traced(daemon, ran, tmp_path / "scenario.json")
    replayed = replay(tmp_path / "scenario.json")

    assert document["policy"] == "migration"
    assert [[s.resource for s in info.segments] for info in ran] == [
        ["gpu0"],
        ["cpu"],
        ["cpu", "gpu0"],
        ["gpu0"],
    ]
    assert places(replayed) == [[s.resource for s in info.segments] for info in ran]
    assert replayed.measured_makespan == document["measured_makespan"]
    assert isinstance(replayed.makespan_error, float)
    # what the model leaves out is small beside tasks of this length, even under load
    assert abs(replayed.makespan_error) < 0.5


def traced(daemon: PrivateDaemon, tasks: list[TaskInfo], path: Path) -> dict[str, Any]:
    """Write the trace of these tasks as users do; return the document."""
    ids = ",".join(str(info.id) for info in tasks)
    Terminal(daemon)("trace", ids, "-o", str(path))
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def replay(path: Path) -> Result:
    scenario = read_scenario(path)
    return simulate(scenario, scenario.policy or "", scenario.policy_parameters)


def places(result: Result) -> list[list[str]]:
    """List where each task ran, one stretch after the other."""
    return [[segment.resource for segment in task.segments] for task in result.tasks]


def test_the_paper_runs_live() -> None:
    command = [sys.executable, "-m", "hetsim", "paper", "loesch-2016", "--live"]
    command += ["--figure", "live-set1", "--delay", "0", "--scale", "200", "--json"]

    done = subprocess.run(command, check=True, capture_output=True, text=True)

    document = json.loads(done.stdout)
    assert (document["format"], document["paper"]) == ("hetsim/paper-1", "loesch-2016")
    (figure,) = document["figures"]
    assert figure["id"] == "live-set1"
    rows = {row["policy"]: row for row in figure["rows"]}
    assert list(rows) == ["affinity", "work-conserving", "migration", "finish-time"]
    # 63 tasks that cannot be done sooner, each waiting its time in a real process
    assert all(row["live s"] > 0.2 for row in rows.values())
    assert rows["affinity"]["live moves"] == 0
    assert {claim["unit"] for claim in figure["claims"]} == {"x", "%"}
    assert "4 runs on a real daemon" in done.stderr
    assert "[4/4] Set 1, delay 0 s, order 0, finish-time: live" in done.stderr


def test_live_runs_that_cannot_be_are_refused() -> None:
    command = [sys.executable, "-m", "hetsim", "paper"]
    for arguments, message in (
        (["mokhtari-felare", "--live"], "--live: mokhtari-felare has no runs"),
        (["loesch-2016", "--live", "--delay", "3"], "--delay: the paper has 0, 0.25"),
        (["loesch-2016", "--live", "--figure", "table2"], "no figure 'table2'; there"),
    ):
        done = subprocess.run(
            [*command, *arguments], check=False, capture_output=True, text=True
        )

        assert done.returncode == 2
        assert message in done.stderr


def test_a_live_run_that_is_ended_leaves_nothing() -> None:
    command = [sys.executable, "-m", "hetsim", "paper", "loesch-2016", "--live"]
    with tempfile.TemporaryDirectory(dir=ROOM) as folder:
        environment = {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(
            [*command, "--figure", "live-set1"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            assert running.stderr is not None
            begun = next(line for line in running.stderr if line.startswith("[1/"))
            running.terminate()

            assert running.wait(60) == 143, begun
        assert list(Path(folder).iterdir()) == []
