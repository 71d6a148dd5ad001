"""Tasks that do not obey cost their workers, and nobody else anything."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from libtask.errors import TaskFailedError
from libtask.processes import is_alive
from system import disobedient
from system.private_daemon import PATIENCE, RESOURCES, SETTINGS, eventually, opened
from system.terminal import Terminal
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]

IMPATIENT = "strip_limit_s = 0.3\nlog_mb = 1\n" + SETTINGS + RESOURCES


class Rebel:
    """A disobedient task, submitted."""

    def __init__(self, daemon: PrivateDaemon, folder: Path, **params: Any) -> None:
        options = {"resources": params.pop("resources", ["cpu"]), "strip": 1}
        app = f"{disobedient.__file__}:Disobedient"
        self.folder = folder
        folder.mkdir()
        params["folder"] = str(folder)
        self.handle: TaskHandle = daemon.client.submit(app, params, **options)
        self.id = self.handle.id

    def trace(self) -> list[tuple[int, str, int]]:
        """Return (strip, resource, pid) of each strip so far."""
        trace = self.folder / "trace"
        lines = trace.read_text().splitlines() if trace.exists() else []
        rows = [line.split() for line in lines]
        return [(int(strip), name, int(pid)) for strip, name, pid in rows]

    def await_deed(self) -> None:
        done = self.folder / "deeds"
        eventually(done.exists, "the deed")

    def pids(self) -> list[int]:
        return list(dict.fromkeys(pid for _, _, pid in self.trace()))


@pytest.fixture(scope="module")
def impatient() -> Iterator[PrivateDaemon]:
    with opened(IMPATIENT) as daemon:
        yield daemon


@pytest.fixture
def rebel(impatient: PrivateDaemon, tmp_path: Path) -> Callable[..., Rebel]:
    """Submit disobedient tasks to a daemon that has little patience with strips."""
    return lambda **params: Rebel(impatient, tmp_path / "rebel", **params)


# ---------------------------------------------------------------- strips


@pytest.mark.parametrize("deed", ["hang", "ignore"])
def test_a_task_that_hangs_goes_on_elsewhere_when_its_worker_is_gone(
    impatient: PrivateDaemon, rebel: Callable[..., Rebel], deed: str
) -> None:
    # Reports come each 0.1 s at most: the strip deadline counts from the second.
    task = rebel(
        deed=deed,
        times=1,
        deed_at=20,
        total_strips=24,
        pace=0.02,
        resources=["cpu", "gpu0"],
    )

    assert task.handle.result(PATIENCE) == 24

    first, _ = task.pids()
    assert not is_alive(first)
    info = impatient.info(task.id)
    before, after = info.segments
    assert {before.resource, after.resource} == {"cpu", "gpu0"}
    assert (before.finish or 0) <= after.start
    assert re.search(r"no checkpoint was reached in 0\.\d+ s", before.stop_rule)


def test_a_stopped_worker_counts_as_one_that_hangs(
    impatient: PrivateDaemon, rebel: Callable[..., Rebel]
) -> None:
    task = rebel(total_strips=100, pace=0.01)
    eventually(lambda: len(task.trace()) > 60, "many strips")

    os.kill(task.pids()[0], signal.SIGSTOP)

    assert task.handle.result(PATIENCE) == 100
    assert len(task.pids()) == 2


def test_compiling_and_saving_may_take_long(
    impatient: PrivateDaemon, rebel: Callable[..., Rebel]
) -> None:
    # first strip, last strip and saving: each longer than a strip may be silent later
    task = rebel(total_strips=2, pace=0.8, save_s=0.8)

    assert task.handle.result(PATIENCE) == 2

    assert len(task.pids()) == 1
    assert impatient.info(task.id).attempts == 0


def test_saving_may_take_long_after_many_strips(rebel: Callable[..., Rebel]) -> None:
    task = rebel(total_strips=40, pace=0.01, save_s=1.5)

    assert task.handle.result(PATIENCE) == 40

    assert len(task.pids()) == 1


def test_a_task_that_does_not_yield_costs_its_worker(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon("setup_limit_s = 1.0\n" + IMPATIENT)
    task = Rebel(
        daemon, tmp_path / "r", deed="ignore", times=1, resources=["cpu", "gpu0"]
    )
    task.await_deed()

    daemon.client.migrate(task.id, "gpu0")

    assert task.handle.result(PATIENCE) == 6
    assert [name for _, name, _ in task.trace()][-6:] == ["gpu0"] * 6


# ---------------------------------------------------------------- ends


def test_a_task_that_ends_its_worker_without_a_word_is_premature(
    impatient: PrivateDaemon, rebel: Callable[..., Rebel]
) -> None:
    task = rebel(deed="exit")

    with pytest.raises(
        TaskFailedError, match=r"exit status 0.*3 attempts are the limit"
    ):
        task.handle.result(PATIENCE)

    assert len(task.pids()) == 3


def test_what_a_task_hid_is_gone_when_it_has_ended(
    impatient: PrivateDaemon, rebel: Callable[..., Rebel]
) -> None:
    task = rebel(deed="hide", times=1)

    assert task.handle.result(PATIENCE) == 6

    hidden = [int(pid) for pid in (task.folder / "hidden").read_text().split()]
    assert hidden
    assert not any(map(is_alive, hidden))


def test_a_flood_of_output_is_cut_and_its_reader_told(
    impatient: PrivateDaemon, rebel: Callable[..., Rebel]
) -> None:
    task = rebel(deed="flood", total_strips=400, pace=0.002)
    assert task.handle.result(PATIENCE) == 400
    segment = impatient.info(task.id).segments[0]
    log = Path(segment.log)

    eventually(lambda: log.stat().st_blocks * 512 <= 1 << 20, "a log below the cap")

    shown = Terminal(impatient)("logs", str(task.id))
    assert "bytes of output were dropped here: the log is full" in shown
    assert len(shown) < 1 << 20


# ---------------------------------------------------------------- restarts


def test_a_task_in_a_long_strip_survives_many_restarts(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon(SETTINGS.replace("5.0", "0.2") + RESOURCES)
    task = Tracing(daemon, tmp_path, gate_at=10)
    task.await_gate()
    (pid,) = task.pids()

    for round_ in range(4):
        if round_ % 2:
            daemon.terminate()
            daemon.start()
        else:
            daemon.restart()
        info = daemon.info(task.id)
        assert (info.state, info.attempts) == ("running", 0)
    task.open_gate()

    task.check_completed()
    assert task.pids() == [pid]
    assert len(daemon.info(task.id).segments) == 1


def test_others_run_on_when_a_task_removes_the_launchers_folders(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    task = Tracing(daemon, tmp_path, gate_at=10)
    task.await_gate()

    for folder in filter(Path.is_dir, (daemon.crew_folder).iterdir()):
        shutil.rmtree(folder)
    task.open_gate()

    task.check_completed()
    os.kill(task.pids()[0], signal.SIGKILL)
    for _ in range(3):  # in a worker that is made after that
        handle = daemon.client.submit("synthetic", {"seconds": {"cpu": 0.01}})
        assert handle.result(PATIENCE)["strips"] == 20
