"""Programs that end in `libtask.main(…)`: with a daemon and without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from libtask.devices.discovery import Offer, Verdict
from libtask.errors import InputError
from libtask.messages import (
    Abort,
    Aborted,
    Control,
    DeviceSpec,
    Done,
    Error,
    Finished,
    Progress,
    Ready,
    Submit,
    Submitted,
    TaskSpec,
)
from libtask.program import local_devices as local
from libtask.task import Task
from unit.scripted_daemon import PATIENCE, ScriptedDaemon, cpu, run, stage

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = '''
from dataclasses import dataclass

import libtask
from libtask import Task


@dataclass
class Sum(Task):
    """Adds up numbers, 100 % of them."""

    n: int = 10
    scale: float = 1.0
    loud: bool = False
    device_count: int = 1
    endless: bool = False

    def load(self):
        self.sum = 0.0
        if self.n < 0:
            raise ValueError("n is negative")

    def total(self):
        return None if self.endless else self.n

    def save(self, checkpoint):
        if self.loud:
            print("LOUD")
        return {"sum": self.sum, "done": checkpoint.done}


@Sum.on("cpu")
def add(task, device, checkpoint):
    for strip in checkpoint.strips():
        task.sum += task.scale * sum(strip)
        yield


if __name__ == "__main__":
    libtask.main(Sum)
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "sum.py"
    path.write_text(PROGRAM)
    return path


def start(program: Path, *arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, str(program), *arguments]
    environment = {key: os.environ[key] for key in os.environ if key != "HETD_SOCKET"}
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=environment
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, output, errors


def test_runs_alone(program: Path) -> None:
    status, output, errors = finish(start(program, "--local", "--n", "5"))

    assert (status, errors) == (0, "")
    assert json.loads(output) == {"sum": 10.0, "done": 5}


def test_prints_a_result_as_the_daemon_would_keep_it(program: Path) -> None:
    values = """{
        (1, 2): np.arange(3), "when": dt.date(2026, 1, 2), "lost": float("nan"),
        "large": np.zeros(5000)}"""
    text = PROGRAM.replace('{"sum": self.sum, "done": checkpoint.done}', values)
    program.write_text("import datetime as dt\nimport numpy as np\n" + text)

    status, output, errors = finish(start(program, "--local"))

    result = json.loads(output)
    large = result.pop("large")
    assert status == 0
    assert result == {"(1, 2)": [0, 1, 2], "when": "2026-01-02", "lost": "NaN"}
    assert large["pickled"] == "ndarray"
    assert errors == "libtask: result['large']: no plain value (ndarray): not kept\n"


def test_reads_every_kind_of_parameter(program: Path) -> None:
    arguments = ["--scale", "0.5", "--loud", "--device-count=2", "--device", "cpu"]
    status, output, _ = finish(start(program, "--local", *arguments))

    assert status == 0
    assert output.splitlines()[0] == "LOUD"
    assert json.loads(output.splitlines()[1])["sum"] == 22.5


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["--n", "many"], 2, "Sum: parameter n: expected int, got 'many'"),
        (["--device", "gpu7"], 2, "no resource 'gpu7' here; there are: cpu"),
        (["--socket", "/nowhere/s"], 1, "daemon absent: there is no socket"),
    ],
)
def test_complains_in_one_line(
    program: Path, arguments: list[str], status: int, line: str
) -> None:
    local = [] if "--socket" in arguments else ["--local"]

    found, output, errors = finish(start(program, *local, *arguments))

    assert (found, output) == (status, "")
    assert errors.startswith(f"sum.py: error: {line}")
    assert len(errors.splitlines()) == 1


def test_an_exception_of_the_program_is_shown_with_its_place(program: Path) -> None:
    status, output, errors = finish(start(program, "--local", "--n", "-1"))

    first, *_, last = errors.splitlines()
    place = (
        PROGRAM.splitlines().index('            raise ValueError("n is negative")') + 1
    )
    assert (status, output) == (1, "")
    assert first == "Traceback (most recent call last):"
    assert f'File "{program}", line {place}, in load' in errors
    assert last == "sum.py: error: Sum: ValueError: n is negative"


def test_explains_its_parameters(program: Path) -> None:
    status, output, _ = finish(start(program, "--help"))

    assert status == 0
    assert "Adds up numbers, 100 % of them." in output
    assert "--device-count INT" in output


class Played:
    """A daemon that has just taken the program's task."""

    def __init__(self, folder: Path, program: Path, *arguments: str) -> None:
        self.daemon = ScriptedDaemon(folder / "hetd.sock")
        self.process = start(program, "--socket", str(self.daemon.path), *arguments)

    def meet(self) -> None:
        hello = self.daemon.greet()
        assert hello.own
        assert hello.pid == self.process.pid
        self.worker = hello.worker
        assert self.daemon.greet().role == "client"
        self.submit = self.daemon.expect(Submit)
        assert self.submit.worker == self.worker

    def accept(self) -> None:
        request = self.submit.request
        self.daemon.say("client", Submitted(request=request, ids=[7]))

    def order(self, *messages: Any) -> None:
        self.daemon.say(self.worker, *messages)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.daemon.close()


@pytest.fixture
def played(tmp_path: Path, program: Path) -> Iterator[Played]:
    played = Played(tmp_path, program, "--n", "4", "--device", "cpu")
    try:
        played.meet()
        yield played
    finally:
        played.close()


@pytest.fixture
def endless(tmp_path: Path, program: Path) -> Iterator[Played]:
    played = Played(tmp_path, program, "--endless")
    try:
        played.meet()
        played.accept()
        yield played
    finally:
        played.close()


def test_is_the_worker_of_its_own_task(played: Played, program: Path) -> None:
    (spec,) = played.submit.tasks
    assert isinstance(spec, TaskSpec)
    assert (spec.app, spec.params["n"]) == (f"{program}:Sum", 4)
    assert spec.resources == ["cpu"]
    played.accept()

    played.order(stage(7, spec.app, params=spec.params))
    assert played.daemon.expect(Ready).task == 7
    played.order(run(7, cpu()))

    assert next_of(played, Finished).result == {"sum": 6.0, "done": 4}
    status, output, errors = finish(played.process)
    assert (status, errors) == (0, "")
    assert json.loads(output) == {"sum": 6.0, "done": 4}


def test_a_refusal_is_one_line(played: Played) -> None:
    error = Error(played.submit.request, "not-found", "no resource 'cpu'")

    played.daemon.say("client", error)

    status, _, errors = finish(played.process)
    assert (status, errors) == (2, "sum.py: error: no resource 'cpu'\n")


def test_interrupt_cancels_the_task(endless: Played) -> None:
    (spec,) = endless.submit.tasks
    endless.order(stage(7, spec.app, params=spec.params, strip=1), run(7, cpu()))
    endless.daemon.expect(Progress)

    endless.process.send_signal(signal.SIGINT)
    control = next_of(endless, Control)
    assert (control.verb, control.ids) == ("cancel", [7])
    endless.daemon.say("client", Done(request=control.request, ids=[7]))
    endless.order(Abort(task=7, epoch=1))

    assert next_of(endless, Aborted).task == 7
    status, output, errors = finish(endless.process)
    assert (status, output) == (130, "")
    assert errors == "sum.py: interrupted\n"


def next_of(played: Played, kind: Any) -> Any:
    while True:
        _, message = played.daemon.hear()
        if not isinstance(message, Progress):
            assert isinstance(message, kind)
            return message


SUM = DeviceSpec("gpu0", "gpu", "opencl", "Platform", "Card")


def test_an_accelerator_that_works_goes_before_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulated = replace(SUM, name="fpga0", kind="fpga", emulated=True)
    task = OnEveryKind()

    def chosen(*offers: Offer) -> str:
        monkeypatch.setattr(local, "discover_devices", lambda: list(offers))
        return local.choose(task, None).name

    assert chosen(Offer(SUM, Verdict()), Offer(emulated, Verdict())) == "gpu0"
    assert chosen(Offer(emulated, Verdict())) == "cpu"
    assert chosen(Offer(SUM, Verdict("broken"))) == "cpu"
    with pytest.raises(InputError, match="gpu0 is unusable: broken"):
        local.choose(task, "gpu0")


class OnEveryKind(Task):
    """A task that computes nothing, on any kind."""


for _kind in ("cpu", "gpu", "fpga"):
    OnEveryKind.on(_kind)(lambda *_: iter(()))
