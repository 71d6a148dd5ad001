"""The worker, played by hand: a real process, a real socket, a scripted daemon."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from libtask.messages import (
    Abort,
    Aborted,
    CheckpointRecord,
    Failed,
    Finished,
    Hello,
    Preempt,
    Progress,
    Ready,
    Retire,
    Yielded,
)
from unit.scripted_daemon import PATIENCE, ScriptedDaemon, cpu, null, run, stage

if TYPE_CHECKING:
    from collections.abc import Iterator

APPS = '''
from dataclasses import dataclass
from pathlib import Path

from libtask import Task
from libtask.errors import DeviceError, InputError


@dataclass
class Nothing(Task):
    """Does nothing, in one strip."""


@dataclass
class Count(Task):
    """Counts until a file appears; tells where it has been."""

    until: str = ""
    limit: int = 0

    def load(self):
        self.counted = 0
        self.trail = []
        print("loading")

    def total(self):
        return self.limit or None

    def save(self, checkpoint):
        print("saving")
        same = checkpoint.done == self.counted
        return {"same": same, "trail": self.trail, "seen": checkpoint.extra["seen"]}


def count(task, device, checkpoint):
    task.trail.append(device.spec.name)
    print("counting on", device.spec.name)
    with device.resident():
        for strip in checkpoint.strips():
            task.counted += len(strip)
            checkpoint.extra["seen"] = strip.stop
            yield
            if task.until and Path(task.until).exists():
                return


@dataclass
class Broken(Task):
    """Fails where it is told to."""

    where: str = ""
    error: str = "ValueError"

    def fail(self, where):
        if where == self.where:
            kinds = {"DeviceError": DeviceError, "InputError": InputError}
            kinds |= vars(__builtins__) if not isinstance(__builtins__, dict) else __builtins__
            raise kinds[self.error]("no\\n luck")

    def load(self):
        self.fail("load")

    def save(self, checkpoint):
        self.fail("save")
        return {"result": object, "set": {1: 2}, "large": "x" * 2_000_000}.get(self.where)


def broken(task, device, checkpoint):
    for strip in checkpoint.strips():
        task.fail("run")
        yield


@dataclass
class Clingy(Task):
    """Does not go when it has ended."""

    def load(self):
        self.held = True

    def __del__(self):
        while getattr(self, "held", False):
            pass


def nothing(task, device, checkpoint):
    for strip in checkpoint.strips():
        yield


Nothing.on("cpu")(nothing)
Nothing.on("gpu")(nothing)
Clingy.on("cpu")(nothing)
Count.on("cpu")(count)
Count.on("gpu")(count)
Broken.on("cpu")(broken)
'''


class Played:
    """A worker process, and the daemon that the test plays for it."""

    def __init__(self, folder: Path, **terms: Any) -> None:
        self.folder = folder
        self.log = folder / "worker.log"
        self.apps = folder / "apps.py"
        self.apps.write_text(textwrap.dedent(APPS))
        self.daemon = ScriptedDaemon(folder / "hetd.sock")
        script = (
            "from pathlib import Path\nfrom libtask.worker.terms import Terms\n"
            "from libtask.worker.worker import Worker\n"
            f"terms = Terms('w1', Path({str(self.daemon.path)!r}), {str(self.log)!r},"
            f" **{terms!r})\nWorker(terms).run()\n"
        )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script], stdout=log, stderr=log, cwd=folder
            )

    def say(self, *messages: Any) -> None:
        self.daemon.say("w1", *messages)

    def app(self, name: str) -> str:
        return f"{self.apps}:{name}"

    def output(self, of: Any) -> str:
        """Return what a stretch of a task printed."""
        assert of.log == str(self.log)
        return self.log.read_bytes()[of.log_start : of.log_end].decode()

    def still_works(self) -> None:
        """Run a task that does nothing."""
        self.say(stage(99, self.app("Nothing")), run(99, cpu()))
        assert self.daemon.expect(Finished).task == 99

    def retire(self) -> int:
        self.say(Retire())
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.daemon.close()


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    played = Played(tmp_path)
    yield played
    played.close()


@pytest.fixture
def worker(played: Played) -> Played:
    hello = played.daemon.greet(interval_ns=1_000_000)
    assert hello == Hello(role="worker", pid=played.process.pid, worker="w1")
    return played


def start_counting(worker: Played, **params: Any) -> Progress:
    """Stage and run an endless task on gpu0; return its first report."""
    params = {"until": str(worker.folder / "enough"), **params}
    worker.say(stage(1, worker.app("Count"), params=params, strip=100))
    worker.daemon.expect(Ready)
    worker.say(run(1, null("gpu0")))
    return worker.daemon.expect(Progress)


def next_but_progress(worker: Played) -> Any:
    while True:
        _, message = worker.daemon.hear()
        if not isinstance(message, Progress):
            return message


def test_a_task_that_does_nothing_reports_only_its_end(worker: Played) -> None:
    worker.say(stage(7, worker.app("Nothing")), run(7, cpu()))

    finished = worker.daemon.expect(Finished)

    assert (finished.task, finished.epoch) == (7, 1)
    assert (finished.strips, finished.iterations) == (1, 1)
    assert finished.result is None
    assert worker.retire() == 0


def test_a_staged_task_is_ready_and_waits(worker: Played) -> None:
    worker.say(stage(7, worker.app("Count"), params={"limit": 5}))

    assert worker.daemon.expect(Ready) == Ready(task=7, epoch=1, total=5)
    worker.say(run(7, cpu()))
    finished = next_but_progress(worker)
    assert isinstance(finished, Finished)
    assert finished.result == {"same": True, "trail": ["cpu"], "seen": 5}
    assert finished.iterations == 5


def test_a_long_task_says_that_it_runs(worker: Played) -> None:
    progress = start_counting(worker)

    assert progress.started is not None
    assert progress.strips > 0
    assert progress.iterations == progress.checkpoint.done
    later = worker.daemon.expect(Progress)
    assert later.started is None
    assert later.checkpoint.done == progress.checkpoint.done + later.iterations


def test_moves_to_another_device(worker: Played) -> None:
    start_counting(worker)

    worker.say(Preempt(task=1, epoch=1))
    yielded = next_but_progress(worker)
    assert isinstance(yielded, Yielded)
    assert yielded.checkpoint.extra == {"seen": yielded.checkpoint.done}
    assert yielded.iterations == yielded.checkpoint.done
    assert yielded.last_strip > 0
    worker.say(run(1, null("gpu1")))
    first = worker.daemon.expect(Progress)
    assert first.started is not None
    assert first.checkpoint.done == yielded.checkpoint.done + first.iterations
    (worker.folder / "enough").touch()
    finished = next_but_progress(worker)

    assert isinstance(finished, Finished)
    assert finished.result["same"]
    assert finished.result["trail"] == ["gpu0", "gpu1"]
    assert finished.result["seen"] == yielded.checkpoint.done + finished.iterations


def test_output_belongs_to_its_stretch(worker: Played) -> None:
    start_counting(worker)
    worker.say(Preempt(task=1, epoch=1))
    yielded = next_but_progress(worker)
    (worker.folder / "enough").touch()
    worker.say(run(1, cpu()))
    finished = next_but_progress(worker)

    assert worker.output(yielded) == "loading\ncounting on gpu0\n"
    assert worker.output(finished) == "counting on cpu\nsaving\n"


def test_an_old_preempt_changes_nothing(worker: Played) -> None:
    start_counting(worker)

    worker.say(Preempt(task=1, epoch=0), Preempt(task=2, epoch=1))
    worker.say(Abort(task=1, epoch=1))

    assert next_but_progress(worker) == Aborted(task=1, epoch=1)


def test_aborts_at_a_checkpoint(worker: Played) -> None:
    start_counting(worker)

    worker.say(Abort(task=1, epoch=1))

    assert next_but_progress(worker) == Aborted(task=1, epoch=1)
    worker.still_works()


def test_aborts_what_is_staged_or_yielded(worker: Played) -> None:
    worker.say(stage(5, worker.app("Count")))
    worker.daemon.expect(Ready)
    worker.say(Abort(task=5, epoch=1))
    assert worker.daemon.expect(Aborted).task == 5

    start_counting(worker)
    worker.say(Preempt(task=1, epoch=1))
    assert isinstance(next_but_progress(worker), Yielded)
    worker.say(Abort(task=1, epoch=1))
    assert worker.daemon.expect(Aborted).task == 1
    worker.still_works()


def test_answers_an_abort_of_what_it_does_not_hold(worker: Played) -> None:
    worker.still_works()

    worker.say(Abort(task=99, epoch=1))

    assert worker.daemon.expect(Aborted) == Aborted(task=99, epoch=1)
    worker.still_works()


def test_orders_that_come_during_a_run_are_kept(worker: Played) -> None:
    start_counting(worker)

    worker.say(stage(2, worker.app("Nothing")), run(2, cpu()))
    (worker.folder / "enough").touch()

    assert next_but_progress(worker).task == 1
    assert worker.daemon.expect(Finished).task == 2


@pytest.mark.parametrize("where", ["load", "run", "save"])
@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        ("ValueError", "ValueError: no luck", "task-failed"),
        ("MemoryError", "MemoryError: no luck", "task-failed"),
        ("SystemExit", "SystemExit: no luck", "task-failed"),
        ("KeyboardInterrupt", "KeyboardInterrupt: no luck", "task-failed"),
        ("InputError", "no luck", "bad-input"),
        ("DeviceError", "no luck", "device"),
    ],
)
def test_survives_failures(
    worker: Played, where: str, error: str, line: str, code: str
) -> None:
    params = {"where": where, "error": error}
    worker.say(stage(1, worker.app("Broken"), params=params), run(1, cpu()))

    failed = worker.daemon.expect(Failed)

    assert (failed.task, failed.error, failed.code) == (1, line, code)
    assert "in fail" in failed.trace
    worker.still_works()


@pytest.mark.parametrize("where", ["result", "set", "large"])
def test_a_result_that_cannot_travel_fails_the_task(worker: Played, where: str) -> None:
    worker.say(stage(1, worker.app("Broken"), params={"where": where}), run(1, cpu()))

    failed = worker.daemon.expect(Failed)

    assert failed.code == "bad-input"
    assert len(failed.error.splitlines()) == 1
    worker.still_works()


def test_refuses_what_it_cannot_run(worker: Played) -> None:
    worker.say(stage(1, "/nowhere/app.py:App"))
    assert worker.daemon.expect(Failed).code == "bad-input"

    worker.say(stage(2, worker.app("Nothing"), params={"no": 1}))
    assert "no" in worker.daemon.expect(Failed).error

    fpga = null("fpga0", "fpga")
    worker.say(stage(3, worker.app("Nothing")), run(3, fpga))
    assert "no implementation for fpga (fpga0)" in worker.daemon.expect(Failed).error

    worker.say(stage(4, worker.app("Nothing"), cwd="/nowhere"))
    assert "/nowhere: No such file" in worker.daemon.expect(Failed).error

    worker.say(run(5, cpu()))
    assert worker.daemon.expect(Failed).code == "not-held"
    worker.still_works()


def test_an_edited_app_is_another_app(worker: Played) -> None:
    worker.still_works()

    worker.apps.write_text("raise RuntimeError('half written')\n")

    worker.say(stage(1, worker.app("Nothing")))
    failed = worker.daemon.expect(Failed)
    assert "half written" in failed.error


def test_a_trace_is_cut_at_its_beginning(worker: Played) -> None:
    deep = worker.folder / "deep.py"
    deep.write_text(
        "from libtask import Task\n\n\nclass Deep(Task):\n    def load(self, n=40):\n"
        "        if n == 0:\n            raise ValueError('the end')\n"
        + "".join(f"        {'#' * 90}\n" for _ in range(3))
        + "        (self.load if n % 2 else lambda m: self.load(m))(n - 1)\n"
    )
    worker.say(stage(1, f"{deep}:Deep"))

    trace = worker.daemon.expect(Failed).trace

    assert len(trace.encode()) <= 4096
    assert trace.endswith("ValueError: the end\n")


def test_works_in_the_folder_of_the_submission(worker: Played) -> None:
    folder = worker.folder / "elsewhere"
    folder.mkdir()
    (folder / "enough").touch()
    params = {"until": "enough"}
    order = stage(1, worker.app("Count"), params=params, cwd=str(folder))

    worker.say(order, run(1, cpu(), strip=3))

    assert worker.daemon.expect(Finished).result["seen"] == 3


def test_a_new_daemon_hears_what_is_held_and_what_was_said_last(
    worker: Played,
) -> None:
    worker.say(stage(1, worker.app("Count")))
    worker.daemon.expect(Ready)

    worker.daemon.die()
    worker.daemon.rise()

    hello = worker.daemon.greet()
    assert (hello.worker, hello.task, hello.epoch) == ("w1", 1, 1)
    assert worker.daemon.expect(Ready).task == 1


def test_a_task_outlives_its_daemon_and_delivers_its_result(worker: Played) -> None:
    start_counting(worker)

    worker.daemon.die()
    (worker.folder / "enough").touch()
    worker.daemon.rise()
    hello = worker.daemon.greet()

    assert hello.task == 1
    finished = next_but_progress(worker)
    assert isinstance(finished, Finished)
    assert finished.task == 1
    worker.still_works()


def test_a_result_is_said_again_to_a_new_daemon(worker: Played) -> None:
    worker.still_works()

    worker.daemon.die()
    worker.daemon.rise()

    hello = worker.daemon.greet()
    assert (hello.task, hello.epoch) == (99, 1)
    assert worker.daemon.expect(Finished).task == 99
    worker.still_works()


def test_a_running_task_tells_a_new_daemon_where_it_is(worker: Played) -> None:
    start_counting(worker)

    worker.daemon.die()
    worker.daemon.rise()

    assert worker.daemon.greet().task == 1
    progress = worker.daemon.expect(Progress)
    assert progress.started is not None
    assert progress.iterations == progress.checkpoint.done


def test_resumes_from_the_given_checkpoint(worker: Played) -> None:
    order = stage(1, worker.app("Count"), params={"limit": 10})
    order = type(order)(
        task=1, epoch=1, spec=order.spec, checkpoint=CheckpointRecord(6, 10)
    )

    worker.say(order, run(1, cpu()))

    finished = worker.daemon.expect(Finished)
    assert finished.iterations == 4
    assert finished.result["seen"] == 10


def test_retires_after_its_tasks(tmp_path: Path) -> None:
    worker = Played(tmp_path, tasks=2)
    worker.daemon.greet()
    worker.still_works()
    worker.still_works()

    assert worker.process.wait(PATIENCE) == 0
    worker.close()


def test_ends_on_sigterm_in_the_middle_of_a_strip(worker: Played) -> None:
    start_counting(worker)

    worker.process.terminate()

    assert worker.process.wait(PATIENCE) == -15


def test_a_worker_whose_ended_task_does_not_go_is_ended(tmp_path: Path) -> None:
    played = Played(tmp_path, disposal_s=0.2)
    try:
        played.daemon.greet()
        played.say(stage(1, played.app("Clingy")), run(1, cpu()))

        assert played.daemon.expect(Finished).task == 1
        assert played.process.wait(PATIENCE) == -signal.SIGALRM
    finally:
        played.close()
