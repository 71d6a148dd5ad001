"""Errors of `hetctl`: one line with the mistake and a remedy; never a traceback."""

from __future__ import annotations

import json
import pwd
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from libtask.messages import Error, Policies
from unit.fake_daemon import a_task

if TYPE_CHECKING:
    from pathlib import Path

    from unit.fake_daemon import FakeDaemon


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (["sbmit"], 2, "no command 'sbmit'; did you mean submit?"),
        (["submit", "absent.sh"], 4, "no file absent.sh, nor an application"),
        (["policy", "shaw"], 2, "Did you mean 'show'?"),
        (["list", "--limt", "3"], 2, "Did you mean '--limit'?"),
        (["submit", "haet"], 4, "no application 'haet' (did you mean heat?)"),
        (["submit", "heat", "--stepps", "3"], 2, "'stepps' (did you mean steps?)"),
        (["submit", "heat", "--n", "big"], 2, "parameter n: expected int, got 'big'"),
        (["submit", "heat", "--deadline", "soon"], 2, "a duration such as 90s"),
        (["submit", "heat", "--array", "9-1"], 2, "indexes such as 0-99"),
        (["set", "1", "prio=3"], 2, "no key 'prio'"),
        (["set", "1", "priority=high"], 2, "expected a whole number, got 'high'"),
        (["set", "1", "deadline=later"], 2, "a duration such as 90s, 15min or 2h, got"),
        (["set", "priority=1"], 2, "no tasks selected"),
        (["set", "1"], 2, "nothing to change"),
        (["show", "0"], 2, "selector '0': ids begin at 1"),
        (["show", "5-3"], 2, "selector '5-3': a range must go upwards"),
        (["metrics", "--textfile", "/x/y"], 2, ": /x/y: No such file or directory"),
        (["list", "--socket", "/etc/passwd"], 3, "/etc/passwd is not a socket; give"),
        (["list", "--socket", "/etc"], 3, "/etc is not a socket; give the path"),
        (
            ["daemon", "start", "--policy", "nope", "--foreground"],
            1,
            "so these options have no effect: --policy, --foreground; `hetctl daemon",
        ),
        (["top"], 2, "not a terminal; hetctl top --once prints the state once"),
        (["top", "--every", "0"], 2, "expected at least 0.1 s, got '0'"),
        (["metrics", "--textfile", "x", "--every", "1ms"], 2, "at least 0.1 s"),
        (["show", "first"], 2, "selector 'first': expected an id"),
        (["doc", "submitt"], 2, "no command 'submitt' (did you mean submit?)"),
        (["doc", "--schema", "taks-1"], 4, "(did you mean hetctl/tasks-1?)"),
        (["history", "--since", "yesterday"], 2, "a time such as"),
        (["gantt", "-o", "x.gif"], 2, "ends in .png, .svg, .pdf, .html"),
    ],
)
def test_a_mistake_is_one_line_with_a_way_out(
    daemon: FakeDaemon, words: list[str], status: int, expected: str
) -> None:
    result = CliRunner().invoke(main, words)

    lines = result.output.splitlines()
    assert result.exit_code == status, result.output
    assert len(lines) == 1
    assert lines[0].startswith("hetctl: ")
    assert expected in lines[0]


def test_a_daemon_is_not_started_in_the_place_of_another_file(tmp_path: Path) -> None:
    taken = tmp_path / "notes"
    taken.touch()

    words = ["daemon", "start", "--socket", str(taken)]
    result = CliRunner().invoke(main, words)

    assert result.exit_code == 2
    assert result.output.startswith(f"hetctl: {taken} is not a socket; give the path")
    assert list(tmp_path.iterdir()) == [taken]


def test_a_file_that_is_no_script_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").mkdir()
    for name in ("b.sh", "plain"):
        (tmp_path / name).write_text("echo\n")

    outputs = [
        CliRunner().invoke(main, ["submit", name]).output
        for name in ("a.sh", "b.sh", "plain")
    ]

    without = "does not begin with #! and the interpreter, such as #!/bin/sh"
    assert outputs == [
        "hetctl: a.sh: cannot be read: Is a directory\n",
        f"hetctl: b.sh: {without}\n",
        f"hetctl: plain: {without}\n",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["cancel", "1", "--reason", "x\udcff"],
        ["policy", "set", "x\udcff"],
        ["drain", "x\udcff"],
        ["submit", "--name", "x\udcff", "--", "true"],
        ["submit", "--output", "x\udcff", "--", "true"],
        ["submit", "heat", "--output", "x\udcff.npy"],
        ["daemon", "start", "--socket", "/x\udcff"],
        ["daemon", "backup", "/x\udcff"],
    ],
)
def test_a_word_that_is_not_utf_8_is_refused(
    daemon: FakeDaemon, words: list[str]
) -> None:
    daemon.tasks[1] = a_task(1)
    plain = CliRunner().invoke(main, words)
    document = CliRunner().invoke(main, ["--json", *words])

    assert plain.exit_code == document.exit_code == 2, plain.output
    (line,) = plain.stderr.splitlines()
    assert line.startswith("hetctl: expected text in UTF-8, got '")
    assert "x\\udcff" in line
    assert json.loads(document.stderr)["text"] == line.removeprefix("hetctl: ")


def test_a_file_name_that_is_not_utf_8_is_printed_escaped(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.tasks[1] = a_task(1, started=1000.0)
    path = f"{tmp_path}/x\udcff.json"

    result = CliRunner().invoke(main, ["trace", "1", "-o", path])

    assert result.exit_code == 0, result.output
    assert result.stdout == f"{tmp_path}/x\\udcff.json: 0 of 1 task written\n"


def test_without_a_daemon_it_says_how_to_start_one(tmp_path: Path) -> None:
    socket = str(tmp_path / "none")
    named = CliRunner().invoke(main, ["list", "--socket", socket])
    default = CliRunner(env={"HETD_SOCKET": socket}).invoke(main, ["list"])

    end = f"start one with `hetctl daemon start --socket {socket}`\n"
    for result in (named, default):
        assert result.exit_code == 3
        assert result.output.count("\n") == 1
    assert named.output.endswith(end)
    assert default.output.endswith("start one with `hetctl daemon start`\n")


def test_a_user_without_a_home_directory_is_told_to_set_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HETD_SOCKET", "HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # raises KeyError, as it does

    result = CliRunner().invoke(main, ["daemon", "start"])

    expected = (
        "hetctl: no home directory for state files: set HOME, or XDG_STATE_HOME, to an"
        " absolute path, or give --state FOLDER\n"
    )
    assert (result.exit_code, result.output) == (2, expected)


def test_an_error_of_the_daemon_is_one_line(daemon: FakeDaemon) -> None:
    text = "no policy 'migraton' (did you mean migration?); there are: migration"
    daemon.answers[Policies] = lambda m: [Error(m.request, "not-found", text)]

    result = CliRunner().invoke(main, ["policy", "set", "migraton"])

    assert (result.exit_code, result.output) == (4, f"hetctl: {text}\n")
