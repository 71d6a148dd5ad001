"""Malformed scenarios: one line that names the place, and exit status 2."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hetsim.scenario import decode_scenario
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def a_document(**keys: Any) -> dict[str, Any]:
    return {
        "format": "hetsim/scenario-1",
        "resources": [{"name": "cpu", "kind": "cpu", "busy_watts": None}],
        "types": [{"name": "t", "seconds": {"cpu": 1.5, "gpu0": None}}],
        "tasks": [{"id": "a", "type": "t"}],
        **keys,
    }


def a_document_with_task(**keys: Any) -> dict[str, Any]:
    return a_document(tasks=[{"id": "a", "type": "t", **keys}])


def a_document_with_type(**keys: Any) -> dict[str, Any]:
    return a_document(types=[{"name": "t", "seconds": {}, **keys}])


COMPLAINTS: list[tuple[Any, str]] = [
    (
        a_document_with_task(deadline="soon"),
        'tasks[0].deadline: expected a number, got "soon"',
    ),
    (a_document_with_task(priority=1.5), "tasks[0].priority: expected a whole number"),
    (a_document_with_task(arrival=-1), "tasks[0].arrival: expected a number >= 0.0"),
    (a_document_with_task(type="x"), 'tasks[0].type: no type "x"; there are: "t"'),
    (a_document_with_task(after=["x"]), 'tasks[0].after[0]: no task "x"'),
    (a_document_with_task(after=["a"]), "tasks[0].after: a circle"),
    (
        a_document_with_task(actual_seconds={"cpu": "x"}),
        'tasks[0].actual_seconds.cpu: expected a number, got "x"',
    ),
    (
        a_document_with_type(seconds={"cpu": 1, "gpu0": -2}),
        "types[0].seconds.gpu0: expected a number >= 0.0, got -2",
    ),
    (a_document_with_type(strips=0), "types[0].strips: expected a whole number >= 1"),
    (
        a_document_with_type(overrun="stop"),
        'types[0].overrun: expected "continue" or "stop_at_deadline", got "stop"',
    ),
    (a_document(resources=[]), "resources: expected a list of length >= 1"),
    (a_document(resources=[{"kind": "cpu"}]), "resources[0].name: is missing"),
    (
        a_document(resources=[{"name": "cpu"}, {"name": "cpu"}]),
        'resources[1].name: "cpu" is there already',
    ),
    (a_document(types={}), "types: expected a list, got {}"),
    (a_document(format="x"), 'format: expected "hetsim/scenario-1", got "x"'),
    ([], "expected an object, got []"),
]


@pytest.mark.parametrize(("document", "complaint"), COMPLAINTS)
def test_the_complaint_names_the_place(document: Any, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_scenario(json.dumps(document))

    assert str(caught.value).startswith(complaint)


def test_text_that_is_not_json_is_a_complaint() -> None:
    with pytest.raises(InputError, match="JSON is malformed"):
        decode_scenario("{]")


def test_nulls_are_defaults_and_unknown_keys_are_ignored() -> None:
    document = a_document_with_task(
        arrival=None, deadline=None, priority=None, after=None, actual_seconds=None, x=1
    )

    assert decode_scenario(json.dumps(document)).tasks[0].after is None


def run_command(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hetsim", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_names_file_and_place_and_exits_with_2(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(a_document_with_task(deadline="soon")))

    status, output, complaint = run_command("run", str(path), "--policy", "affinity")

    assert (status, output) == (2, "")
    assert complaint == (f'{path}: tasks[0].deadline: expected a number, got "soon"\n')


def test_the_command_prints_one_result(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(a_document()))

    status, output, complaint = run_command("run", str(path), "--json")

    assert (status, complaint) == (0, "")
    result = json.loads(output)
    assert result["format"] == "hetsim/result-1"
    assert (result["policy"], result["makespan"]) == ("finish-time", 1.5)
    assert result["lower_bound"] == 1.5
    assert result["tasks"][0]["segments"] == [
        {"resource": "cpu", "start": 0.0, "finish": 1.5}
    ]


def test_a_missing_file_a_wrong_policy_and_a_wrong_setting_are_bad_input(
    tmp_path: Path,
) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(a_document()))

    assert run_command("run", str(tmp_path / "absent.json"))[0] == 2
    assert run_command("run", str(path), "--policy", "none")[0] == 2
    assert run_command("run", str(path), "--set", "caution")[0] == 2
    assert run_command("run", str(path), "--set", "caution=much")[0] == 2
    twice = run_command("run", str(path), "--set", "caution=1", "--set", "caution=2")
    assert twice[0] == 2
    assert "--set: caution is given twice" in twice[2]
