"""Tasks, columns and order in `list` and `history`; `@NAME`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from hetctl import selectors
from hetctl.__main__ import main
from hetctl.output import LONGEST_TYPE, now
from libtask.messages import ENDED, Control, ListTasks
from unit.fake_daemon import ANOTHER_USER, FakeDaemon, a_task
from unit.hetctl.typed_commands import document, text

if TYPE_CHECKING:
    from collections.abc import Sequence


def ids(*words: str) -> list[int]:
    return [task["id"] for task in document(*words)["tasks"]]


def ago(seconds: float) -> float:
    return time.time() - seconds  # noqa: TID251  commands take the time of day


@pytest.fixture
def old_and_new(daemon: FakeDaemon) -> FakeDaemon:
    daemon.tasks = {
        1: a_task(1, state="failed", submitted=1.0, finished=ago(90_000)),
        2: a_task(2, state="completed", submitted=1.0, finished=ago(3600)),
        3: a_task(3, state="running", submitted=ago(200_000), name="b", progress=0.5),
        4: a_task(4, submitted=ago(10), name="a", owner="uid:4123456"),
    }
    return daemon


@pytest.mark.usefixtures("old_and_new")
def test_unfinished_tasks_and_those_ended_within_a_day_are_listed() -> None:
    assert ids("list") == [2, 3, 4]
    assert ids("list", "--all") == ids("list", "all") == [1, 2, 3, 4]
    assert ids("list", "--since", "30min") == [3, 4]
    assert ids("list", "1") == [1]
    assert ids("list", "--user", "4123456") == [4]
    assert ids("list", "--all", "--state", "failed") == [1]


@pytest.mark.usefixtures("old_and_new")
def test_a_cut_listing_is_reported() -> None:
    result = CliRunner().invoke(main, ["list", "--limit", "2"])
    found = document("list", "--limit", "2")

    assert result.stderr == "hetctl: showing the newest 2 of 3; --limit 3 shows all\n"
    assert (found["total"], found["truncated"]) == (3, True)
    assert [task["id"] for task in found["tasks"]] == [3, 4]
    whole = document("list")
    assert (whole["total"], whole["truncated"]) == (3, False)
    past = document("history", "--limit", "1")
    assert (past["total"], past["truncated"], len(past["tasks"])) == (2, True, 1)


@pytest.mark.usefixtures("old_and_new")
def test_a_cut_listing_of_tasks_in_some_states_is_reported() -> None:
    words = ["list", "--state", "running", "--state", "queued", "--limit"]
    result = CliRunner().invoke(main, [*words, "1"])

    assert result.stderr == "hetctl: showing the newest 1 of 2; --limit 2 shows all\n"
    assert document(*words, "1")["total"] == 2
    assert not CliRunner().invoke(main, [*words, "2"]).stderr


def test_history_has_the_last_to_end_first_however_long_ago_it_came(
    daemon: FakeDaemon,
) -> None:
    ends = [ago(number) for number in range(500, 0, -1)]
    daemon.tasks = {
        number: a_task(number, state="completed", submitted=1.0, finished=end)
        for number, end in enumerate([ago(0.5), *ends], 1)
    }

    found = document("history", "--limit", "3")

    assert [task["id"] for task in found["tasks"]] == [1, 501, 500]
    assert (found["total"], found["truncated"]) == (501, True)
    pages = [page for page in daemon.requests(ListTasks) if page.ids is None]
    read = [page.limit for page in pages if page.since is None and not page.count]
    assert read == [30]  # the others are found by their ends


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "snapshot"])
def test_all_means_what_has_not_ended_without_reading_the_past(
    daemon: FakeDaemon, verb: str
) -> None:
    daemon.tasks = {1: a_task(1, state="completed"), 2: a_task(2, state="running")}

    CliRunner().invoke(main, [verb, "all"])

    (asked,) = daemon.requests(ListTasks)
    assert not ENDED & set(asked.states)
    assert [each.ids for each in daemon.requests(Control)] == [[2]]


def test_without_a_selector_the_newest_tasks_are_looked_at(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "RECENT", 2)
    daemon.tasks = {
        number: a_task(number, state="completed", submitted=ago(9), finished=ago(8))
        for number in range(1, 5)
    }

    cut = "hetctl: the newest 2 tasks; --since, ids or `all` select others\n"
    result = CliRunner().invoke(main, ["report", "--json", "--no-bound"])
    assert result.stderr == cut
    assert [task["id"] for task in json.loads(result.stdout)["tasks"]] == [3, 4]
    whole = CliRunner().invoke(main, ["report", "--json", "--no-bound", "all"])
    assert (whole.stderr, len(json.loads(whole.stdout)["tasks"])) == ("", 4)


@pytest.mark.usefixtures("old_and_new")
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["-o", "id,name,done"], ["ID|NAME|DONE", "2|-|0 %", "3|b|50 %", "4|a|0 %"]),
        (["-o", "id", "--sort", "name"], ["ID", "4", "3", "2"]),
        (["-o", "ID", "--sort", "-done"], ["ID", "3", "2", "4"]),
        (["-o", "id,user", "--user", "4123456"], ["ID|USER", "4|4123456"]),
    ],
)
def test_columns_and_their_order_are_chosen(
    words: Sequence[str], lines: list[str]
) -> None:
    assert text("list", "--parsable", *words).splitlines() == lines


def test_bars_and_lines_in_names_break_no_columns(daemon: FakeDaemon) -> None:
    daemon.tasks[1] = a_task(1, name="a|b\nc")

    assert text("list", "--parsable", "-o", "id,name").splitlines()[1:] == ["1|a/b\\nc"]


def test_wide_and_combining_characters_keep_columns_aligned(
    daemon: FakeDaemon,
) -> None:
    names = {1: "計算", 2: "e\u0301tude", 3: "plain"}
    daemon.tasks = {task: a_task(task, name=name) for task, name in names.items()}

    assert text("list", "-o", "name,id").splitlines() == [
        "NAME   ID",
        "計算   1",
        "e\u0301tude  2",
        "plain  3",
    ]


@pytest.mark.parametrize("command", ["list", "history"])
def test_an_error_about_an_unknown_column_lists_the_columns(
    daemon: FakeDaemon, command: str
) -> None:
    for option in ("-o", "--sort"):
        result = CliRunner().invoke(main, [command, option, "stat"])

        assert result.exit_code == 2
        assert "no column 'stat' (did you mean state?); there are: id" in result.output
    assert not daemon.requests(ListTasks)


def test_a_name_means_its_newest_submission(daemon: FakeDaemon) -> None:
    def a_member(number: int, name: str, submission: int) -> None:
        daemon.tasks[number] = a_task(number, name=name, submission=submission)

    for number, name, submission in (
        (1, "study.0", 1),
        (2, "study.1", 1),
        (3, "x", 3),
        (4, "study.0", 4),
        (5, "study.1", 4),
        (6, "study.0", 4),  # of another message of the same submission
        (7, "studio", 7),
    ):
        a_member(number, name, submission)

    assert ids("show", "@study") == [4, 5, 6]
    assert ids("show", "@study:all") == [1, 2, 4, 5, 6]
    assert ids("show", "@stud*") == [4, 5, 6, 7]
    assert document("show", "@study.1")["id"] == 5
    assert ids("show", "@study.1:all") == [2, 5]


def test_a_name_means_the_callers_own_submission_before_those_of_others(
    daemon: FakeDaemon,
) -> None:
    others = {"owner": ANOTHER_USER, "submission": 3}
    daemon.tasks = {
        1: a_task(1, name="model", submission=1),
        2: a_task(2, name="model", submission=2),
        3: a_task(3, name="model", **others),
        4: a_task(4, name="theirs", **others),
    }

    assert document("show", "@model")["id"] == 2
    assert ids("show", "@model:all") == [1, 2, 3]
    assert document("show", "@theirs")["id"] == 4


def test_tasks_of_before_count_as_one_submission(daemon: FakeDaemon) -> None:
    daemon.tasks = {number: a_task(number, name=f"a.{number}") for number in (1, 2)}

    assert ids("show", "@a") == [1, 2]


def test_a_task_that_waits_for_its_time_says_when_it_begins(
    daemon: FakeDaemon,
) -> None:
    begins = time.time() + 40.0  # noqa: TID251  shown from the time of day
    daemon.tasks = {1: a_task(1, state="waiting", begins=begins)}

    assert text("list", "-o", "note").splitlines()[1].startswith("begins in ")


def test_a_task_that_pauses_says_when_it_retries_and_why(daemon: FakeDaemon) -> None:
    pauses = {"retries": 3, "retried": 1, "begins": time.time() + 40.0}  # noqa: TID251  shown from the time of day
    reason = "exit status 3"
    daemon.tasks = {1: a_task(1, state="waiting", reason=reason, **pauses)}

    (found,) = document("list")["tasks"]

    assert text("list", "-o", "note").rstrip().endswith(" s: exit status 3")
    assert "retries in" in text("show", "1")
    assert "1 of 3" in text("show", "1")
    assert (found["retries"], found["retried"], found["reason"]) == (3, 1, reason)


@pytest.mark.parametrize("command", ["list", "progress 1-3", "history", "report"])
def test_a_long_type_is_shortened_in_tables_and_whole_elsewhere(
    daemon: FakeDaemon, command: str
) -> None:
    state = "completed" if command in {"history", "report"} else "running"
    types = [f"heat/{'x' * 500}{end}" for end in ("n=4096,steps=1", "n=4096,steps=2")]
    for number, task_type in enumerate([*types, "heat/4096"], 1):
        daemon.tasks[number] = a_task(
            number, type=task_type, state=state, started=now() - 2, finished=now() - 1
        )

    shown = text(*command.split()).splitlines()

    for end in "12":
        short = f"heat/{'x' * 26}…{'x' * 2}n=4096,steps={end}"
        assert len(short) == LONGEST_TYPE
        assert any(f" {short} " in line for line in shown)
    assert any(" heat/4096 " in line for line in shown)
    if command == "list":
        whole = text("list", "--parsable", "-o", "type").splitlines()
        assert whole == ["TYPE", *types, "heat/4096"]
        assert [each["type"] for each in document("list")["tasks"]][:2] == types
