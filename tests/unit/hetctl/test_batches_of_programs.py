"""Batch files whose tables describe programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from libtask.attachments import FOLDER, Attachments
from libtask.endpoint import launcher_folder
from libtask.messages import Submit
from unit.hetctl.typed_commands import complaint, document, text

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import TaskSpec
    from unit.fake_daemon import FakeDaemon


def _sent(daemon: FakeDaemon, tmp_path: Path, body: str, *options: str) -> Any:
    path = tmp_path / "b.toml"
    path.write_text(body)
    document("batch", str(path), *options)
    return daemon.requests(Submit)[0].tasks


def _variables(daemon: FakeDaemon, task: TaskSpec) -> set[str]:
    kept = Attachments(launcher_folder(daemon.path) / FOLDER)
    return set(kept.read(task.params["environment"]).decode().split("\0"))


def test_a_table_describes_a_program(daemon: FakeDaemon, tmp_path: Path) -> None:
    body = """
        [[task]]
        command = ["make", "-j2"]
        name = "build"
        input = "part-{index}.txt"
        output = "log-{id}.txt"
        error = "errors.txt"
        cores = 2
        memory = "1M"
        at_once = 1
        begin = "2030-01-02T03:04Z"
        [[task]]
        command = ["make", "install"]
        inputs = [{ from = "build", bytes = 7 }]
    """

    build, install = _sent(daemon, tmp_path, body)

    assert (build.app, build.type, build.kinds) == (
        "command",
        "command/build",
        ["cpu"],
    )
    assert build.params["argv"] == ["make", "-j2"]
    assert [build.params[each] for each in ("input", "output", "error")] == [
        "part-{index}.txt",
        "log-{id}.txt",
        "errors.txt",
    ]
    assert (build.cores, build.memory_bytes, build.begin) == (2, 1 << 20, 1893553440.0)
    assert (build.at_once, build.preemptible) == (1, False)
    assert install.type == "command/make"
    assert [(each.task, each.bytes) for each in install.inputs] == [(-1, 7)]


def test_a_sweep_is_one_program_for_each_value(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    body = """
        [[task]]
        command = ["sort", "part-{n}"]
        name = "sort-{n}"
        output = "sorted-{n}"
        sweep = { n = [1, 2] }
        count = 2
    """

    sent = _sent(daemon, tmp_path, body)

    assert [each.params["argv"][1] for each in sent] == ["part-1"] * 2 + ["part-2"] * 2
    assert [each.name for each in sent] == ["sort-1"] * 2 + ["sort-2"] * 2
    assert sent[3].params["output"] == "sorted-2"
    assert {each.type for each in sent} == {"command/sort-{n}"}


def test_variables_come_from_the_table_the_options_and_the_environment(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("OTHER", "1")
    body = '[[task]]\ncommand = ["env"]\nenv = { A = "table", B = "2" }\n'
    options = ("--env", "A=option", "--env", "C=3", "--export", "MINE")

    (task,) = _sent(daemon, tmp_path, body, *options)

    found = _variables(daemon, task)
    assert {"A=table", "B=2", "C=3", "MINE=1"} <= found
    assert not {"OTHER=1", "A=option"} & found


def test_the_whole_environment_is_passed_by_default(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "1")

    (task,) = _sent(daemon, tmp_path, '[[task]]\ncommand = ["env"]\n')

    assert "MINE=1" in _variables(daemon, task)


def test_a_check_keeps_no_environment(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text('[[task]]\ncommand = ["env"]\n')

    assert "1 tasks, no mistakes" in text("batch", str(path), "--check")
    assert not (launcher_folder(daemon.path) / FOLDER).exists()


def test_on_takes_a_kind(daemon: FakeDaemon, tmp_path: Path) -> None:
    body = '[[task]]\ncommand = ["true"]\non = ["gpu"]\n'

    (task,) = _sent(daemon, tmp_path, body)

    assert (task.resources, task.kinds) == (["gpu0"], ["gpu"])


def test_all_mistakes_are_told_at_once(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text("""
        [[task]]
        command = []
        [[task]]
        command = "make -j2"
        [[task]]
        app = "synthetic"
        command = ["true"]
        [[task]]
        command = ["true"]
        params = { n = 1 }
        [[task]]
        name = "neither"
        [[task]]
        command = ["true"]
        env = { A = 1 }
        [[task]]
        command = ["true"]
        env = { "" = "1" }
        [[task]]
        command = ["true"]
        output = "x-{task}"
        [[task]]
        command = ["true"]
        inputs = [{ from = 7, parameter = "n" }]
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        output = "log"
        [[task]]
        command = [""]
        on = ["fpga"]
        [[task]]
        command = ["true"]
        env = { "A=B" = "1" }
    """)

    lines = complaint("batch", str(path)).splitlines()

    expected = (
        "task[0].command: expected a program and its arguments",
        'task[1].command: expected a list, got "make -j2"',
        "task[2].command: expected either app or command",
        "task[3].params: only an application has it",
        "task[4].app: missing; for a program: command",
        "task[5].env.A: expected a text, got 1",
        "task[6]: env: '' is not the name of a variable",
        "task[7]: x-{task}: file names may contain",
        "task[8].inputs: a program has no parameter that takes a result",
        "task[9].output: only a program has it",
        "task[10].on: no resource of kind fpga",
        "task[10].command: a command needs a program",
        "task[11]: env: 'A=B' is not the name of a variable",
    )
    told = "\n".join(lines)
    assert [text for text in expected if text not in told] == []
    assert not daemon.requests(Submit)
