"""The launcher outlives its daemon, and leaves when nobody needs it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from libtask.endpoint import launcher_folder
from libtask.launcher.exit_records import ExitRecords
from libtask.launcher.launcher import start_launcher
from libtask.launcher.takeover import has_successor
from libtask.messages import Register, Retire, WorkerExited
from libtask.processes import children_of, is_alive
from libtask.worker.logs import LogCap
from unit.libtask.launcher.played_launcher import Played
from unit.scripted_daemon import PATIENCE, ScriptedDaemon, until


def test_tells_a_new_daemon_of_exits_that_nobody_heard(launcher: Played) -> None:
    pids = launcher.start_workers("w1", "w2")

    launcher.daemon.die()
    os.kill(pids["w1"], signal.SIGKILL)
    until(lambda: len(children_of(launcher.process.pid)) == 1, "the worker is reaped")
    launcher.daemon.rise()

    told = [launcher.daemon.hear() for _ in range(3)]
    messages = [message for _, message in told]
    by_launcher = [message for peer, message in told if peer == "launcher"]
    ends = [each for each in messages if isinstance(each, WorkerExited)]
    assert [(each.name, each.status) for each in ends] == [("w1", -9)]
    assert ends[0].reason.startswith("killed by signal 9 (SIGKILL), ")
    assert isinstance(by_launcher[0], Register)
    assert {
        message.worker for message in messages if isinstance(message, Register)
    } == {
        "w2",
        "",
    }


def test_exits_outlive_the_launcher(launcher: Played) -> None:
    pids = launcher.start_workers("w1")
    os.kill(pids["w1"], signal.SIGKILL)
    launcher.daemon.expect(WorkerExited)
    launcher.process.kill()
    launcher.process.wait()

    launcher.process = launcher.start()

    launcher.daemon.greet()
    assert launcher.daemon.expect(WorkerExited).name == "w1"


def test_idle_workers_leave_with_their_launcher(launcher: Played) -> None:
    pids = launcher.start_workers("w1", "w2")

    launcher.process.kill()
    launcher.process.wait()

    until(lambda: not any(map(is_alive, pids.values())), "the workers leave")


def test_retires_with_its_workers(launcher: Played) -> None:
    launcher.start_workers("w1", "w2")

    launcher.say(Retire())

    exits = [launcher.daemon.expect(WorkerExited) for _ in range(2)]
    assert {exited.name for exited in exits} == {"w1", "w2"}
    assert launcher.process.wait(PATIENCE) == 0


def test_there_is_one_launcher_for_a_socket(launcher: Played) -> None:
    second = launcher.start()

    assert launcher.daemon.greet() == Register(role="client", pid=second.pid)
    assert second.wait(PATIENCE) == 0
    assert launcher.start_workers("w1")


def test_a_launcher_that_waits_takes_over_from_one_without_workers(
    launcher: Played,
) -> None:
    first = launcher.process
    launcher.start_workers("w1")
    launcher.process = launcher.start("--wait")
    launcher.daemon.greet()

    yielding = launcher.daemon.greet()
    assert (yielding.pid, yielding.workers, yielding.yields) == (
        first.pid,
        ["w1"],
        True,
    )
    assert has_successor(launcher.folder)
    launcher.daemon.say("w1", Retire())

    assert launcher.expect_leaving().name == "w1"
    hello = launcher.daemon.greet()
    assert (hello.role, hello.pid) == ("launcher", launcher.process.pid)
    assert launcher.daemon.expect(WorkerExited).name == "w1", "nobody confirmed it"
    assert first.wait(PATIENCE) == 0
    assert not has_successor(launcher.folder)
    assert launcher.start_workers("w2")


@pytest.mark.parametrize("other", [0, 1])
def test_no_launcher_is_ended_of_which_hetd_does_not_say_that_it_hangs(
    launcher: Played, other: int
) -> None:
    second = launcher.start()

    launcher.daemon.greet(hung_launcher=other)

    assert second.wait(PATIENCE) == 0
    assert launcher.process.poll() is None


def test_a_launcher_that_hangs_has_a_successor(launcher: Played) -> None:
    first, pids = launcher.process, launcher.start_workers("w1")
    launcher.stage("w1")
    os.kill(first.pid, signal.SIGSTOP)

    launcher.process = launcher.start()
    asking = launcher.daemon.greet(launcher=False)
    launcher.daemon.greet(launcher=False, hung_launcher=first.pid)
    hello = launcher.daemon.greet()

    assert (asking.role, hello.role) == ("client", "launcher")
    assert hello.pid == launcher.process.pid
    assert first.wait(PATIENCE) == -signal.SIGKILL
    assert is_alive(pids["w1"]), "it has a task"
    assert launcher.start_workers("w2")


@pytest.mark.parametrize("option", ["--alone", "--idle"])
def test_leaves_when_nobody_needs_it(tmp_path: Path, option: str) -> None:
    played = Played(tmp_path, option, "0.1")
    if option == "--idle":
        played.daemon.greet()
    assert played.process.wait(PATIENCE) == 0
    played.close()


def test_starting_one_leaves_no_child(tmp_path: Path) -> None:
    daemon = ScriptedDaemon(tmp_path / "hetd.sock")
    before = children_of(os.getpid())

    start_launcher(daemon.path)

    hello = daemon.greet()
    assert children_of(os.getpid()) == before
    assert os.getsid(hello.pid) != os.getsid(0)
    daemon.say("launcher", Retire())
    until(lambda: not is_alive(hello.pid), "the launcher leaves")
    daemon.close()


def test_logs_never_fill_the_memory_behind_run(tmp_path: Path) -> None:
    assert launcher_folder(tmp_path / "hetd.sock") == tmp_path / "hetd.launcher"
    assert not launcher_folder(Path("/run/hetd.sock")).is_relative_to("/run")


def test_a_worker_that_wrote_nothing_leaves_no_log(launcher: Played) -> None:
    logs = launcher.folder / "logs"
    pids = launcher.start_workers("quiet", "loud")
    assert {path.name for path in logs.iterdir()} == {"quiet.log", "loud.log"}
    with (logs / "loud.log").open("a", encoding="ascii") as log:
        log.write("heard\n")

    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    for _ in pids:
        launcher.daemon.expect(WorkerExited)

    until(lambda: [path.name for path in logs.iterdir()] == ["loud.log"], "one log")


def test_so_many_logs_are_kept_and_all_of_living_workers(tmp_path: Path) -> None:
    logs = LogCap(tmp_path)
    for number in range(10):
        path = tmp_path / f"w{number}.log"
        path.write_text("printed", encoding="ascii")
        os.utime(path, (number, number))

    logs.trim({"w0"}, most=3)

    left = sorted(path.stem for path in tmp_path.iterdir())
    assert left == ["w0", "w7", "w8", "w9"]


def test_so_many_exits_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libtask.launcher.exit_records.MOST_EXITS", 3)
    records = ExitRecords(tmp_path)
    for number in range(5):
        records.keep(WorkerExited(f"w{number}", 0))
        os.utime(tmp_path / f"w{number}", (number, number))

    told = [exited.name for exited in records.unconfirmed()]

    assert told == ["w2", "w3", "w4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == told
