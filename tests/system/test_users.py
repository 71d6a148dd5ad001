"""Several users of one daemon, with real uids: root only, as only root can become them.

The daemon runs as one user, its tasks as two others; they share the socket's group.
"""

from __future__ import annotations

import grp
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from libtask.endpoint import probe
from libtask.errors import DaemonUnreachableError
from libtask.messages import ENDED
from system.private_daemon import PATIENCE, RESOURCES, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

DAEMON, ANN, BEN, EVE = 4100, 4101, 4102, 4103
GROUP = grp.getgrgid(min(g.gr_gid for g in grp.getgrall() if g.gr_gid > 0))
"""Any group that there is, but root's, serves to share the socket."""

CONFIG = f"""
policy = "affinity"
socket_group = "{GROUP.gr_name}"
[limits]
running = 1
"""
LONG = ("synthetic", "--seconds", '{"cpu": 600, "gpu": 600}', "--strips", "60000")
VERBS: dict[str, tuple[str, ...]] = {
    "list": ("--all",),
    "show": ("TASK", "--json"),
    "logs": ("TASK",),
    "explain": ("TASK",),
    "result": ("TASK",),
    "events": ("--json",),
    "history": (),
    "progress": (),
    "report": (),
    "trace": (),
    "requeue": ("TASK",),
    "top": ("--once",),
}
"""Verbs that tell of tasks, with their arguments."""
ASK = """
import json, sys
from click.testing import CliRunner
from hetctl.__main__ import main
socket, task, verbs = sys.argv[1:]
told = {}
for verb, words in json.loads(verbs).items():
    words = [task if word == "TASK" else word for word in words]
    result = CliRunner().invoke(main, [verb, "--socket", socket, *words])
    told[verb] = result.output
    assert "Usage" not in result.output, result.output
    assert "no such option" not in result.output.lower(), result.output
print(json.dumps(told))
"""
"""Program that uses the verbs one after the other."""
MARKED = '{"cpu": 600, "gpu": 600}'


def _missing() -> str:
    if os.getuid() != 0:
        return "needs root: it becomes several users"
    absent = [tool for tool in ("setpriv", "unshare") if shutil.which(tool) is None]
    return f"needs {', '.join(absent)}" if absent else ""


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing() or "-")


class House:
    """A daemon, and its users with a home each.

    Args:
        folder: that all can enter.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "run" / "s"
        self.python = folder / "python"
        self.python.mkdir()
        for uid in (DAEMON, ANN, BEN, EVE):
            self.home(uid).mkdir(mode=0o700)
            os.chown(self.home(uid), uid, uid)
        self.socket.parent.mkdir(mode=0o755)
        os.chown(self.socket.parent, DAEMON, GROUP.gr_gid)
        (folder / "hetd.toml").write_text(CONFIG + RESOURCES, encoding="utf-8")
        self._daemon = self._start()

    def home(self, uid: int) -> Path:
        return self.folder / str(uid)

    def command(self, uid: int, *words: str) -> list[str]:
        """Run Python as a user who may not enter where it is installed.

        Each command sees the installation in our folder too, and nobody else does.
        """
        become = ["setpriv", f"--reuid={uid}", f"--regid={GROUP.gr_gid}"]
        if uid == EVE:
            become[-1] = f"--regid={EVE}"
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        base = str(Path(sys.base_prefix).resolve())
        return [
            *("unshare", "--mount", "--propagation", "private"),
            *("bash", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"'),
            *(base, str(self.python), *become, "--clear-groups"),
            *(f"{self.python}/bin/python{version}", "-m", *words),
        ]

    def environment(self, uid: int) -> dict[str, str]:
        base = str(Path(sys.base_prefix).resolve())
        path = [each for each in sys.path if each and not each.startswith(base)]
        home = str(self.home(uid))
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "PYTHONPATH": ":".join(path),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _start(self) -> subprocess.Popen[bytes]:
        config = str(self.folder / "hetd.toml")
        state = str(self.home(DAEMON) / "state")
        words = ["--socket", str(self.socket), "--state", state, "--config", config]
        with (self.folder / "hetd.log").open("wb") as log:
            daemon = subprocess.Popen(
                self.command(DAEMON, "hetd", *words),
                env=self.environment(DAEMON),
                stdout=log,
                stderr=log,
            )
        eventually(lambda: self._answers(daemon), "a daemon")
        return daemon

    def _answers(self, daemon: subprocess.Popen[bytes]) -> bool:
        assert daemon.poll() is None, (self.folder / "hetd.log").read_text()
        with suppress(DaemonUnreachableError):
            probe(self.socket)
            return True
        return False

    def hetctl(self, uid: int, verb: str, *words: str) -> tuple[int, Any, str]:
        """Ask as a user; return the status, the document and the complaint."""
        words = (verb, "--socket", str(self.socket), "--json", *words)
        done = subprocess.run(
            self.command(uid, "hetctl", *words),
            env=self.environment(uid),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        document = json.loads(done.stdout) if done.stdout else None
        return done.returncode, document, done.stderr

    def answers(self, task: int) -> dict[str, str]:
        """Return what each verb tells another user, and the daemon's, about a task."""
        found: dict[str, str] = {}
        for uid in (BEN, DAEMON):
            python = self.command(uid)[:-1]  # without -m
            done = subprocess.run(
                [*python, "-c", ASK, str(self.socket), str(task), json.dumps(VERBS)],
                env=self.environment(uid),
                capture_output=True,
                text=True,
                check=True,
                timeout=PATIENCE,
            )
            answers = json.loads(done.stdout)
            found |= {f"{verb} of {uid}": text for verb, text in answers.items()}
        return found

    def another_python(self, uid: int) -> str:
        """Make an interpreter of a user's own."""
        folder = self.home(uid) / "venv"
        (folder / "bin").mkdir(parents=True)
        base = self.python / "bin"
        (folder / "pyvenv.cfg").write_text(f"home = {base}\n")
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        (folder / "bin" / "python").symlink_to(base / f"python{version}")
        return str(folder / "bin" / "python")

    def submit(self, uid: int, count: int) -> list[int]:
        ids = []
        for _ in range(count):
            words = ("synthetic", "--seconds", MARKED, "--strips", "60000")
            status, document, complaint = self.hetctl(uid, "submit", *words)
            assert status == 0, complaint
            ids += document["ids"]
        return ids

    def seen(self, uid: int) -> dict[int, str]:
        """List what a user sees: id -> state."""
        status, document, complaint = self.hetctl(uid, "list")
        assert status == 0, complaint
        return {task["id"]: task["state"] for task in document["tasks"]}

    def _idle(self) -> bool:
        states = {*self.seen(ANN).values(), *self.seen(BEN).values()}
        return states <= ENDED

    def processes(self) -> dict[int, int]:
        """Find the launchers and workers: pid -> uid."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                if str(self.socket) in words and "libtask.launcher" in words:
                    found[int(entry.name)] = entry.stat().st_uid
        return found

    def workers_of(self, uid: int) -> int:
        """Count the launcher and workers of a user."""
        return sum(owner == uid for owner in self.processes().values())

    def close(self) -> None:
        for uid in (ANN, BEN):
            assert self.hetctl(uid, "cancel", "all")[0] == 0
        eventually(self._idle, "the end of all tasks")
        self._daemon.terminate()
        status = self._daemon.wait(PATIENCE)
        eventually(lambda: not self.processes(), "the end of all processes")
        assert status == 0


@contextmanager
def a_house() -> Iterator[House]:
    """Run a daemon for several users in a folder that all of them can enter."""
    folder = Path(tempfile.mkdtemp(prefix="hetd-users-"))
    folder.chmod(0o755)
    house = House(folder)
    try:
        yield house
    finally:
        house.close()
        shutil.rmtree(folder)


@pytest.fixture
def house() -> Iterator[House]:
    with a_house() as house:
        yield house


def test_users_share_a_daemon_and_nothing_else(house: House) -> None:
    first, second = house.submit(ANN, 2)
    (other,) = house.submit(BEN, 1)
    eventually(lambda: house.workers_of(ANN) > 1, "a worker of the one")
    eventually(lambda: house.workers_of(BEN) > 1, "a worker of the other")

    # each runs what is his, as himself, one at a time as the limit says
    assert set(house.processes().values()) == {ANN, BEN}
    assert house.seen(ANN) == {first: "running", second: "queued"}
    assert house.seen(BEN) == {other: "running"}

    status, _, complaint = house.hetctl(BEN, "show", str(first))
    assert (status, json.loads(complaint)["text"]) == (
        5,
        "task 1 belongs to another user",
    )
    status, _, complaint = house.hetctl(BEN, "cancel", str(first))
    assert (status, json.loads(complaint)["text"]) == (
        5,
        "task 1 belongs to another user",
    )
    assert house.hetctl(BEN, "drain", "cpu")[0] == 5
    assert house.seen(ANN)[first] == "running"

    # who is not of the group does not even come to speak
    status, _, complaint = house.hetctl(EVE, "list")
    assert status == 3, complaint
    assert f"no permission to use {house.socket}" in complaint


def test_nobody_else_reads_what_a_command_has_in_its_environment(house: House) -> None:
    word = "what-only-ann-may-read"
    words = ("--env", f"PRIVATE={word}", "--", "sleep", "1000")
    status, document, complaint = house.hetctl(ANN, "submit", *words)
    assert status == 0, complaint
    (task,) = document["ids"]
    eventually(lambda: house.seen(ANN)[task] == "running", "its start")

    answers = house.answers(task)

    assert [each for each in answers if word in answers[each]] == []
    holders = [path for path in house.folder.rglob("*") if _holds(path, word)]
    assert {path.stat().st_uid for path in holders} == {ANN}
    assert {path.stat().st_mode & 0o077 for path in holders} == {0}


def test_nobody_else_reads_the_environment_of_a_task(house: House) -> None:
    word = "what-only-ann-may-read"
    status, document, complaint = house.hetctl(
        ANN, "submit", *LONG, "--env", f"PRIVATE={word}"
    )
    assert status == 0, complaint
    (task,) = document["ids"]
    eventually(lambda: house.seen(ANN)[task] == "running", "its start")
    status, document, complaint = house.hetctl(
        BEN, "submit", *LONG, "--python", house.another_python(BEN)
    )
    assert status == 0, complaint
    (other,) = document["ids"]
    eventually(
        lambda: house.seen(BEN)[other] == "running", "one of another interpreter"
    )

    answers = house.answers(task)

    assert [each for each in answers if word in answers[each]] == []
    assert f"{task}" in answers[f"list of {DAEMON}"]  # it sees the task
    assert word not in json.dumps(house.hetctl(ANN, "show", str(task)))
    holders = [path for path in house.folder.rglob("*") if _holds(path, word)]
    assert {path.parent.name for path in holders} == {"attachments"}
    assert {path.stat().st_uid for path in holders} == {ANN}
    assert {path.stat().st_mode & 0o077 for path in holders} == {0}
    lines = [Path("/proc", str(pid), "cmdline") for pid in house.processes()]
    assert not any(_holds(path, word) for path in lines)


STEP = """
import time
from dataclasses import dataclass
from libtask import Task

@dataclass
class Step(Task):
    seconds: float = 0.1

    def total(self):
        return 4

    def save(self, checkpoint):
        return None

@Step.on("cpu")
def on_cpu(task, device, checkpoint):
    for strip in checkpoint.strips():
        for _ in strip:
            time.sleep(task.seconds / 4)
        yield
"""


def test_a_scenario_for_administrators_keeps_users_programs_of_one_name_apart(
    house: House, tmp_path: Path
) -> None:
    done: dict[str, int] = {}
    for uid, seconds in ((ANN, "0.1"), (BEN, "0.4")):
        path = house.home(uid) / "step.py"
        path.write_text(STEP, encoding="utf-8")
        path.chmod(0o644)
        words = (f"{path}:Step", "--seconds", seconds, "--wait")
        status, document, complaint = house.hetctl(uid, "submit", *words)
        assert status == 0, complaint
        done[str(document["tasks"][0]["id"])] = uid

    with_models = house.hetctl(DAEMON, "trace")
    forget = ("models", "forget", "--all", "--socket", str(house.socket))
    subprocess.run(
        house.command(DAEMON, "hetctl", *forget),
        env=house.environment(DAEMON),
        check=True,
    )
    from_runs = house.hetctl(DAEMON, "trace")  # all that is known now

    for status, document, complaint in (with_models, from_runs):
        assert status == 0, complaint
        wanted = {task: f"uid:{uid}:step:Step/any" for task, uid in done.items()}
        assert {each["id"]: each["type"] for each in document["tasks"]} == wanted
        times = {each["name"]: each["seconds"]["cpu"] for each in document["types"]}
        assert times.keys() == set(wanted.values())
        assert len(set(times.values())) == len(times)
        path = tmp_path / "scenario.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "hetsim",
                "run",
                str(path),
                "--policy",
                "mm",
                "--json",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        tasks = json.loads(ran.stdout)["tasks"]
        assert {each["id"]: each["state"] for each in tasks} == dict.fromkeys(
            done, "completed"
        )


def _holds(path: Path, word: str) -> bool:
    """Whether a file holds a word; of what a mount hides nothing is to be seen."""
    with suppress(OSError):
        return path.is_file() and word.encode() in path.read_bytes()
    return False
