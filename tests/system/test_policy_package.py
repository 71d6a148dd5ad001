"""A package with a policy is installed: the daemon and the simulator run by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from installed_packages import install, install_project
from libtask import messages as m
from system.private_daemon import PATIENCE, RESOURCES
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
RAISING = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Raising:
    def react(self, event, system, now):
        raise ValueError("no idea")
"""
CHANGING = """
from dataclasses import dataclass
from hetsched.policy import Place

@dataclass(frozen=True)
class Changing:
    what: str = "queue"

    def react(self, event, system, now):
        if self.what == "queue" and system.unplaced:
            system.unplaced.pop()
        elif self.what == "table":
            system.resources.clear()
        elif self.what == "records":
            for task in system.tasks.values():
                task.resource = "gpu0"
        for row in list(system.unplaced.rows()):
            yield Place(system.unplaced.head_of(row).id, "cpu")
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the manual's example, and policies that cannot be imported, or misbehave."""
    install_project(tmp_path, EXAMPLES / "shortest-first")
    install(tmp_path, "unfinished", {"unwritten": "not_there:Policy"})
    (tmp_path / "raising.py").write_text(RAISING)
    install(tmp_path, "raising", {"raising": "raising:Raising"})
    (tmp_path / "changing.py").write_text(CHANGING)
    install(tmp_path, "changing", {"changing": "changing:Changing"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("_installed")
def test_the_daemon_schedules_by_it(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon('policy = "shortest-first"\n' + RESOURCES)
    hetctl = Terminal(daemon)
    assert daemon.client.policy().name == "shortest-first"

    hetctl("policy", "set", "affinity")
    hetctl("policy", "set", "shortest-first", "--set", "weight=2")

    document = json.loads(hetctl("policy", "list", "--json"))
    packages = {each["name"]: each["package"] for each in document["policies"]}
    assert document["current"] == "shortest-first"
    assert packages["shortest-first"] == "shortest-first"
    assert packages["affinity"] == "hetd"
    assert "unwritten" not in packages
    spec = m.TaskSpec("synthetic", {"seconds": {"cpu": 0.0}}, kinds=["cpu"])
    (task,) = daemon.client.submit_specs([spec])
    assert task.wait(PATIENCE) == "completed"
    fault = "policy 'unwritten' of package unfinished is not used: import fails: "
    assert daemon.log.read_text().count(fault) == 1


@pytest.mark.usefixtures("_installed")
def test_a_policy_that_raises_when_it_is_set_is_told_of(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    hetctl = Terminal(private_daemon('policy = "affinity"\n' + RESOURCES))

    done = hetctl.completed("policy", "set", "raising")

    assert done.returncode == 1
    error = "Raising: ValueError: no idea"
    assert done.stderr == (
        f"hetctl: policy raising failed: {error}; finish-time decides until another is set\n"
    )
    assert f"in place of raising, which failed: {error}" in hetctl("policy", "show")
    notes = [
        json.loads(line)["what"] for line in hetctl("events", "--json").splitlines()
    ]
    assert [what for what in notes if what.startswith("policy-")] == [
        "policy-set",
        "policy-failed",
    ]
    hetctl("policy", "reset")
    assert "in place of" not in hetctl("policy", "show")


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("queue", "react changed system.unplaced, which it may only read"),
        ("table", "react changed system.resources, which it may only read"),
        ("records", "the state that it may only read is contradictory: task "),
    ],
)
def test_a_policy_that_changes_the_state_neither_ends_the_daemon_nor_loses_a_task(
    private_daemon: Callable[..., PrivateDaemon], what: str, fault: str
) -> None:
    daemon = private_daemon('policy = "affinity"\n' + RESOURCES)
    hetctl = Terminal(daemon)
    spec = m.TaskSpec("synthetic", {"seconds": {"cpu": 0.5}}, kinds=["cpu"])
    before = daemon.client.submit_specs([spec, spec])

    # the client repeats this when hetd is back, which must not set the policy again
    setting = ("policy", "set", "changing", "--set", f"what={what}")
    done = hetctl.completed(*setting)
    if not done.returncode:  # no task waited any more
        before += daemon.client.submit_specs([spec])

    assert [task.wait(PATIENCE) for task in before] == ["completed"] * len(before)
    shown = hetctl("policy", "show")
    assert f"in place of changing, which failed: Changing: {fault}" in shown
    log = daemon.log.read_text()
    assert log.count(f"ERROR hetd: policy failed: Changing: {fault}") == 1
    assert "Traceback" not in log


@pytest.mark.usefixtures("_installed")
def test_a_configured_policy_that_changes_the_state_does_not_decide_after_a_restart(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon('policy = "changing"\n' + RESOURCES)
    hetctl = Terminal(daemon)
    spec = m.TaskSpec("synthetic", {"seconds": {"cpu": 0.0}}, kinds=["cpu"])
    (first,) = daemon.client.submit_specs([spec])
    assert first.wait(PATIENCE) == "completed"

    daemon.restart()

    assert "in place of changing, which failed" in hetctl("policy", "show")
    (second,) = daemon.client.submit_specs([spec])
    assert second.wait(PATIENCE) == "completed"
    hetctl("policy", "set", "affinity")
    daemon.restart()
    assert "in place of" not in hetctl("policy", "show")


@pytest.mark.usefixtures("_installed")
def test_the_simulator_runs_by_it() -> None:
    words = ["run", str(EXAMPLES / "scenario.json"), "--policy", "shortest-first"]
    done = subprocess.run(
        [sys.executable, "-m", "hetsim", *words, "--json"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )

    assert json.loads(done.stdout)["policy"] == "shortest-first"
