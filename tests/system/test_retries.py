"""Tasks that fail by themselves and are run again, as users see them."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from system.private_daemon import PrivateDaemon
    from system.terminal import Terminal

FAILS_ONCE = 'echo "$HETD_ATTEMPT" >> "$1"; [ "$HETD_ATTEMPT" = 2 ] || exit 3'
"""A program of the shell that fails the first time."""

UNRELIABLE = """
    from dataclasses import dataclass
    from pathlib import Path
    from libtask import Task

    @dataclass
    class Unreliable(Task):
        mark: str
        retries_failures = 1

        def load(self):
            mark = Path(self.mark)
            if not mark.exists():
                mark.touch()
                raise OSError("the server does not answer")

        def total(self):
            return 1

        def save(self, checkpoint):
            return {"answer": 42}

    @Unreliable.on("cpu")
    def run(task, device, checkpoint):
        for _ in checkpoint.strips():
            yield
"""


def test_a_program_that_fails_is_run_again(
    hetctl: Terminal, daemon: PrivateDaemon, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    words = ("--", "sh", "-c", FAILS_ONCE, "sh", str(starts))

    (task,) = hetctl.json("submit", "--retries", "3", *words)["ids"]
    pauses = daemon.await_state(task, "waiting")
    hetctl("wait", str(task))

    assert pauses.begins is not None
    assert (pauses.exit_code, pauses.reason) == (3, "exit status 3")
    assert "retries     1 of 3" in hetctl("show", str(task))
    assert starts.read_text() == "1\n2\n"
    found = hetctl.json("show", str(task))
    assert (found["retries"], found["retried"], found["begins"]) == (3, 1, None)
    assert found["segments"][0]["error"] == "exit status 3"


def test_a_pause_ends_with_a_cancellation(
    hetctl: Terminal, daemon: PrivateDaemon
) -> None:
    (task,) = hetctl.json("submit", "--retries", "100", "--", "false")["ids"]
    daemon.await_state(task, "waiting")

    hetctl("cancel", str(task))

    found = daemon.await_state(task, "cancelled")
    assert found.exit_code == 1


def test_a_class_says_how_often_its_tasks_are_run_again(
    hetctl: Terminal, tmp_path: Path
) -> None:
    app = tmp_path / "unreliable.py"
    app.write_text(dedent(UNRELIABLE))
    place = f"{app}:Unreliable"
    mark = tmp_path / "mark"

    (task,) = hetctl.json("submit", place, "--mark", str(mark))["ids"]
    hetctl("wait", str(task))
    mark.unlink()
    once = hetctl.completed(
        "submit", place, "--mark", str(mark), "--retries=0", "--wait"
    )

    found = hetctl.json("show", str(task))
    assert (found["retried"], found["result"]) == (1, {"answer": 42})
    assert (found["trace"], found["last_output"]) == (None, None)
    assert "the server does not answer" in found["segments"][0]["error"]
    assert once.returncode != 0
