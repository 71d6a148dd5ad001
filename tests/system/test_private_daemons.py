"""Daemons for the time of a block: whatever happens in it, nothing stays behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from libtask import DaemonUnreachableError, InputError, private_daemon
from libtask.client.client import Client, Selection
from libtask.daemon.launcher_processes import launcher_processes, processes_of
from libtask.processes import is_alive
from system.private_daemon import PATIENCE, RESOURCES, SETTINGS, eventually

CONFIG = SETTINGS + RESOURCES
ENDLESS = {"seconds": {"cpu": 100_000.0}, "strips": 10_000_000}
MOMENT = {"seconds": {"cpu": 0.0}}


def nothing_is_left(socket: Path, *, folder: Path | None = None) -> bool:
    """Whether nobody serves a socket any more; its folder goes with it by default."""
    return not processes_of(socket) and not (folder or socket.parent).exists()


def test_tasks_and_daemon_end_with_the_block() -> None:
    with private_daemon(CONFIG) as client:
        done = client.submit("synthetic", MOMENT).result(PATIENCE)
        running = client.submit("synthetic", ENDLESS)
        client.submit("synthetic", MOMENT, hold=True)
        eventually(lambda: running.info().state == "running", "a running task")
        policy = client.policy().name

    assert done["strips"] == 20
    assert policy == "affinity"
    assert nothing_is_left(client.path)


def test_the_configuration_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(CONFIG)

    with private_daemon(file) as client:
        assert client.policy().name == "affinity"

    assert file.read_text() == CONFIG
    with pytest.raises(FileNotFoundError), private_daemon(tmp_path / "other.toml"):
        pass


def test_a_launcher_that_has_only_just_been_started_ends_too() -> None:
    with private_daemon(CONFIG) as client:
        client.submit("synthetic", ENDLESS)

    assert nothing_is_left(client.path)


def test_tasks_of_a_daemon_that_was_killed_end_too() -> None:
    with private_daemon(CONFIG) as client:
        client.submit("synthetic", ENDLESS)
        eventually(
            lambda: len(launcher_processes(client.path)) > 1, "a launcher and a worker"
        )
        daemon = client.welcome.pid
        os.kill(daemon, signal.SIGKILL)
        eventually(lambda: not is_alive(daemon), "the daemon's end")

    eventually(lambda: nothing_is_left(client.path), "the end of all that was killed")


KILLED = """
import os, signal, sys
from libtask import private_daemon

with private_daemon(sys.argv[1]) as client:
    print(client.path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_daemon_of_a_program_that_was_killed_ends_too() -> None:
    command = [sys.executable, "-c", KILLED, CONFIG]

    killed = subprocess.run(command, capture_output=True, text=True, check=False)

    assert killed.returncode == -signal.SIGKILL
    socket = Path(killed.stdout.strip())
    eventually(lambda: not processes_of(socket), "the end of the daemon")
    shutil.rmtree(socket.parent)


FORKS = """
import os, sys
from libtask import private_daemon

with private_daemon(sys.argv[1]) as client:
    if not (child := os.fork()):
        sys.exit()
    print(os.waitpid(child, 0)[1], client.submit(pow, 2, 3).result(), client.path)
"""


def test_a_child_that_leaves_the_block_ends_nothing() -> None:
    command = [sys.executable, "-c", FORKS, CONFIG]

    done = subprocess.run(
        command, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True
    )

    status, value, path = done.stdout.split()
    assert (status, value) == ("0", "8")
    assert nothing_is_left(Path(path))


def test_a_block_that_fails_leaves_nothing_either() -> None:
    with pytest.raises(InputError), private_daemon(CONFIG) as client:
        client.submit("synthetic", {"nosuch": 1})

    assert nothing_is_left(client.path)


def test_an_interrupt_while_the_tasks_are_given_up_leaves_nothing_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_socket: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("libtask.daemon.private._give_up_tasks", interrupted)
    with ExitStack() as stack:
        client = stack.enter_context(private_daemon(CONFIG))
        client.submit("synthetic", ENDLESS)
        eventually(
            lambda: len(launcher_processes(client.path)) > 1, "a launcher and a worker"
        )
        with pytest.raises(KeyboardInterrupt):
            stack.close()

    eventually(lambda: nothing_is_left(client.path), "the end of all that was killed")


def test_a_folder_keeps_the_tasks_for_the_next_daemon(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)  # too long for a socket

    with private_daemon(CONFIG, folder=folder) as client:
        client.submit("synthetic", MOMENT, name="kept").result(PATIENCE)
    first = client.path
    with private_daemon(CONFIG, folder=folder, policy="migration") as client:
        kept = client.tasks(Selection(detail=True))
        policy = client.policy().name

    assert [(each.name, each.state) for each in kept] == [("kept", "completed")]
    assert policy == "migration"
    assert not first.is_relative_to(folder)
    assert nothing_is_left(first)
    assert nothing_is_left(client.path)
    assert sorted(path.name for path in folder.iterdir()) == [
        "hetd.log",
        "hetd.toml",
        "state",
    ]


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    complaint = "ended at once: .*polcy: unknown key .did you mean policy"
    kept = tmp_path / "hetd.log"

    with pytest.raises(DaemonUnreachableError, match=complaint) as gone:
        private_daemon("polcy = 1").__enter__()
    with pytest.raises(DaemonUnreachableError, match=complaint) as there:
        private_daemon("polcy = 1", folder=tmp_path).__enter__()

    assert "hetd.log" not in str(gone.value)
    assert str(there.value).endswith(f"(see {kept})")
    assert "polcy" in kept.read_text()


def test_one_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError, match="did not answer in 0 s"):
        private_daemon(CONFIG, folder=tmp_path, patience=0.0).__enter__()

    assert not processes_of(tmp_path / "hetd.sock")


def test_other_clients_find_it_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    with private_daemon(CONFIG) as client:
        monkeypatch.setenv("HETD_SOCKET", str(client.path))
        with Client() as other:
            assert other.welcome.pid == client.welcome.pid
