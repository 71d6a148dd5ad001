"""Whatever an application, a worker or a launcher does, the others go on."""

from __future__ import annotations

import os
import signal
import textwrap
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Client
from libtask.errors import InputError, TaskFailedError
from libtask.messages import TaskSpec
from system import traced
from system.private_daemon import RESOURCES, SETTINGS, eventually
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from system.private_daemon import PrivateDaemon

    Submit = Callable[..., Tracing]
    Start = Callable[..., PrivateDaemon]


# ---------------------------------------------------------------- applications


@pytest.mark.parametrize("place", ["load", "run", "save"])
def test_an_app_that_raises_fails_with_one_line(
    daemon: PrivateDaemon, trace: Submit, place: str
) -> None:
    task = trace(raise_in=place)

    with pytest.raises(
        TaskFailedError, match=f"ArithmeticError: on purpose in {place}"
    ):
        task.handle.result(30)

    info = daemon.info(task.id)
    assert info.state == "failed"
    assert "\n" not in (info.reason or "")
    trace().check_completed()


def test_a_staged_task_that_cannot_load_fails_before_its_turn(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    tenant = trace(gate_at=5, resources=["gpu0"])
    tenant.await_gate()

    staged = trace(raise_in="load", resources=["gpu0"])

    assert staged.handle.wait(30) == "failed"
    assert "on purpose in load" in (daemon.info(staged.id).reason or "")
    tenant.open_gate()
    tenant.check_completed()


def test_an_app_that_exits_fails_and_harms_nobody(
    daemon: PrivateDaemon, trace: Submit, tmp_path: Path
) -> None:
    app = _write_app(tmp_path, "raise SystemExit(3)")

    handle = daemon.client.submit(app)

    with pytest.raises(TaskFailedError, match="SystemExit: 3"):
        handle.result(30)
    trace().check_completed()


def test_an_app_without_yields_fails_with_what_to_do(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    app = _write_app(tmp_path, "return None")

    with pytest.raises(TaskFailedError, match=r"not a generator; write one `yield`"):
        daemon.client.submit(app).result(30)


def test_a_failed_task_keeps_where_it_failed(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    app = _write_app(tmp_path, "raise ValueError('no luck'); yield", "return None")
    handle = daemon.client.submit(app)

    with pytest.raises(TaskFailedError, match="no luck") as caught:
        handle.result(30)

    assert "ValueError: no luck" in str(caught.value.__cause__)
    assert "app.py" in str(caught.value.__cause__)
    assert "ValueError: no luck" in handle.info().trace
    assert "ValueError: no luck" in handle.logs()


def test_a_file_with_a_syntax_error_is_refused_and_fails(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("class Broken(Task:\n")
    app = f"{broken}:Broken"

    with pytest.raises(InputError, match=r"broken.py: .*line 1"):
        daemon.client.submit(app)
    # and so does a file that broke after its submission
    (handle,) = daemon.client.submit_specs([TaskSpec(app)])

    with pytest.raises(TaskFailedError, match=r"broken.py: .*line 1"):
        handle.result(30)


def test_a_task_whose_folder_is_gone_fails_and_says_so(daemon: PrivateDaemon) -> None:
    spec = TaskSpec("synthetic", {"seconds": {"cpu": 0}}, cwd="/not/there")

    (handle,) = daemon.client.submit_specs([spec])

    with pytest.raises(TaskFailedError, match="/not/there: No such file"):
        handle.result(30)


def _write_app(folder: Path, implementation: str, save: str = "return None") -> str:
    """Write an application whose bodies are given; return its name."""
    text = f"""
    from dataclasses import dataclass
    from libtask import Task

    @dataclass
    class App(Task):
        def save(self, checkpoint):
            {save}

    def strips(checkpoint):
        for _ in checkpoint.strips():
            yield

    @App.on("cpu")
    def app(task, device, checkpoint):
        {implementation}
    """
    path = folder / "app.py"
    path.write_text(textwrap.dedent(text))
    return f"{path}:App"


# ---------------------------------------------------------------- workers


def test_a_task_whose_worker_is_killed_runs_anew(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=10)
    task.await_gate()
    (first,) = task.pids()

    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(task.pids()) > 1, "the task in another worker")
    task.open_gate()

    assert task.handle.result(30)["sum"] == sum(range(20))
    assert task.strips() == [*range(11), *range(20)]
    info = daemon.info(task.id)
    assert [s.resource for s in info.segments] == ["cpu", "cpu"]
    assert (info.state, info.migrations) == ("completed", 0)


def test_a_task_that_loses_too_many_workers_fails_and_says_why(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=0)
    for attempt in range(3):
        eventually(lambda n=attempt: len(task.pids()) > n, "another worker")  # type: ignore[misc]  # the attempt is bound on purpose
        os.kill(task.pids()[-1], signal.SIGKILL)

    reason = r"\(SIGKILL\) in its first strip on cpu, .*; 3 attempts are the limit"
    with pytest.raises(TaskFailedError, match=reason):
        task.handle.result(30)

    trace().check_completed()


def test_a_preempted_task_whose_worker_is_killed_runs_anew(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=10)
    task.await_gate()
    daemon.client.hold(task.id)
    task.open_gate()
    daemon.await_state(task.id, "held")
    done = task.strips()

    os.kill(task.pids()[0], signal.SIGKILL)
    eventually(lambda: task.pids()[0] not in daemon.processes(), "the worker's end")
    daemon.client.release(task.id)

    assert task.handle.result(30)["sum"] == sum(range(20))
    assert task.strips() == [*done, *range(20)]


# ---------------------------------------------------------------- launchers


def test_nothing_is_lost_with_a_launcher(private_daemon: Start, tmp_path: Path) -> None:
    daemon = private_daemon()
    running = Tracing(daemon, tmp_path / "running", gate_at=10)
    running.await_gate()
    queued = [Tracing(daemon, tmp_path / f"queued{k}") for k in range(4)]

    os.kill(daemon.launcher(), signal.SIGKILL)
    eventually(lambda: not _has_launcher(daemon), "the loss noticed")
    running.open_gate()
    daemon.client.submit("synthetic", {"seconds": {"cpu": 0.01}}).result(30)

    running.check_completed()
    assert len(running.pids()) == 1, "a worker outlives its launcher"
    for task in queued:
        task.check_completed()


def test_a_worker_that_lost_its_launcher_is_killed_all_the_same(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    task = Tracing(daemon, tmp_path, gate_at=0)
    task.await_gate()
    (pid,) = task.pids()
    os.kill(daemon.launcher(), signal.SIGKILL)
    eventually(lambda: not _has_launcher(daemon), "the loss noticed")

    task.handle.cancel()

    assert task.handle.wait(30) == "cancelled"
    assert pid not in daemon.processes()


def _has_launcher(daemon: PrivateDaemon) -> bool:
    with Client(daemon.socket) as client:
        return client.welcome.launcher


def test_tasks_without_a_launcher_wait_for_the_next_one(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    task = Tracing(daemon, tmp_path, gate_at=10)
    task.await_gate()
    launcher, workers = daemon.launcher(), daemon.workers()

    for pid in [launcher, *workers]:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not _has_launcher(daemon), "the loss noticed")
    task.open_gate()
    another = daemon.connect()  # the first one has asked for a launcher just now
    another.submit("synthetic", {"seconds": {"cpu": 0.01}}).result(30)

    assert task.handle.result(30)["sum"] == sum(range(20))


def test_the_attempts_are_configured(private_daemon: Start, tmp_path: Path) -> None:
    daemon = private_daemon(f"attempts = 1\n{SETTINGS}{RESOURCES}")
    task = Tracing(daemon, tmp_path, gate_at=0)
    task.await_gate()

    os.kill(task.pids()[0], signal.SIGKILL)

    with pytest.raises(TaskFailedError, match="1 attempts are the limit"):
        task.handle.result(30)


def test_the_app_of_these_tests_is_found_by_its_file(daemon: PrivateDaemon) -> None:
    with pytest.raises(InputError, match=r"no class 'Trace' .did you mean Traced"):
        daemon.client.submit(f"{traced.__file__}:Trace", {})
