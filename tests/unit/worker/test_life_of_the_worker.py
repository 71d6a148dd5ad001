"""The worker outlives its daemon, and ends in good time."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from libtask.messages import Finished, Progress, Ready
from unit.scripted_daemon import PATIENCE, cpu, run, stage
from unit.worker.played_worker import Played, next_but_progress, start_counting

if TYPE_CHECKING:
    from pathlib import Path


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
