"""Shell completion, by the code that `hetctl completion` prints."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from unit.fake_daemon import FakeDaemon, a_task
from unit.hetctl.typed_commands import text

if TYPE_CHECKING:
    from pathlib import Path


def completed(line: str, socket: Path) -> set[str]:
    """Complete as bash does when the user presses Tab at the end of `line`."""
    words = line.split(" ")
    asked = {
        "_HETCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "HETD_SOCKET": str(socket),
    }
    script = "from hetctl.__main__ import main; main(prog_name='hetctl')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | asked,
    )
    assert done.stderr == ""
    return {each.partition(",")[2] for each in done.stdout.split()}


def test_commands_options_and_values_are_completed(daemon: FakeDaemon) -> None:
    path = daemon.path
    assert completed("hetctl pol", path) == {"policy"}
    assert completed("hetctl policy s", path) == {"show", "set"}
    assert "--deadline" in completed("hetctl submit heat --d", path)
    assert completed("hetctl submit he", path) == {"heat"}
    assert completed("hetctl migrate 7 --to ", path) == {"cpu", "gpu0"}
    assert completed("hetctl drain g", path) == {"gpu0"}
    assert completed("hetctl policy set mi", path) == {"migration"}


def test_tasks_are_completed_that_a_command_can_take(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        11: a_task(11, state="running", name="study.1", job="night"),
        12: a_task(12, state="completed", name="done"),
        13: a_task(13, state="failed", name="two words"),
    }
    words = {"last", "all", "mine"}

    offered = {
        verb: completed(f"hetctl {verb} ", daemon.path) - words
        for verb in ("cancel", "result", "logs")
    }

    assert offered == {
        "cancel": {"11", "@study"},
        "result": {"12", "13", "@done"},
        "logs": {"11", "12", "13", "@study", "@done"},
    }
    assert completed("hetctl graph ", daemon.path) == {"night"}


def test_without_a_daemon_nothing_is_completed_and_nothing_complained_of(
    tmp_path: Path,
) -> None:
    assert completed("hetctl drain ", tmp_path / "none") == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_names_the_program(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hetctl", "completion", shell],
        capture_output=True,
        text=True,
        check=True,
    )

    assert f"_HETCTL_COMPLETE={shell}_complete" in done.stdout


def test_completion() -> None:
    assert "_HETCTL_COMPLETE" in text("completion", "bash")
