"""The worker obeys: it stages, runs, moves and aborts as it is told."""

from __future__ import annotations

from libtask.messages import (
    Abort,
    Aborted,
    CheckpointRecord,
    Finished,
    Preempt,
    Progress,
    Ready,
    Yielded,
)
from unit.libtask.worker.played_worker import Played, next_but_progress, start_counting
from unit.scripted_daemon import cpu, null, run, stage


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


def test_resumes_from_the_given_checkpoint(worker: Played) -> None:
    order = stage(1, worker.app("Count"), params={"limit": 10})
    order = type(order)(
        task=1, epoch=1, spec=order.spec, checkpoint=CheckpointRecord(6, 10)
    )

    worker.say(order, run(1, cpu()))

    finished = next_but_progress(worker)
    assert isinstance(finished, Finished)
    assert finished.iterations == 4
    assert finished.result["seen"] == 10


def test_works_in_the_folder_of_the_submission(worker: Played) -> None:
    folder = worker.folder / "elsewhere"
    folder.mkdir()
    (folder / "enough").touch()
    params = {"until": "enough"}
    order = stage(1, worker.app("Count"), params=params, cwd=str(folder))

    worker.say(order, run(1, cpu(), strip=3))

    finished = next_but_progress(worker)
    assert isinstance(finished, Finished)
    assert finished.result["seen"] == 3


def test_an_old_preempt_changes_nothing(worker: Played) -> None:
    start_counting(worker)

    worker.say(Preempt(task=1, epoch=0), Preempt(task=2, epoch=1))
    worker.say(Abort(task=1, epoch=1))

    aborted = next_but_progress(worker)
    assert isinstance(aborted, Aborted)
    assert (aborted.task, aborted.epoch) == (1, 1)


def test_aborts_at_a_checkpoint(worker: Played) -> None:
    start_counting(worker)

    worker.say(Abort(task=1, epoch=1))

    aborted = next_but_progress(worker)
    assert isinstance(aborted, Aborted)
    assert (aborted.task, aborted.epoch) == (1, 1)
    assert aborted.strips > 0, "what it computed is told"
    assert aborted.seconds > 0
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
