"""`requeue`, `forget`, `cancel --reason`, `logs` of several, `config show`, JSON errors."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from hetctl.commands.timeline import _event_document
from libtask.messages import (
    Control,
    DeleteTasks,
    LastOutput,
    Order,
    Requeue,
    Segment,
    TaskChanged,
)
from unit.fake_daemon import FakeDaemon, a_task
from unit.hetctl.typed_commands import document, text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def mixed(daemon: FakeDaemon) -> FakeDaemon:
    states = ("completed", "failed", "running", "failed")
    daemon.tasks = {n: a_task(n, state=state) for n, state in enumerate(states, 1)}
    return daemon


def test_ended_tasks_are_submitted_again(mixed: FakeDaemon) -> None:
    assert text("requeue", "1-4") == "tasks 1-2,4 submitted again as 101-102,104\n"
    made = document("requeue", "1-4", "--failed")

    assert (made["format"], made["ids"]) == ("hetctl/requeued-1", [102, 104])
    assert made["old"] == [2, 4]
    assert (
        text("requeue", "all", "--failed") == "tasks 2,4 submitted again as 102,104\n"
    )
    assert [each.ids for each in mixed.requests(Requeue)] == [[1, 2, 4], [2, 4], [2, 4]]


def test_tasks_are_requeued_from_their_snapshots(mixed: FakeDaemon) -> None:
    text("requeue", "2", "--from-snapshot")
    text("requeue", "2")

    assert [each.from_snapshot for each in mixed.requests(Requeue)] == [True, False]


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (["requeue", "3"], 2, "task 3 is running: only ended tasks can be submitted"),
        (["requeue", "1", "--failed"], 4, "none of these tasks failed"),
        (["forget", "3"], 2, "task 3 is running: only ended tasks can be forgotten"),
        (["status"], 2, "use hetctl daemon status, hetctl devices or hetctl"),
        (["restart"], 2, "use hetctl requeue SELECTOR, or hetctl daemon restart"),
        (["stop"], 2, "use hetctl cancel SELECTOR ends tasks"),
        (["squeue"], 2, "no command 'squeue'; use hetctl list"),
    ],
)
@pytest.mark.usefixtures("mixed")
def test_an_error_names_an_alternative(
    words: list[str], status: int, expected: str
) -> None:
    result = CliRunner().invoke(main, words)
    errors = CliRunner().invoke(main, [*words, "--json"])

    assert (result.exit_code, result.stdout) == (status, "")
    assert expected in result.stderr
    found = json.loads(errors.stderr)
    assert (errors.exit_code, errors.stdout) == (status, "")
    assert (found["format"], found["status"]) == ("hetctl/error-1", status)
    assert f"hetctl: {found['text']}\n" == result.stderr


def test_an_unreachable_daemon_is_reported_as_json(tmp_path: Path) -> None:
    words = ["--json", "list", "--socket", str(tmp_path / "none")]

    found = json.loads(CliRunner().invoke(main, words).stderr)

    assert (found["code"], found["status"]) == ("unreachable", 3)


def test_ended_tasks_are_forgotten(mixed: FakeDaemon) -> None:
    result = CliRunner().invoke(main, ["forget", "all"])

    assert result.stdout == "3 tasks forgotten\n"
    assert result.stderr == "task 3 is running and was kept\n"
    assert [each.ids for each in mixed.requests(DeleteTasks)] == [[1, 2, 4]]


def test_a_reason_goes_with_a_cancellation(mixed: FakeDaemon) -> None:
    text("cancel", "3", "--reason", "wrong input")
    text("kill", "3")

    assert [each.reason for each in mixed.requests(Control)] == ["wrong input", ""]


def test_logs_of_several_tasks(daemon: FakeDaemon, tmp_path: Path) -> None:
    for number in (1, 2):
        log = tmp_path / f"{number}.log"
        log.write_text("".join(f"{number}{letter}\n" for letter in "abc"))
        segment = Segment("cpu", 1.0, 2.0, log=str(log), log_start=0, log_end=9)
        daemon.tasks[number] = a_task(
            number, state="completed", name="n" * (number - 1), segments=[segment]
        )

    heads = "==> task 1 (completed) <==\n{}==> task 2 n (completed) <==\n{}"
    assert text("logs", "1,2") == heads.format("1a\n1b\n1c\n", "2a\n2b\n2c\n")
    assert text("logs", "1,2", "-n", "1") == heads.format("1c\n", "2c\n")
    assert text("logs", "-n", "2", "2") == "2b\n2c\n"
    assert text("logs", "-f", "1", "2").splitlines()[::3] == ["1: 1a", "2: 2a"]
    assert text("logs", "1", "--err") == ""


def test_a_log_that_is_gone_hides_no_others(daemon: FakeDaemon, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        log = tmp_path / f"{number}.log"
        segment = Segment("cpu", 1.0, 2.0, log=str(log), log_start=0, log_end=9)
        daemon.tasks[number] = a_task(number, state="completed", segments=[segment])
    (tmp_path / "2.log").write_text("whole\n")
    killed = Segment("cpu", 1.0, 2.0, log=str(tmp_path / "4.log"))
    daemon.tasks[4] = a_task(4, state="cancelled", segments=[killed])

    result = CliRunner().invoke(main, ["logs", "1-4"])

    assert result.exit_code == 4
    assert "==> task 2 (completed) <==\nwhole\n" in result.stdout
    assert [line.split(" is ")[0] for line in result.stderr.splitlines()] == [
        f"hetctl: task {number}: log {tmp_path / f'{number}.log'}" for number in (1, 3)
    ]


def test_why_tasks_failed(daemon: FakeDaemon) -> None:
    last = LastOutput(1, 1, "it failed", "in its first strip", ["KeyError: 3"])
    daemon.tasks[1] = a_task(1, state="failed", reason="it failed", last_output=last)
    daemon.tasks[2] = a_task(2, state="completed")

    expected = "==> task 1 (failed) <==\nit failed\nKeyError: 3\n"
    assert text("logs", "--err", "1-2") == expected


def test_orders_are_events(daemon: FakeDaemon) -> None:
    orders = [
        Order(1000.0, "hold", 7, "at its submission"),
        Order(1001.0, "set", 0, "priority=3"),
        Order(1002.0, "release", 7),
    ]
    daemon.tasks[1] = a_task(1, submitted=1000.0, orders=orders)

    lines = [json.loads(line) for line in text("events", "1", "--json").splitlines()]

    found = [
        (line["what"], line["state"], line["by"], line["reason"]) for line in lines
    ]
    assert found == [
        ("submitted", "held", None, None),
        ("hold", "held", "uid:7", "at its submission"),
        ("set", "held", "uid:0", "priority=3"),
        ("release", "queued", "uid:7", None),
    ]
    assert "1970-01-01" in text("events", "1").splitlines()[0]


def test_the_end_of_a_followed_task_has_its_result() -> None:
    result = {"loss": math.nan, "model": {"pickled": "Model", "data": b"12345"}}
    change = TaskChanged(1, "completed", 1003.0, what="ended", result=result)

    shown = _event_document(change, frozenset())["result"]

    model = {"pickled": "Model", "data": "<5 bytes>"}
    assert shown == {"loss": "NaN", "model": model}


def test_a_task_that_is_held_later_was_not_submitted_held(daemon: FakeDaemon) -> None:
    orders = [Order(1001.0, "hold", 7)]
    daemon.tasks[1] = a_task(1, submitted=1000.0, orders=orders)

    lines = [json.loads(line) for line in text("events", "1", "--json").splitlines()]

    assert [line["state"] for line in lines] == ["queued", "held"]


@pytest.mark.usefixtures("daemon")
def test_the_configuration_is_shown_with_its_sources() -> None:
    whole = text("config", "show", "--parsable").splitlines()
    changed = document("config", "show", "--changed")

    assert whole[1:] == ['policy|"migration"|file|', "stage|1|default|"]
    assert changed["file"] == "/etc/hetd/hetd.toml"
    assert [each["key"] for each in changed["values"]] == ["policy"]
