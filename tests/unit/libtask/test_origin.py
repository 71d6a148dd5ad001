"""Origins: which variables and paths a task gets, and which interpreter serves it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from libtask.errors import InputError
from libtask.messages import TaskSpec
from libtask.origin import (
    ENVIRONMENT_BYTES,
    current_folder,
    exported,
    here,
    interpreter_of,
    own_interpreter,
    packed,
    unpacked,
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in {"HOME": "/home/ann", "WORD": "x", "PATH": "/bin"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        ("all", {b"HOME": b"/home/ann", b"PATH": b"/bin", b"WORD": b"y"}),
        ("none", {b"HOME": b"/home/ann", b"PATH": b"/bin", b"WORD": b"y"}),
        ("WORD", {b"HOME": b"/home/ann", b"PATH": b"/bin", b"WORD": b"y"}),
    ],
)
def test_given_variables_take_precedence(
    export: str, expected: dict[bytes, bytes]
) -> None:
    found = exported(export, {"WORD": "y"})
    found.pop(b"PYTEST_CURRENT_TEST", None)

    assert found == expected


def test_only_named_variables_and_those_of_every_task_are_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTHER", "z")

    assert b"WORD" not in exported("none", {})
    assert exported("WORD", {}).keys() == {b"HOME", b"PATH", b"WORD"}


@pytest.mark.parametrize(
    ("export", "variables", "complaint"),
    [
        ("NOPE", {}, "export: there is no variable 'NOPE'"),
        ("all", {"": "x"}, "expected KEY=VALUE"),
        ("all", {"A=B": "x"}, "expected KEY=VALUE"),
        ("all", {"A": "x\0y"}, "expected KEY=VALUE"),
        (
            "all",
            {"A": "x" * ENVIRONMENT_BYTES},
            "pass fewer variables, such as export=A,B",
        ),
    ],
)
def test_bad_environments_are_refused(
    export: str, variables: dict[str, str], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        exported(export, variables)


def test_an_origin_holds_no_variables_of_one_command_or_of_another_task() -> None:
    origin = here(
        {b"_": b"1", b"PWD": b"/", b"SHLVL": b"2", b"HETD_TASK": b"7", b"A": b"\xff"}
    )

    assert origin.variables == {b"A": b"\xff"}
    assert unpacked(packed(origin)) == origin


def test_the_folder_of_a_notebook_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(Path(sys.executable).parent), "/lib"])

    assert here({}).path == [os.fsencode(tmp_path), b"/lib"]


def test_equal_environments_have_one_encoding() -> None:
    one = here({b"A": b"1", b"B": b"2"})

    assert packed(one) == packed(here({b"B": b"2", b"A": b"1"}))


def test_something_else_is_not_an_origin() -> None:
    with pytest.raises(InputError, match="not the environment of a submission"):
        unpacked(b"A=1\0B=2")


def test_only_variables_read_at_the_start_need_another_process() -> None:
    own = own_interpreter()

    assert interpreter_of(here(exported("all", {"WORD": "other"}))) == own
    assert interpreter_of(here(exported("all", {"PYTHONPATH": "/x"}))) != own
    assert interpreter_of(here(exported("all", {"OMP_NUM_THREADS": "3"}))) != own


def test_another_environment_of_the_same_python_needs_another_process() -> None:
    origin = msgspec.structs.replace(
        here(exported("all", {})), prefix=b"/home/ann/venv"
    )

    assert interpreter_of(origin) != own_interpreter()


def test_the_origin_is_the_last_attachment() -> None:
    assert TaskSpec("a", attachments=["x", "y"], from_origin=True).origin == "y"
    assert TaskSpec("a", attachments=["x", "y"]).origin == ""
    assert TaskSpec("a", from_origin=True).origin == ""


def test_a_folder_that_was_removed_is_named_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert current_folder() == str(gone)
    gone.rmdir()

    with pytest.raises(InputError, match="the current folder was removed"):
        current_folder()
