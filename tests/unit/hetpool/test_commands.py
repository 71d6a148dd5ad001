"""Programs as jobs, and their folders on a node: what is refused, packed, kept and removed."""

from __future__ import annotations

import io
import os
import re
import tarfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hetpool import messages as m
from hetpool.client.describing import Input, described
from hetpool.jobs import InputFile, PoolJob, SentFile
from hetpool.messages import decode, encode
from hetpool.node.commands import KEPT_S, NodeCommands
from libtask.commands import Command
from libtask.errors import InputError
from unit.hetpool.fake_engine import a_job

SAVES: dict[str, Any] = {"argv": ["./train"], "stop_signal": 15}


def bring(path: Path) -> InputFile:
    return InputFile(f"{len(str(path)):064x}", 100, ("gate",), path.suffix)


def a_command(app: Any, *arguments: Any, **options: Any) -> PoolJob:
    return described(app, arguments, options, bring)


# ------------------------------------------------------------ as a job


def test_a_program_is_plain_and_its_files_have_their_names(tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.touch(mode=0o755)

    job = a_command(
        Command(["./train", "--fast"], output="log-{index}.txt", index=3),
        files=[program],
        env={"A": "1"},
    )

    assert job.is_command
    assert job.call == b""
    assert job.params == {
        "argv": ["./train", "--fast"],
        "output": "log-3.txt",
        "index": 3,
    }
    assert job.options == {"env": {"A": "1"}}
    (sent,) = job.sent
    assert (sent.name, sent.executable) == ("train", True)
    assert [file.mark for file in job.inputs] == [sent.mark]
    assert decode(PoolJob, encode(job)) == job


def test_an_input_may_be_a_word_of_a_program() -> None:
    job = a_command("command", {"argv": ["sort", Input("a.txt")], "output": "b"})

    assert job.params["argv"] == ["sort", job.inputs[0].mark]


def test_what_is_exported_comes_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "yes")
    monkeypatch.setenv("HETD_TASK", "7")
    command = Command(["true"])

    assert "env" not in a_command(command).options
    assert a_command(command, export="MINE").options["env"] == {"MINE": "yes"}
    everything = a_command(command, export="all", env={"MINE": "no"}).options["env"]
    assert everything["MINE"] == "no"
    assert "HETD_TASK" not in everything


@pytest.mark.parametrize(
    ("params", "options", "said"),
    [
        ({"argv": ["./train"]}, {}, "./train: a command runs in a folder of its own"),
        ({"argv": ["true"], "output": "/a"}, {}, "a path needs cwd"),
        ({"argv": ["true"], "output": "log-{id}"}, {}, "{id} differs"),
        ({"argv": ["true"]}, {"cwd": "here"}, "expected a whole path"),
        ({"argv": ["true"]}, {"export": "NO_SUCH"}, "no variable 'NO_SUCH'"),
        ({"argv": ["true"]}, {"env": {"A=B": "1"}}, "expected KEY=VALUE"),
        ({"argv": ["true"]}, {"env": {"A": "\udc80"}}, "not UTF-8"),
        ({"argv": []}, {}, "a command needs a program"),
        ({"argv": ["true"], "script": "x"}, {}, "has no script"),
        ({"argv": ["true"]}, {"files": ["/a/b", "/c/b"]}, "two files named b"),
        ({"argv": ["true"]}, {"files": ["/etc"]}, "is a folder"),
    ],
)
def test_what_a_node_could_not_run_is_refused_here(
    params: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        a_command("command", params, **options)
    assert "\n" not in str(caught.value)


def test_files_are_for_programs() -> None:
    with pytest.raises(InputError, match="files are for commands"):
        a_command("heat", {"n": 64}, files=["a"])


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 256, "a\0"])
def test_names_that_leave_the_folder_are_refused_on_arrival(name: str) -> None:
    job = encode(replace(a_job(), sent=(SentFile(name, "m"),)))

    with pytest.raises(InputError):
        decode(PoolJob, job)


# ------------------------------------------------------------ on a node


@dataclass
class FakeClient:
    """hetd as it is asked about one command."""

    path: Path
    info: Any = field(
        default_factory=lambda: SimpleNamespace(
            state="held", suspended=False, resource=None, segments=[1], params={}
        )
    )
    held: list[int] = field(default_factory=list)

    def show(self, _task: int) -> Any:
        return self.info

    def hold(self, task: int) -> None:
        self.held.append(task)


@pytest.fixture
def client(tmp_path: Path) -> Any:
    return FakeClient(tmp_path / "h.sock")


def node(client: Any, tmp_path: Path, name: str = "n1") -> NodeCommands:
    return NodeCommands(client, tmp_path / name)


def a_program(**fields: Any) -> PoolJob:
    return replace(a_job(), app="command", params=dict(SAVES), **fields)


def test_a_command_is_packed_and_goes_on_in_another_folder(
    client: Any, tmp_path: Path
) -> None:
    job, target = a_program(), tmp_path / "packed"
    first = node(client, tmp_path).prepared(job, {}, m.JobTerms(job.id), None)
    here = Path(first.cwd)
    (here / "state.npz").write_bytes(b"half")
    (here / "deep").mkdir()
    (here / "deep" / "link").symlink_to("/absolute")
    os.mkfifo(here / "pipe")

    starts = node(client, tmp_path).pack(job, 0, 1, target)
    saved = m.SnapshotFile("ab" * 32, 10, "n1", starts)
    terms = m.JobTerms(job.id, generation=5, snapshot=saved)
    second = node(client, tmp_path, "n2").prepared(job, {}, terms, target)

    there = Path(second.cwd)
    assert there.name == f"{job.id}.5"
    assert (there / "state.npz").read_bytes() == b"half"
    assert (there / "deep" / "link").readlink() == Path("/absolute")
    assert not (there / "pipe").exists()
    assert (first.command.starts_before, second.command.starts_before) == (0, 1)


def test_files_of_the_folder_are_copies_with_their_modes(
    client: Any, tmp_path: Path
) -> None:
    stored = tmp_path / "stored"
    stored.write_text("program")
    job = a_command(Command(["a"]), files=[stored])
    places = {job.sent[0].mark: str(stored)}

    prepared = node(client, tmp_path).prepared(job, places, m.JobTerms(job.id), None)

    copy = Path(prepared.cwd) / "stored"
    copy.write_text("changed")
    assert stored.read_text() == "program"
    assert copy.stat().st_mode & 0o777 == 0o600


def test_an_archive_that_leaves_its_folder_is_refused(
    client: Any, tmp_path: Path
) -> None:
    archive = tmp_path / "evil"
    with tarfile.open(archive, "w") as made:
        made.addfile(tarfile.TarInfo("../escaped"), io.BytesIO())
    job = a_program()

    with pytest.raises(InputError, match="the command's folder"):
        node(client, tmp_path).prepared(job, {}, m.JobTerms(job.id), archive)
    assert not list((tmp_path / "n1").iterdir())


def test_a_command_that_has_not_begun_or_has_ended_takes_nothing_along(
    client: Any, tmp_path: Path
) -> None:
    job, target = a_program(), tmp_path / "packed"
    commands = node(client, tmp_path)
    client.info.segments = []
    assert commands.pack(job, 0, 1, target) == 0
    client.info = SimpleNamespace(state="completed", segments=[1], params={})
    assert commands.pack(job, 0, 1, target) == 0
    assert not target.exists()


@pytest.mark.parametrize(
    ("params", "state", "asked"),
    [
        (SAVES, "running", True),
        ({"argv": ["a"], "resumable": True}, "running", True),
        ({"argv": ["a"]}, "queued", True),
        ({"argv": ["a"]}, "running", False),
    ],
)
def test_only_what_saves_its_state_is_asked_to_leave(
    client: Any, tmp_path: Path, params: dict[str, Any], state: str, *, asked: bool
) -> None:
    job = replace(a_program(), params=params)
    client.info.state = state
    commands = node(client, tmp_path)

    if asked:
        commands.ask_to_leave(job, 1)
    else:
        with pytest.raises(InputError, match="cannot save its state"):
            commands.ask_to_leave(job, 1)

    assert client.held == ([1] if asked else [])


def test_old_folders_and_the_oldest_of_too_many_are_removed(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetpool.node.commands.MOST_FOLDERS", 3)
    commands = node(client, tmp_path)
    now = (tmp_path / "n1").stat().st_mtime
    ages = [KEPT_S + 100.0, KEPT_S + 100.0, 40.0, 30.0, 20.0, 10.0]
    for number, age in enumerate(ages):
        folder = commands.folder("job", number)
        folder.mkdir()
        os.utime(folder, (now - age, now - age))

    commands.tidy({"job.1"})

    left = {path.name for path in (tmp_path / "n1").iterdir()}
    assert left == {"job.1", "job.3", "job.4", "job.5"}
