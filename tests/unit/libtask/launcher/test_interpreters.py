"""Workers of other interpreters than the launcher's: their fork servers start and end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from libtask.attachments import Attachments
from libtask.messages import KillWorker, StartWorkers, WorkerExited
from libtask.origin import Origin, exported, here, packed
from libtask.processes import children_of, is_alive
from unit.scripted_daemon import until

if TYPE_CHECKING:
    from unit.libtask.launcher.played_launcher import Played

APP = '''
import os
import sys
from dataclasses import dataclass

from libtask import Task


@dataclass
class Look(Task):
    """Says where it runs."""

    def save(self, checkpoint):
        threads = os.environ.get("OMP_NUM_THREADS")
        return {"word": os.environ.get("WORD"), "threads": threads, "path": sys.path[0]}


@Look.on("cpu")
def look(task, device, checkpoint):
    for strip in checkpoint.strips():
        yield
'''


def keep(launcher: Played, origin: Origin) -> str:
    return Attachments(launcher.folder / "attachments").keep(packed(origin))


def an_origin(**variables: str) -> Origin:
    found = here(exported("all", variables))
    return Origin(found.python, found.prefix, [b"/first", *found.path], found.variables)


def start(launcher: Played, origin: str, *names: str) -> dict[str, int]:
    launcher.say(StartWorkers(list(names), origin))
    hellos = [launcher.daemon.greet() for _ in names]
    launcher.workers += [hello.pid for hello in hellos]
    assert {hello.origin for hello in hellos} == {origin}
    return {hello.worker: hello.pid for hello in hellos}


def servers(launcher: Played) -> list[int]:
    return [pid for pid in children_of(launcher.process.pid) if children_of(pid)]


def test_a_worker_takes_on_its_origin(launcher: Played) -> None:
    launcher.app.write_text(APP)
    pids = start(launcher, keep(launcher, an_origin(WORD="mine")), "w1")
    launcher.start_workers("w2")

    assert launcher.look("w1") == {"word": "mine", "threads": None, "path": "/first"}
    assert launcher.look("w2")["word"] is None
    assert pids["w1"] in children_of(launcher.process.pid)


def test_variables_read_at_the_start_have_a_fork_server(launcher: Played) -> None:
    launcher.app.write_text(APP)
    one, two = (keep(launcher, an_origin(OMP_NUM_THREADS=n)) for n in ("1", "2"))
    pids = start(launcher, one, "w1", "w2") | start(launcher, two, "w3")

    assert [launcher.look(name)["threads"] for name in ("w1", "w3")] == ["1", "2"]
    assert sorted(len(children_of(pid)) for pid in servers(launcher)) == [1, 2]

    os.kill(pids["w2"], signal.SIGKILL)

    exited = launcher.daemon.expect(WorkerExited)
    assert (exited.name, exited.status, exited.started) == ("w2", -9, True)
    launcher.say(KillWorker("w1", "it hangs"))
    assert launcher.daemon.expect(WorkerExited).name == "w1"
    assert not is_alive(pids["w1"])
    assert is_alive(pids["w3"])


def test_a_lost_fork_server_takes_its_workers_along_and_no_others(
    launcher: Played,
) -> None:
    origin = keep(launcher, an_origin(OMP_NUM_THREADS="1"))
    pids = start(launcher, origin, "w1", "w2")
    others = launcher.start_workers("w3")
    (server,) = servers(launcher)

    os.kill(server, signal.SIGKILL)

    exits = [launcher.daemon.expect(WorkerExited) for _ in range(2)]
    assert [exited.name for exited in exits] == ["w1", "w2"]
    assert "its fork server ended" in exits[0].reason
    assert {exited.status for exited in exits} == {-signal.SIGKILL}
    assert not any(is_alive(pid) for pid in pids.values())
    assert is_alive(others["w3"])
    assert start(launcher, origin, "w4"), "another one is started"


def test_a_fork_server_ends_with_its_launcher(launcher: Played) -> None:
    start(launcher, keep(launcher, an_origin(OMP_NUM_THREADS="1")), "w1")
    (server,) = servers(launcher)

    launcher.process.kill()
    launcher.process.wait()

    until(lambda: not is_alive(server), "the end of the fork server")


def test_its_workers_have_groups_below_that_of_the_launcher(launcher: Played) -> None:
    (own,) = launcher.start_workers("w0").values()
    if "hetd-" not in group_of(own):
        pytest.skip(
            f"no control group can be made below {group_of(launcher.process.pid)!r}"
        )

    origin = keep(launcher, an_origin(OMP_NUM_THREADS="1"))
    (worker,) = start(launcher, origin, "w1").values()

    folder, _, name = group_of(worker).rpartition("/")
    assert folder == group_of(own).rpartition("/")[0]
    assert name == f"hetd-{servers(launcher)[0]}-w1"


def group_of(pid: int) -> str:
    """Return the control group (version 2) of a process; empty: there are none."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return "".join(line[3:] for line in lines if line.startswith("0::"))


BAD = {
    "cannot import libtask": '#!/bin/sh\nunset PYTHONPATH\nexec {python} -S -I -c "$3"\n',
    "no such luck": "#!/bin/sh\necho no such luck >&2\nexit 1\n",
    "its fork server ended": "#!/bin/sh\nexit 0\n",
}


@pytest.mark.parametrize("complaint", BAD)
def test_an_interpreter_that_does_not_work_is_reported(
    launcher: Played, tmp_path: Path, complaint: str
) -> None:
    python = tmp_path / "python"
    python.write_text(BAD[complaint].format(python=sys.executable))
    python.chmod(0o700)
    found = an_origin()
    origin = Origin(os.fsencode(python), b"/", found.path, found.variables)

    launcher.say(StartWorkers(["w1"], keep(launcher, origin)))

    exited = launcher.daemon.expect(WorkerExited)
    assert exited.reason.startswith(f"{python}: ")
    assert complaint in exited.reason
    assert exited.started
    assert launcher.start_workers("w2"), "the launcher lives on"


def test_a_missing_interpreter_and_a_missing_origin_are_reported(
    launcher: Played,
) -> None:
    found = an_origin()
    gone = Origin(b"/nowhere/python", b"/", found.path, found.variables)

    launcher.say(StartWorkers(["w1"], keep(launcher, gone)))
    launcher.say(StartWorkers(["w2"], "0" * 64))

    exits = [launcher.daemon.expect(WorkerExited).reason for _ in range(2)]
    assert exits[0] == "/nowhere/python: No such file or directory"
    assert exits[1].endswith(f"{'0' * 64}: No such file or directory")
