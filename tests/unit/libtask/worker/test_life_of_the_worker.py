"""The worker outlives its daemon, and ends in good time."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from libtask.messages import Finished, Progress, Ready
from libtask.worker.options import WorkerOptions
from libtask.worker.worker import Worker
from unit.libtask.worker.played_worker import Played, next_but_progress, start_counting
from unit.scripted_daemon import PATIENCE, cpu, run, stage


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


class _Nobody:
    """A line at whose other end there is no hetd."""

    welcome = None
    silent_since = 0.0
    connections = 1

    def __getattr__(self, _name: str) -> Any:
        return lambda *_given: None


@pytest.mark.parametrize(
    ("news", "hours", "leaves"),
    [
        (False, 0.01, False),
        (False, 0.02, True),
        (True, 23.0, False),
        (True, 25.0, True),
    ],
)
def test_a_result_waits_longer_for_a_hetd_than_an_idle_worker(
    news: bool,  # noqa: FBT001  drawn by name
    hours: float,
    leaves: bool,  # noqa: FBT001  as above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line: Any = _Nobody()
    worker = Worker(
        WorkerOptions("w", Path("nowhere"), ""), connect=lambda *_given: line
    )
    monkeypatch.setattr(worker, "_now", lambda: 3600 * hours)
    if news:
        worker._pending.message = Finished(1, 1)

    assert worker._is_unneeded() is leaves


@pytest.mark.parametrize(("connected_s", "leaves"), [(59.0, False), (61.0, True)])
def test_nobody_waits_to_tell_what_hetd_has_certainly_heard(
    connected_s: float,
    leaves: bool,  # noqa: FBT001  drawn by name
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line: Any = _Nobody()
    worker = Worker(
        WorkerOptions("w", Path("nowhere"), ""), connect=lambda *_given: line
    )
    monkeypatch.setattr(worker, "_now", lambda: 1000.0)
    line.welcome = "a hetd"
    worker._pending.say(Finished(1, 1), line, 1000.0)

    # the hetd that was told ends, and another connection is made
    line.welcome, line.silent_since = None, 1000.0 + connected_s
    worker._registration()
    monkeypatch.setattr(worker, "_now", lambda: 1000.0 + connected_s + 61.0)

    assert worker._is_unneeded() is leaves


@pytest.mark.parametrize("holds", ["nothing", "news", "a task"])
def test_nobody_waits_for_a_hetd_whose_folder_is_gone(
    holds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line: Any = _Nobody()
    socket = tmp_path / "private" / "hetd.sock"
    worker = Worker(WorkerOptions("w", socket, ""), connect=lambda *_given: line)
    if holds == "news":
        worker._pending.message = Finished(1, 1)
    elif holds == "a task":
        worker._loaded = object()  # type: ignore[assignment]  # any
    seen = []

    for seconds in (59.0, 61.0):
        monkeypatch.setattr(worker, "_now", lambda now=seconds: now)
        seen.append(worker._is_unneeded())

    assert seen == [False, True]
