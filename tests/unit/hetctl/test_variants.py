"""Arrays and sweeps: the tasks of one description, and their selection."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from hetctl.submission.batchfile import BatchFile
from hetctl.submission.programs import Environments
from hetctl.submission.variants import combinations, filled, indexes, member
from hetctl.waiting import ranges
from libtask.errors import InputError
from libtask.messages import Control, Submit
from libtask.names import bears
from unit.fake_daemon import FakeDaemon, a_task

if TYPE_CHECKING:
    from pathlib import Path

SYNTHETIC = ("submit", "synthetic", "--seconds", '{"cpu": 1}')


def said(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7", [7]),
        ("0-3", [0, 1, 2, 3]),
        ("0-9:4", [0, 4, 8]),
        ("5,1-2,1", [5, 1, 2]),
    ],
)
def test_indexes_of_an_array(text: str, found: list[int]) -> None:
    assert indexes(text) == found


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-5:0", "-3", "1-", "0-9999999"])
def test_an_error_about_an_array_shows_the_expected_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected indexes such as|more than"):
        indexes(text)


def test_a_sweep_combines_and_a_zip_goes_side_by_side() -> None:
    found = combinations({"a": [1, 2]}, {"b": ["x", "y"], "c": [8, 9]})

    assert found == [
        {"a": 1, "b": "x", "c": 8},
        {"a": 1, "b": "y", "c": 9},
        {"a": 2, "b": "x", "c": 8},
        {"a": 2, "b": "y", "c": 9},
    ]
    assert combinations({}, {}) == [{}]


def test_values_fill_texts_and_leave_other_braces() -> None:
    variant = {"n": 64, "index": 3}

    assert filled({"out": ["p-{n}.{index}", "{m}", 5]}, variant) == {
        "out": ["p-64.3", "{m}", 5]
    }
    assert member("run", variant, 3) == "run.3"
    assert member("run-{n}", variant, 3) == "run-64"
    assert member("run", {}, None) == "run"
    assert member("", variant, 3) == ""


def test_a_name_selects_its_array_and_globs_select_more() -> None:
    names = ["run", "run.0", "run.10", "run.x", "other", ""]

    assert [name for name in names if bears(name, "run")] == ["run", "run.0", "run.10"]
    assert [name for name in names if bears(name, "*n.?")] == ["run.0", "run.x"]
    assert [name for name in names if bears(name, "run.10")] == ["run.10"]


def test_ids_with_gaps_are_printed_as_ranges() -> None:
    assert ranges([1, 2, 3, 7, 9, 10]) == ["1-3", "7", "9-10"]


def test_an_array_is_submitted_and_cancelled_by_its_name(daemon: FakeDaemon) -> None:
    words = ("--label", "part {index}", "--array", "0-2", "--name", "sweep")

    told = said(*SYNTHETIC, *words)

    specs = daemon.requests(Submit)[0].tasks
    assert told == "tasks 1-3 submitted; select them as @sweep\n"
    assert [each.name for each in specs] == ["sweep.0", "sweep.1", "sweep.2"]
    assert [each.params["label"] for each in specs] == ["part 0", "part 1", "part 2"]
    daemon.tasks = {1: a_task(1, name="sweep.0"), 2: a_task(2, name="sweeper")}
    said("cancel", "@sweep")
    assert [each.ids for each in daemon.requests(Control)] == [[1]]
    assert "no task of that name" in said("show", "@nobody", status=4)


def test_an_array_without_a_name_gets_one(daemon: FakeDaemon) -> None:
    name = json.loads(said(*SYNTHETIC, "--array", "5", "--json"))["name"]

    assert name.startswith("synthetic-")
    assert daemon.requests(Submit)[0].tasks[0].name == f"{name}.5"
    assert "expected indexes" in said(*SYNTHETIC, "--array", "x", status=2)
    many = said(*SYNTHETIC, "--array", "0-1", "--count", "500001", status=2)
    assert many == "hetctl: --array, --count: 1000002 tasks; 1000000 are the limit\n"


# ---------------------------------------------------------------- batch files


def read(tmp_path: Path, text: str, kinds: dict[str, str] | None = None) -> list[Any]:
    path = tmp_path / "b.toml"
    path.write_text(text)
    return BatchFile(path, Environments(), kinds).read()


def test_a_sweep_in_a_batch_file(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        [[task]]
        app = "synthetic"
        name = "s"
        params = { seconds = { cpu = 1.0 }, label = "{strips} of {state_bytes}" }
        sweep = { strips = [2, 4] }
        zip = { state_bytes = [10, 20], move_seconds = [0.1, 0.2] }
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        after = ["s"]
        """,
    )

    labels = [each.params["label"] for each in found[:4]]
    assert labels == ["2 of 10", "2 of 20", "4 of 10", "4 of 20"]
    assert [each.name for each in found[:4]] == ["s.0", "s.1", "s.2", "s.3"]
    assert [each.params["move_seconds"] for each in found[:4]] == [0.1, 0.2] * 2
    assert found[4].after == [-4, -3, -2, -1]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("sweep = { strip = [1] }", "task[0].params: Synthetic: unknown parameter"),
        ('sweep = { strips = ["x"] }', "expected int, got 'x' with strips = 'x'"),
        ("sweep = { strips = [] }", "task[0].sweep.strips: expected some values"),
        ("sweep = { seconds = [{ cpu = 2.0 }] }", "task[0].sweep.seconds: given twice"),
        (
            "zip = { strips = [1, 2], state_bytes = [1] }",
            "task[0].zip: expected lists of one length: strips has 2, state_bytes has 1",
        ),
        (
            "sweep = { strips = [1, 2] }\ncount = 500_001",
            "task[0].count: 1000002 tasks; 1000000 are the limit",
        ),
        ("sweep = 3", "task[0].sweep: expected a table, got 3"),
        ('on = ["gpu7"]', "task[0].on[0]: no resource 'gpu7' (did you mean gpu0?)"),
        ('on = ["gpu0"]', "task[0].on: synthetic cannot run on gpu0"),
    ],
)
def test_mistakes_are_named_by_their_place(
    tmp_path: Path, line: str, complaint: str
) -> None:
    text = (
        f'[[task]]\napp = "synthetic"\nparams = {{ seconds = {{ cpu = 1.0 }} }}\n{line}'
    )

    with pytest.raises(InputError) as caught:
        read(tmp_path, text, {"cpu": "cpu", "gpu0": "gpu"})

    assert complaint in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_check_asks_the_daemon_for_its_resources(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    path = tmp_path / "b.toml"
    path.write_text('[[task]]\napp = "heat"\non = ["gpu1"]\n')

    assert "task[0].on[0]: no resource 'gpu1'" in said(
        "batch", str(path), "--check", status=2
    )
    nobody = ("--socket", str(tmp_path / "none"))
    assert "resources were not checked" in said("batch", str(path), "--check", *nobody)
    assert daemon.requests(Submit) == []
