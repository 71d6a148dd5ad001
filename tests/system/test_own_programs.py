"""Programs that are their own workers, with a daemon and without."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Selection
from system.private_daemon import PATIENCE, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from system.private_daemon import PrivateDaemon


PROGRAM = """
    from dataclasses import dataclass
    from pathlib import Path
    import os, time
    import libtask

    @dataclass
    class Count(libtask.Task):
        "Counts."
        gate: str = ""
        n: int = 100

        def load(self):
            self.sum = 0

        def total(self):
            return self.n

        def save(self, checkpoint):
            return {"sum": self.sum, "pid": os.getpid(), "done": checkpoint.done}

    @Count.on("cpu")
    @Count.on("gpu")
    def count(task, device, checkpoint):
        for strip in checkpoint.strips():
            if task.gate:
                Path(task.gate + ".at").touch()
            while task.gate and not Path(task.gate).exists():
                time.sleep(0.001)
            time.sleep(0.002)
            task.sum += sum(strip)
            yield

    if __name__ == "__main__":
        libtask.main(Count)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "count.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def _start(program: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(program), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def test_a_program_of_its_own_is_its_own_worker(
    daemon: PrivateDaemon, program: Path
) -> None:
    process = _start(program, "--socket", str(daemon.socket), "--n", "50")

    output, errors = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, errors
    assert json.loads(output) == {"sum": 1225, "pid": process.pid, "done": 50}
    newest = daemon.client.tasks(Selection(limit=1))[0]
    assert newest.state == "completed"
    assert newest.result["pid"] == process.pid


def test_a_program_of_its_own_is_moved(
    daemon: PrivateDaemon, program: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    arguments = ["--socket", str(daemon.socket), "--gate", str(gate)]
    process = _start(program, *arguments, "--device", "cpu")
    eventually((tmp_path / "gate.at").exists, "the program in its first strip")
    task = daemon.client.tasks(Selection(limit=1))[0]

    daemon.client.migrate(task.id, "gpu0")
    gate.touch()
    output, errors = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, errors
    assert json.loads(output)["sum"] == sum(range(100))
    segments = daemon.info(task.id).segments
    assert [segment.resource for segment in segments] == ["cpu", "gpu0"]
    assert all(segment.strips > 0 for segment in segments)


def test_a_program_without_a_daemon_runs_alone(program: Path) -> None:
    process = _start(program, "--local", "--n", "20", "--device", "cpu")

    output, errors = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, errors
    assert json.loads(output)["sum"] == sum(range(20))


def test_a_program_whose_daemon_does_not_answer_says_so(
    program: Path, tmp_path: Path
) -> None:
    process = _start(program, "--socket", str(tmp_path / "none"))

    _, errors = process.communicate(timeout=PATIENCE)

    assert process.returncode == 1
    assert errors.startswith("count.py: error: daemon absent: there is no socket")
    assert errors.count("\n") == 1


def test_a_killed_program_of_its_own_fails_its_task(
    daemon: PrivateDaemon, program: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    process = _start(program, "--socket", str(daemon.socket), "--gate", str(gate))
    eventually((tmp_path / "gate.at").exists, "the program in its first strip")
    task = daemon.client.tasks(Selection(limit=1))[0]

    process.kill()
    process.communicate(timeout=PATIENCE)

    assert "its program ended" in (daemon.await_state(task.id, "failed").reason or "")


def test_a_cancelled_program_of_its_own_ends_as_interrupted(
    daemon: PrivateDaemon, program: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    process = _start(program, "--socket", str(daemon.socket), "--gate", str(gate))
    eventually((tmp_path / "gate.at").exists, "the program in its first strip")
    task = daemon.client.tasks(Selection(limit=1))[0]

    daemon.client.cancel(task.id)
    gate.touch()
    _, errors = process.communicate(timeout=PATIENCE)

    assert process.returncode == 130
    assert errors == "count.py: interrupted\n"
    daemon.await_state(task.id, "cancelled")


COMPILED = """
    from dataclasses import dataclass
    from numba import njit
    import libtask

    @dataclass
    class Squares(libtask.Task):
        n: int = 100

        def load(self):
            self.sum = 0

        def total(self):
            return self.n

        def save(self, checkpoint):
            return {"sum": self.sum, "compiled": sum(add.stats.cache_misses.values())}

    @njit(cache=True)
    def add(first, last):
        total = 0
        for i in range(first, last):
            total += i * i
        return total

    @Squares.on("cpu")
    def squares(task, device, checkpoint):
        for strip in checkpoint.strips():
            task.sum += add(strip.start, strip.stop)
            yield

    if __name__ == "__main__":
        libtask.main(Squares)
"""


def test_code_that_a_worker_compiled_is_run_by_other_processes(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    path = tmp_path / "first" / "squares.py"
    path.parent.mkdir()
    path.write_text(textwrap.dedent(COMPILED))
    answer = {"sum": 328350, "compiled": 0}

    task = daemon.client.submit(f"{path}:Squares", {})
    assert task.result(PATIENCE) == answer | {"compiled": 1}

    copy = shutil.copytree(path.parent, tmp_path / "second") / path.name
    for program in (path, copy):
        process = _start(program, "--local")
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert json.loads(output.splitlines()[-1]) == answer

    imports = [sys.executable, "-c", "import squares; print(squares.add(0, 100))"]
    done = subprocess.check_output(imports, cwd=path.parent, text=True)
    assert done == "328350\n"

    task = daemon.client.submit(f"{copy}:Squares", {})
    assert task.result(PATIENCE) == answer
