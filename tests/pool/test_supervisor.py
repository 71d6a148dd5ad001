"""Processes that a pool's supervisor looks after: restarted when they end, ended with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from hetpool.setup.supervisor import Role, pid_of, roles_in, start, stop
from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEADLINE_S = 60.0
NOTING = "import os, signal; open(os.environ['NOTE'], 'a').write(f'{os.getpid()}\\n'); signal.pause()"
"""A program that notes its pid and waits for a signal."""


class Folder:
    """A supervisor's folder; the process is a child of the test and collected by it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *roles: Role) -> int:
        self.started.append(start(self.path, roles))
        return self.started[-1].pid

    def end(self) -> bool:
        stopped = stop(self.path)
        for process in self.started:
            process.wait(DEADLINE_S)
        return stopped


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "state")
    yield made
    made.end()


def role(note: Path, name: str = "noting") -> Role:
    return Role(name, (sys.executable, "-c", NOTING), {"NOTE": str(note)})


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        select.select([], [], [], 0.02)


def pids(note: Path) -> list[int]:
    return [int(word) for word in note.read_text().split()] if note.exists() else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_that_is_killed_is_started_again(
    folder: Folder, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    supervisor = folder.start(role(note))

    assert pid_of(folder.path) == supervisor
    until(lambda: len(pids(note)) == 1, "it does not start")
    os.kill(pids(note)[0], signal.SIGKILL)
    until(lambda: len(pids(note)) == 2, "it is not started again")
    assert alive(pids(note)[1])
    assert (
        f"noting: process {pids(note)[0]} ended: -9"
        in (folder.path / "supervisor.log").read_text()
    )


def test_all_end_with_it(folder: Folder, tmp_path: Path) -> None:
    notes = [tmp_path / name for name in "ab"]
    folder.start(*[role(note, note.name) for note in notes])
    until(lambda: all(pids(note) for note in notes), "they do not start")

    assert folder.end()
    assert not any(alive(pid) for note in notes for pid in pids(note))
    assert pid_of(folder.path) is None
    assert not folder.end()


def test_its_processes_end_when_it_is_killed(folder: Folder, tmp_path: Path) -> None:
    note = tmp_path / "note"
    supervisor = folder.start(role(note))
    until(lambda: len(pids(note)) == 1, "it does not start")

    os.kill(supervisor, signal.SIGKILL)
    folder.started[0].wait(DEADLINE_S)
    until(lambda: not alive(pids(note)[0]), "its process was left")
    assert pid_of(folder.path) is None


ATTACHED = """
import os, sys
from pathlib import Path
from hetpool.setup.supervisor import Role, start
start(Path(sys.argv[1]), [Role("noting", tuple(sys.argv[2:]))], attached=True)
os.kill(os.getpid(), 9)
"""


def test_an_attached_one_ends_with_a_program_that_is_killed(tmp_path: Path) -> None:
    note, folder = tmp_path / "note", tmp_path / "state"
    words = [sys.executable, "-c", ATTACHED, str(folder), *role(note).command]

    killed = subprocess.run(
        words, env={**os.environ, "NOTE": str(note)}, check=False, timeout=DEADLINE_S
    )

    assert killed.returncode == -signal.SIGKILL
    until(lambda: pid_of(folder) is None, "its supervisor was left")
    assert not any(alive(pid) for pid in pids(note))


def test_a_folder_has_one_supervisor(folder: Folder, tmp_path: Path) -> None:
    roles = [role(tmp_path / "note")]
    folder.start(*roles)

    with pytest.raises(InputError, match="running already"):
        folder.start(*roles)
    assert roles_in(folder.path) == roles


def test_a_program_that_is_not_there_is_reported(folder: Folder) -> None:
    folder.start(Role("absent", ("/no/such/program",)))

    def said() -> str:
        logs = [folder.path / "supervisor.log", folder.path / "absent.log"]
        return "".join(each.read_text() for each in logs if each.exists())

    until(lambda: "No such file" in said(), "no word about it")


def test_damaged_roles_are_one_line(folder: Folder) -> None:
    folder.path.mkdir()
    (folder.path / "roles.json").write_text("[1")

    with pytest.raises(HetError, match=r"roles\.json: Expected `object`"):
        roles_in(folder.path)
