"""Tasks run with the interpreter, environment and folder of their submitters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from system.private_daemon import PrivateDaemon

MODULE = '''
import os
import sys
import zipfile
from dataclasses import dataclass

from libtask import Task


@dataclass
class Mine(Task):
    """Says where it runs."""

    def save(self, checkpoint):
        return where()


@Mine.on("cpu")
def mine(task, device, checkpoint):
    for _ in checkpoint.strips():
        yield


def where():
    return [sys.executable, os.environ.get("WORD"), os.getcwd()]
'''
POINTS = "[libtask.apps]\nmine = only_there:Mine\n"
METADATA = "Metadata-Version: 2.1\nName: only-there\nVersion: 1\n"
CALLS = """
import json
import os

import beside
import only_there
from libtask import Client, Task, TaskFailedError

def local():
    return beside.where()

with Client() as client, client.executor() as executor:
    found = [
        client.submit(only_there.where).result(),
        executor.submit(local).result(),
        client.submit(only_there.Mine()).result(),
        client.submit(only_there.where, env={"WORD": "given"}).result(),
        client.submit(only_there.where, export="none").result(),
    ]
    os.environ["WORD"] = "changed"
    found.append(executor.submit(only_there.where).result())
print(json.dumps(found))
"""
JOBLIB = """
import json

import joblib
import libtask.joblib
import only_there

libtask.joblib.register()
with joblib.parallel_config(backend="hetd"):
    calls = (joblib.delayed(only_there.where)() for _ in range(4))
    print(json.dumps(joblib.Parallel(n_jobs=2)(calls)))
"""


class Environment:
    """A user's virtual environment with a package, and a folder with their programs."""

    def __init__(self, home: Path, daemon: PrivateDaemon) -> None:
        venv = [sys.executable, "-m", "venv", "--without-pip", str(home / "venv")]
        subprocess.run(venv, check=True)
        self.python = home / "venv" / "bin" / "python"
        self.work = home / "work"
        self.work.mkdir()
        self.site = next((home / "venv").glob("lib/python*/site-packages"))
        # what is installed here, in place of an installation from an index
        self.libraries = self.site / "libraries.pth"
        self.libraries.write_text("\n".join(p for p in sys.path if p))
        (self.site / "only_there.py").write_text(MODULE)
        about = self.site / "only_there-1.dist-info"
        about.mkdir()
        (about / "entry_points.txt").write_text(POINTS)
        (about / "METADATA").write_text(METADATA)
        self._variables = {"HETD_SOCKET": str(daemon.socket), "WORD": "exported"}

    def run(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            list(words),
            cwd=self.work,
            env={**os.environ, **self._variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def program(self, text: str) -> Any:
        (self.work / "program.py").write_text(text)
        return json.loads(self.run(str(self.python), "program.py").stdout)

    def hetctl(self, *words: str, status: int = 0) -> Any:
        """Run the hetctl of the tests' interpreter, not of this environment."""
        command = (sys.executable, "-m", "hetctl", *words, "--json")
        done = self.run(*command, status=status)
        return json.loads(done.stdout or done.stderr)


@pytest.fixture
def own(daemon: PrivateDaemon, tmp_path: Path) -> Environment:
    return Environment(tmp_path.resolve(), daemon)


def test_an_application_of_a_virtual_environment_runs_there(own: Environment) -> None:
    words = ("submit", "mine", "--python", str(own.python), "--wait")

    (plain,) = own.hetctl(*words)["tasks"]
    (given,) = own.hetctl(*words, "--export", "none", "--env", "WORD=given")["tasks"]

    place = [str(own.python), str(own.work)]
    assert plain["result"] == [place[0], "exported", place[1]]
    assert given["result"] == [place[0], "given", place[1]]


def test_functions_and_executors_run_with_the_interpreter_of_their_client(
    own: Environment,
) -> None:
    (own.work / "beside.py").write_text("from only_there import where\n")

    found = own.program(CALLS)

    place = [str(own.python), str(own.work)]
    words = [word for _, word, _ in found]
    assert words == ["exported", "exported", "exported", "given", None, "changed"]
    assert [[python, folder] for python, _, folder in found] == [place] * 6


def test_joblib_runs_with_the_interpreter_of_its_program(own: Environment) -> None:
    pytest.importorskip("joblib")

    found = own.program(JOBLIB)

    assert found == [[str(own.python), "exported", str(own.work)]] * 4


def test_an_interpreter_without_hetd_is_refused_with_the_way_out(
    own: Environment,
) -> None:
    own.libraries.unlink()
    command = (sys.executable, "-m", "hetctl", "submit", "mine", "--python")

    refused = own.run(*command, str(own.python), status=2)
    missing = own.run(*command, "/nowhere/python", status=2)

    assert refused.stderr.startswith(f"hetctl: {own.python} has no usable hetd")
    assert refused.stderr.endswith(f"{own.python} -m pip install hetd-*.whl\n")
    assert len(refused.stderr.splitlines()) == 1
    assert missing.stderr == "hetctl: --python: no program /nowhere/python\n"


def test_a_broken_environment_fails_its_tasks_and_no_others(
    own: Environment, daemon: PrivateDaemon
) -> None:
    own.program("import libtask; print(1)")
    mine = ("submit", "mine", "--python", str(own.python))
    (held,) = own.hetctl(*mine, "--hold")["ids"]
    other = daemon.client.submit("synthetic", {"seconds": {"cpu": 60}, "strips": 6000})
    daemon.await_state(other.id, "running")

    own.libraries.unlink()
    daemon.client.release(held)

    reason = daemon.await_state(held, "failed").reason or ""
    assert f"{own.python}: it cannot import libtask" in reason
    assert f"{own.python} -m pip install hetd-*.whl" in reason
    assert daemon.info(other.id).state == "running"
    after = daemon.client.submit("synthetic", {"seconds": {"cpu": 0.01}, "strips": 2})
    assert after.result(30.0) == {"strips": 2, "state_bytes": 0}


TRAIN = """
import os, sys
import only_there
print(sys.prefix, os.environ["WORD"], len(only_there.where()), sys.argv[1:])
sys.exit(3)
"""


def test_a_program_runs_with_the_interpreter_of_the_active_environment(
    own: Environment,
) -> None:
    (own.work / "train.py").write_text(TRAIN)
    path = f"PATH={own.python.parent}:{os.environ['PATH']}"
    hetctl = (sys.executable, "-m", "hetctl")
    command = ("--", "python", "train.py", "--epochs", "2")

    done = own.run("env", path, *hetctl, "run", *command, status=3)
    (task,) = json.loads(
        own.run(
            "env", path, *hetctl, "--json", "submit", "--wait", *command, status=10
        ).stdout
    )["tasks"]

    words = f"{own.python.parents[1]} exported 3 ['--epochs', '2']\n"
    assert done.stdout == words
    assert task["exit_code"] == 3
    absent = subprocess.run([sys.executable, "-c", "import only_there"], check=False)
    assert absent.returncode != 0, "hetd's own environment has the package, too"


def wheel(folder: Path, name: str) -> Path:
    """Write a distribution with an application, as a build tool would."""
    about = f"{name}-1.dist-info"
    record = f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n"
    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", MODULE)
        points = f"[libtask.apps]\n{name} = {name}:Mine\n"
        archive.writestr(f"{about}/entry_points.txt", points)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{about}/WHEEL", tag)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        archive.writestr(f"{about}/METADATA", metadata)
        archive.writestr(f"{about}/RECORD", record)
    return path


def test_an_application_that_pip_installs_is_found_by_warm_workers(
    own: Environment, tmp_path: Path
) -> None:
    pytest.importorskip("pip")
    submit = ("--python", str(own.python), "--wait")
    for _ in range(3):  # both slots get a warm worker of this environment
        own.hetctl("submit", "mine", *submit)
    absent = own.hetctl("submit", "later", *submit, status=4)

    file = str(wheel(tmp_path, "later"))
    pip = (sys.executable, "-m", "pip", "--python", str(own.python))
    own.run(*pip, "install", "--quiet", "--no-index", "--no-deps", file)
    found = [own.hetctl("submit", "later", *submit)["tasks"][0] for _ in range(3)]

    assert "no application 'later'" in json.dumps(absent)
    assert [each["state"] for each in found] == ["completed"] * 3
    assert {each["result"][0] for each in found} == {str(own.python)}
