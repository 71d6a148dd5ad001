"""Standard input of programs: passed on by `hetctl run`, or from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Selection
from system.private_daemon import PATIENCE, eventually
from system.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from system.private_daemon import PrivateDaemon

UNTIL = 'while [ ! -e "$1" ]; do sleep 0.01; done'
"""A loop of the shell that ends when a file appears."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are submitted in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_pipe_is_passed_on(hetctl: Terminal) -> None:
    done = hetctl.completed("run", "--", "sort", typed="b\nc\na\n")

    assert (done.returncode, done.stdout, done.stderr) == (0, "a\nb\nc\n", "")


def test_more_than_a_pipe_holds_is_passed_on(hetctl: Terminal) -> None:
    done = hetctl.completed("run", "--", "wc", "-c", typed="x" * 1_000_000)

    assert done.stdout.strip() == "1000000"


def test_a_program_need_not_read_it(hetctl: Terminal) -> None:
    done = hetctl.completed("run", "--", "true", typed="x" * 1_000_000)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_is_read_from_where_it_was(hetctl: Terminal, folder: Path) -> None:
    (folder / "lines").write_text("one\ntwo\nthree\n")

    with (folder / "lines").open() as lines:
        lines.seek(len("one\n"))
        with hetctl.opened("run", "--", "cat", stdin=lines) as run:
            output, _ = run.communicate(timeout=PATIENCE)

    assert output == "two\nthree\n"


def test_a_second_attempt_reads_a_file_from_the_same_place(
    hetctl: Terminal, folder: Path
) -> None:
    (folder / "lines").write_text("one\ntwo\n")
    script = 'cat; test -e again || { touch again; echo "and again"; exit 1; }'

    with (folder / "lines").open() as lines:
        words = ("run", "--retries", "1", "--", "sh", "-c", script)
        with hetctl.opened(*words, stdin=lines) as run:
            output, _ = run.communicate(timeout=PATIENCE)

    assert run.returncode == 0
    assert output == "one\ntwo\nand again\none\ntwo\n"


def test_a_named_file_takes_precedence_over_what_is_typed(
    hetctl: Terminal, folder: Path
) -> None:
    (folder / "names").write_text("of the file\n")

    done = hetctl.completed("run", "--input", "names", "--", "cat", typed="typed\n")

    assert done.stdout == "of the file\n"


def test_each_task_of_an_array_has_a_file(hetctl: Terminal, folder: Path) -> None:
    for index in (1, 2):
        (folder / f"part-{index}").write_text(f"text {index}")

    words = ("--input", "part-{index}", "--output", "out-{index}")
    hetctl("submit", "--array", "1,2", *words, "--wait", "--", "cat")

    assert [(folder / f"out-{index}").read_text() for index in (1, 2)] == [
        "text 1",
        "text 2",
    ]


def test_a_file_that_is_not_there_is_named(hetctl: Terminal, folder: Path) -> None:
    done = hetctl.completed("run", "--input", "nowhere", "--", "cat")

    assert done.returncode == 125
    assert "input file nowhere: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_does_not_start_without_the_input_that_it_was_promised(
    hetctl: Terminal, folder: Path, daemon: PrivateDaemon
) -> None:
    (folder / "names").write_text("some\n")
    with (
        (folder / "names").open() as names,
        hetctl.opened("run", "--hold", "--", "cat", stdin=names) as run,
    ):
        held = Selection(states=("held",))
        (task,) = eventually(lambda: daemon.client.tasks(held), "its submission")
        run.kill()

    hetctl("release", str(task.id))

    ended = eventually(lambda: _ended(daemon, task.id), "its end")
    assert ended == (
        "failed",
        "the hetctl run that passes standard input on has ended; run it again",
    )


def test_a_submitted_program_has_none(hetctl: Terminal, folder: Path) -> None:
    hetctl("submit", "--output", "out", "--wait", "--", "wc", "-c")

    assert (folder / "out").read_text().strip() == "0"


def _ended(daemon: PrivateDaemon, task: int) -> tuple[str, str | None] | None:
    info = daemon.client.show(task)
    return (info.state, info.reason) if info.finished else None
