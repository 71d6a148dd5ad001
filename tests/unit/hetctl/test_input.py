"""Bad input to `hetctl`: one line on standard error each, and the right exit status."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner, Result

from hetctl.__main__ import COMMANDS, main
from hetctl.commands.submit import natural
from hetctl.selectors import split
from hetctl.submission.batchfile import BatchFile
from hetctl.submission.programs import Environments
from hetctl.units import parse_duration, readable_duration
from libtask.errors import InputError
from libtask.messages import Error, ListTasks, Submit
from unit.fake_daemon import FakeDaemon, a_task

if TYPE_CHECKING:
    from libtask.messages import Message


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def refused(status: int, *words: str) -> str:
    """Run a command that must fail with this status; return its one line."""
    result = run(*words)
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("hetctl: ")
    return lines[0]


# ---------------------------------------------------------------- usage


def test_every_command_of_the_table_loads() -> None:
    for name in COMMANDS:
        assert run(name, "--help").exit_code == 0


def test_unknown_command_and_option() -> None:
    assert "did you mean list?" in refused(2, "lst")
    assert "--bogus" in refused(2, "list", "--bogus")
    assert "no command 'zzz'" in refused(2, "zzz")


def test_selectors() -> None:
    assert split(["3-9,last", "7"]) == ["3-9", "last", "7"]
    for wrong in ("x", "9-3", "0", "-1", "1-99999999999", "", "1,,2"):
        with pytest.raises(InputError, match="selector"):
            split([wrong])


def test_bad_selector_needs_the_daemon_not(daemon: FakeDaemon) -> None:
    assert "expected an id" in refused(2, "show", "seven")
    assert "expected an id" in refused(2, "submit", "heat", "--after", "seven")


def test_durations() -> None:
    assert [parse_duration(text) for text in ("90s", "15min", "2h", "1.5", "20ms")] == [
        90.0,
        900.0,
        7200.0,
        1.5,
        0.02,
    ]
    for wrong in ("soon", "3 weeks", "", "-1s"):
        with pytest.raises(ValueError, match="expected a duration"):
            parse_duration(wrong)
    assert [readable_duration(each) for each in (None, 0.04, 3.14, 125, 3720)] == [
        "-",
        "40 ms",
        "3.1 s",
        "2 min 05 s",
        "1 h 02 min",
    ]


def test_bad_duration(daemon: FakeDaemon) -> None:
    assert "expected a duration" in refused(2, "wait", "1", "--timeout", "soon")
    for wrong in ("gpu", "=5s", "gpu=soon"):
        assert "expected" in refused(2, "submit", "heat", "--expect", wrong)
    place = refused(2, "submit", "heat", "--expect", "gpi=5s")
    assert "--expect: no resource or kind 'gpi' (did you mean gpu?); there are" in place


# ---------------------------------------------------------------- no daemon


def test_absent_daemon(tmp_path: Path) -> None:
    line = refused(3, "list", "--socket", str(tmp_path / "none"))

    assert "absent" in line
    assert "hetctl daemon start" in line


def test_daemon_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "old"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))

    assert "refused" in refused(3, "daemon", "status", "--socket", str(path))


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.socket.connect", refuse)

    assert "no permission" in refused(3, "list", "--socket", str(tmp_path / "s"))


# ---------------------------------------------------------------- submit


def test_bad_applications_and_parameters(tmp_path: Path) -> None:
    """Errors that are found without a daemon; none runs here."""
    notes = tmp_path / "notes.py"
    notes.write_text("class Heat: pass\n")

    assert "did you mean heat?" in refused(4, "submit", "heta")
    assert "No such file" in refused(2, "submit", f"{tmp_path}/none.py:Heat")
    assert "not a subclass" in refused(2, "submit", f"{notes}:Heat")
    assert "unknown parameter 'stps' (did you mean steps?)" in refused(
        2, "submit", "heat", "--stps", "3"
    )
    assert "n: expected int, got 'abc'" in refused(2, "submit", "heat", "--n", "abc")
    assert "n: expected int, got 'abc'" in refused(
        2, "submit", "heat", "--set", "n=abc"
    )
    assert "--n needs a value" in refused(2, "submit", "heat", "--n")
    assert "unexpected argument 'oops'" in refused(2, "submit", "heat", "oops")
    assert "expected key=value" in refused(2, "submit", "heat", "--set", "n")
    assert "priority" in refused(2, "submit", "heat", "--priority", "high")


@pytest.mark.parametrize(
    ("words", "repeated"),
    [
        (("set", "1", "priority=1", "priority=2"), "priority"),
        (("set", "1", "deadline=5s", "deadline=none"), "deadline"),
        (("policy", "set", "migration", "--set", "a=1", "--set", "a=2"), "--set: a"),
        (
            ("submit", "heat", "--set", "low-pass=1", "--set", "low_pass=1"),
            "--set: low_pass",
        ),
        (
            ("submit", "heat", "--expect", "cpu=1s", "--expect", "cpu=2s"),
            "--expect: cpu",
        ),
    ],
)
def test_a_repeated_key_is_refused(words: tuple[str, ...], repeated: str) -> None:
    assert refused(2, *words) == f"hetctl: {repeated} is given twice"


def test_refusals_of_the_daemon(daemon: FakeDaemon) -> None:
    for code, status in (
        ("not-allowed", 5),
        ("not-found", 4),
        ("bad-input", 2),
        ("bug", 1),
    ):

        def refuse(message: Submit, code: str = code) -> list[Message]:
            return [Error(message.request, code, "no, sorry")]

        daemon.answers[Submit] = refuse
        assert "no, sorry" in refused(
            status, "submit", "synthetic", "--seconds", '{"cpu": 1}'
        )


def test_natural_parameters() -> None:
    words = ("--n", "4096", "--edge=fixed", "--low-pass", "--no-wide", "--shift", "-3")

    assert natural(words, {"low_pass", "wide"}) == {
        "n": "4096",
        "edge": "fixed",
        "low_pass": "true",
        "wide": "false",
        "shift": "-3",
    }
    with pytest.raises(click.UsageError, match="--n needs a value"):
        natural(("--n", "--m", "3"), set())


# ---------------------------------------------------------------- batch


def test_each_mistake_of_a_batch_is_named(tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text("""
        [[task]]
        app = "heat"
        name = "a"
        params = { n = "many" }
        [[task]]
        app = "heta"
        priority = "high"
        [[task]]
        prams = {}
        count = 0
        [[task]]
        app = "heat"
        name = "a"
        after = ["b", 0]
        [[task]]
        app = "nothing"
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1 } }
        deadline = "soon"
        overrun = "halt"
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1 } }
        deadline = "soon"
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1 } }
        deadline = -1
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1 } }
        deadline = "0s"
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1 } }
        deadline = nan
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1 } }
        deadline = true
    """)

    result = run("batch", str(path), "--check")

    assert result.exit_code == 2
    places = [line.split(": ")[2] for line in result.stderr.splitlines()]
    assert places == [
        "task[0].params",
        "task[1].priority",
        "task[1].app",
        "task[2].prams",
        "task[2].app",
        "task[2].count",
        "task[3].after[0]",
        "task[3].after[1]",
        "task[3].name",
        "task[4].app",
        "task[5].overrun",
        *(f"task[{index}].deadline" for index in range(5, 11)),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("task = 3", "expected one or more [[task]]"),
        ("", "expected one or more [[task]]"),
        ("task = [1]", "task[0]: expected a table"),
        ("[[task]\n", "b.toml: "),
    ],
)
def test_files_that_are_not_batch_files(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "b.toml"
    path.write_text(text)

    assert said in refused(2, "batch", str(path))


def test_batch_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "b.bin"
    binary.write_bytes(b"\xff\xfe\x00")

    assert "No such file" in refused(2, "batch", str(tmp_path / "none.toml"))
    assert "Is a directory" in refused(2, "batch", str(tmp_path))
    assert "utf-8" in refused(2, "batch", str(binary))


# ---------------------------------------------------------------- the rest


def test_missing_tasks_and_resources(daemon: FakeDaemon) -> None:
    assert "no task 77" in refused(4, "show", "77")
    assert "you have no tasks" in refused(4, "wait", "last")
    assert "no tasks 5-9" in refused(4, "cancel", "5-9")
    daemon.tasks[1] = a_task(1)
    assert "no resource 'nowhere'" in refused(4, "migrate", "1", "--to", "nowhere")
    assert "--to" in refused(2, "migrate", "1")


def test_pictures(daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.tasks[1] = a_task(1)

    assert "expected a name that ends in" in refused(
        2, "gantt", "-o", str(tmp_path / "g.doc")
    )
    assert "no such folder" in refused(
        2, "gantt", "-o", str(tmp_path / "none" / "g.png")
    )
    assert "none of these tasks has run yet" in refused(
        4, "gantt", "-o", str(tmp_path / "g.png")
    )


def test_configuration_is_not_written_over(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "hetd.toml"
    path.write_text("mine")

    assert "use --force to overwrite it" in refused(
        2, "devices", "--write-config", str(path)
    )
    assert path.read_text() == "mine"


def test_daemon_that_cannot_start(tmp_path: Path) -> None:
    config = tmp_path / "hetd.toml"
    config.write_text("polcy = 'x'\n")
    place = ("--socket", str(tmp_path / "s"), "--state", str(tmp_path / "state"))

    assert "polcy" in refused(1, "daemon", "start", *place, "--config", str(config))
    assert "too long" in refused(
        2, "daemon", "start", "--socket", f"{tmp_path}/{'x' * 120}"
    )


def test_unexpected_answer_is_one_line(daemon: FakeDaemon) -> None:
    daemon.answers[ListTasks] = lambda message: [
        Error(message.request, "strange", "what?")
    ]

    assert "what?" in refused(1, "list")


def test_submit_help_lists_the_parameters_of_an_application() -> None:
    shown = CliRunner().invoke(main, ["submit", "heat", "--help"])

    assert shown.exit_code == 0
    assert "steps: time steps." in shown.stdout
    assert "--edges  str = 'fixed'" in shown.stdout


def test_a_bare_group_shows_its_help_as_it_is() -> None:
    shown = CliRunner().invoke(main, ["policy"])

    assert shown.exit_code == 2
    assert shown.stderr.startswith("Usage: ")


def test_a_batch_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.BytesIO(b'[[task]]\nap = "heat"\n')
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(text))

    with pytest.raises(InputError, match=r"-: task\[0\]\.ap: unknown key"):
        BatchFile(Path("-"), Environments()).read()
