"""The daemon may end at any moment: what it acknowledged happens, once."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from libtask import messages as m
from libtask.client.asynchronous import AsyncClient, AsyncTask
from libtask.client.client import Client, Selection
from libtask.errors import ConflictError, DaemonUnreachableError
from system.private_daemon import PATIENCE, RESOURCES, SETTINGS, eventually
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]


def test_running_tasks_run_on_in_the_same_worker(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    places = ("cpu", "gpu0", "fpga0")
    tasks = [
        Tracing(daemon, tmp_path / name, gate_at=10, resources=[name])
        for name in places
    ]
    for task in tasks:
        task.await_gate()

    daemon.restart()
    for task in tasks:
        task.open_gate()

    for task, place in zip(tasks, places, strict=True):
        task.check_completed()
        assert len(task.pids()) == 1
        info = daemon.info(task.id)
        assert [s.resource for s in info.segments] == [place]
        assert info.segments[0].strips == 20


def test_workers_of_another_store_have_no_part_in_its_tasks(
    private_daemon: Start, tmp_path: Path
) -> None:
    """Launcher and workers outlive a daemon whose store its user removes."""
    daemon = private_daemon()
    old = Tracing(daemon, tmp_path / "old", gate_at=10)
    old.await_gate()

    daemon.kill9()
    shutil.rmtree(daemon.state)
    daemon.start()
    new = Tracing(daemon, tmp_path / "new", gate_at=10, client=daemon.connect())
    assert new.id == old.id
    new.await_gate()
    old.open_gate()
    new.open_gate()

    new.check_completed()
    info = daemon.info(new.id)
    assert (info.attempts, len(info.segments)) == (0, 1)
    assert not set(new.pids()) & set(old.pids())


def test_a_key_of_the_caller_outlives_clients_and_daemons(
    private_daemon: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client repeats what one before it submitted, and gets the task of that one."""
    daemon = private_daemon()
    app, params = "synthetic", {"seconds": {"cpu": 0.01}}
    with daemon.connect() as client:
        first = client.submit(app, params, key="job-17")
        result = first.result(PATIENCE)
        assert not first.known

    daemon.restart()
    monkeypatch.setenv("ANOTHER", "environment")
    with daemon.connect() as client:
        again = client.submit(app, params, key="job-17")
        assert (again.id, again.known) == (first.id, True)
        assert again.result(PATIENCE) == result
        with pytest.raises(ConflictError, match="already used for another request"):
            client.submit(app, {"seconds": {"cpu": 0.02}}, key="job-17")

    assert len(daemon.client.tasks()) == 1


def test_a_task_that_ended_while_no_daemon_was_there_keeps_the_time_of_its_end(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    task = Tracing(daemon, tmp_path, gate_at=10)
    task.await_gate()
    daemon.kill9()
    task.open_gate()
    eventually(lambda: len(task.strips()) == 20, "the last strip")
    ended = (tmp_path / "trace").stat().st_mtime
    eventually(lambda: time.time_ns() / 1e9 > ended + 1.0, "some time")

    daemon.start()

    task.check_completed()
    info = daemon.info(task.id)
    assert info.state == "completed"
    assert info.finished is not None
    assert info.finished < ended + 1.0


def test_a_client_continues_with_a_daemon_that_is_back_too_late(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()

    async def wait_twice(task: Tracing) -> Any:
        async with AsyncClient(daemon.socket, patience=0.0) as client:
            followed = AsyncTask(client.client.handle(task.id))
            daemon.kill9()
            with pytest.raises(DaemonUnreachableError):
                await followed.wait()
            daemon.start()
            task.open_gate()
            return await followed.result()

    with Client(daemon.socket, patience=0.0) as client, client.watch_all() as changes:
        task = Tracing(daemon, tmp_path, gate_at=10, client=client)
        task.await_gate()

        result = asyncio.run(wait_twice(task))

        task.check_completed()
        assert result == task.handle.result()
        with pytest.raises(DaemonUnreachableError):
            list(changes)
        assert "completed" in iter(lambda: next(changes).state, "")


def test_a_task_whose_worker_ended_while_no_daemon_was_there_runs_anew_at_once(
    private_daemon: Start, tmp_path: Path
) -> None:
    # nobody waits for such a worker to come back
    daemon = private_daemon(f"{SETTINGS}{RESOURCES}".replace("5.0", "3600.0"))
    task = Tracing(daemon, tmp_path, gate_at=10)
    task.await_gate()
    (pid,) = task.pids()

    daemon.kill9()
    os.kill(pid, signal.SIGKILL)
    task.open_gate()
    daemon.start()

    assert task.handle.result(PATIENCE)["sum"] == sum(range(20))
    assert task.strips() == [*range(11), *range(20)]
    info = daemon.info(task.id)
    assert (info.attempts, info.reason) == (1, None)
    assert "killed by signal 9" in info.segments[0].stop_rule


def test_a_preempted_task_is_moved_on_after_a_restart(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    tenant = Tracing(daemon, tmp_path / "tenant", gate_at=5, resources=["gpu0"])
    tenant.await_gate()
    task = Tracing(daemon, tmp_path / "task", gate_at=5, total_strips=200)
    task.await_gate()
    daemon.client.migrate(task.id, "gpu0")
    task.open_gate()
    daemon.await_state(task.id, "preempted")

    daemon.restart()
    tenant.open_gate()

    tenant.check_completed()
    task.check_completed(200)


def test_held_waiting_and_queued_tasks_are_so_after_a_restart(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    tenant = Tracing(daemon, tmp_path / "tenant", gate_at=5, resources=["gpu0"])
    tenant.await_gate()
    fields: dict[str, dict[str, Any]] = {
        "held": {"hold": True},
        "waiting": {"after": [tenant.id]},
        "queued": {"resources": ["gpu0"], "priority": 3},
    }
    tasks = {
        state: Tracing(daemon, tmp_path / state, **options)
        for state, options in fields.items()
    }

    daemon.restart()

    for state, task in tasks.items():
        assert daemon.info(task.id).state == state
    assert daemon.info(tasks["queued"].id).priority == 3
    tenant.open_gate()
    daemon.client.release(tasks["held"].id)
    for task in tasks.values():
        task.check_completed()


def test_every_acknowledged_task_completes_exactly_once(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    load = Load(daemon.connect())

    for _ in range(3):
        enough = len(load.handles) + 60
        eventually(lambda n=enough: len(load.handles) >= n, "some load")  # type: ignore[misc]  # bound on purpose
        daemon.restart()
    load.end()

    results = [handle.result(PATIENCE) for handle in load.handles]
    assert results == [{"strips": 2, "state_bytes": 0}] * len(results)
    tasks = daemon.client.tasks(Selection(limit=100_000))
    ids = [task.id for task in tasks]
    assert len(ids) == len(set(ids))
    assert {handle.id for handle in load.handles} == set(ids)
    assert {task.state for task in tasks} == {"completed"}


class Load:
    """Submits tasks, a few at a time, until told to stop."""

    def __init__(self, client: Client) -> None:
        self.handles: list[TaskHandle] = []
        self._client = client
        self._enough = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._submit)
        self._thread.start()

    def end(self) -> None:
        self._enough.set()
        self._thread.join(PATIENCE)
        assert self._error is None, self._error

    def _submit(self) -> None:
        spec = m.TaskSpec("synthetic", {"seconds": {"cpu": 0.002}, "strips": 2})
        try:
            while not self._enough.is_set():
                self.handles += self._client.submit_specs([spec] * 5)
                self._enough.wait(0.005)
        except BaseException as error:  # noqa: BLE001  the test tells of it
            self._error = error


def test_what_was_measured_is_known_after_a_restart(private_daemon: Start) -> None:
    daemon = private_daemon()
    samples = [m.Sample("a/1", "cpu", 2.5, 4.0), m.Sample("a/1", "gpu0", 0.5, 4.0)]
    daemon.client.learn(samples)

    daemon.restart()

    assert daemon.client.models() == samples


def test_keys_are_known_after_a_restart(private_daemon: Start) -> None:
    daemon = private_daemon()
    spec = m.TaskSpec("synthetic", {"seconds": {"cpu": 0.0}})
    submit = m.Submit(request=0, tasks=[spec, spec], key="k")
    first = daemon.client._session.request(submit).ids

    daemon.restart()

    assert daemon.client._session.request(submit).ids == first


# ---------------------------------------------------------------- ends


def test_a_daemon_that_is_told_to_end_leaves_nothing(private_daemon: Start) -> None:
    daemon = private_daemon()
    daemon.client.submit("synthetic", {"seconds": {"cpu": 0.0}}).result(PATIENCE)

    assert daemon.terminate() == 0

    assert not daemon.socket.exists()
    eventually(lambda: not daemon.processes(), "the end of launcher and workers")
    with pytest.raises(DaemonUnreachableError, match="daemon absent"):
        daemon.connect()


def test_a_client_ends_the_daemon_and_running_tasks_go_on(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    task = Tracing(daemon, tmp_path, gate_at=10)
    task.await_gate()

    daemon.client.stop()
    eventually(lambda: not daemon.is_up(), "the end of the daemon")
    assert task.pids()[0] in daemon.processes()
    task.open_gate()
    eventually(lambda: len(task.strips()) == 20, "the last strip")
    daemon.start()

    task.check_completed()


def test_a_client_waits_for_a_daemon_that_comes_back(private_daemon: Start) -> None:
    daemon = private_daemon()
    client = daemon.connect()
    daemon.terminate()
    restart = threading.Thread(target=daemon.start)
    restart.start()

    handle = client.submit("synthetic", {"seconds": {"cpu": 0.0}})

    assert handle.result(PATIENCE)["strips"] == 20
    restart.join()


def test_two_daemons_share_neither_socket_nor_state(private_daemon: Start) -> None:
    daemon = private_daemon()
    same_state = daemon.command()
    same_state[same_state.index(str(daemon.socket))] = str(daemon.folder / "other")
    same_socket = daemon.command()
    same_socket[same_socket.index(str(daemon.state))] = str(daemon.folder / "tmp/st")

    state, socket = map(_start_in_vain, (same_state, same_socket))

    assert (state.returncode, socket.returncode) == (2, 2)
    assert (
        state.stderr == f"hetd: another hetd uses the state directory {daemon.state}\n"
    )
    assert socket.stderr == f"hetd: another daemon serves {daemon.socket}\n"
    assert daemon.client.devices()
    for path in (daemon.folder / "tmp/st").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("polcy = 'x'", "polcy: unknown key (did you mean policy?)"),
        ("policy = 'nosuch'", "no policy 'nosuch'"),
        ("interval_ms = 'soon'", 'interval_ms: expected a number, got "soon"'),
        ("policy = ", "Invalid value"),
    ],
)
def test_a_bad_configuration_is_refused_in_one_line(
    tmp_path: Path, config: str, complaint: str
) -> None:
    path = tmp_path / "hetd.toml"
    path.write_text(config)
    command = [sys.executable, "-m", "hetd", "--socket", str(tmp_path / "s")]

    ended = _start_in_vain([*command, "--state", str(tmp_path), "--config", str(path)])

    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert ended.stderr.count("\n") == 1
    checked = _start_in_vain([*command, "--config", str(path), "--check"])
    assert (checked.returncode, checked.stderr) == (2, ended.stderr)
    assert not (tmp_path / "hetd.db").exists()


def test_a_good_configuration_is_checked_without_a_start(tmp_path: Path) -> None:
    path = tmp_path / "hetd.toml"
    path.write_text("policy = 'migration'")
    command = [sys.executable, "-m", "hetd", "--socket", str(tmp_path / "s")]

    checked = _start_in_vain(
        [*command, "--state", str(tmp_path), "--config", str(path), "--check"]
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == [path]


def _start_in_vain(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
