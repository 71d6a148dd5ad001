"""What hetd makes of snapshots, of tasks that wait on disk, and of restored ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec, restarting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hetd.tasks.page import TaskPage

    Restart = Callable[[], Shell]


@pytest.fixture
def restart(tmp_path: Path) -> Iterator[Restart]:
    """Start a daemon, and start it again over the same store."""
    with restarting(tmp_path) as start:
        yield start


@pytest.fixture
def shell(restart: Restart) -> Shell:
    return restart()


def running(shell: Shell, worker: str = "w", **fields: Any) -> m.Run:
    shell.worker(worker)
    shell.submit(a_spec(**fields))
    return shell.run_of(worker)


def entry_of(shell: Shell, task: int) -> TaskPage:
    page = shell.journal.find(task)
    assert page is not None
    return page


def record_of(shell: Shell, task: int) -> Any:
    return shell.runtime.scheduler.system.tasks[task]  # type: ignore[index]  # ids are numbers


def report(shell: Shell, worker: str, message: Any) -> None:
    shell.reports.report(a_peer(worker), message)


def snapshot(
    shell: Shell, run: m.Run, done: int, worker: str = "w", **fields: Any
) -> None:
    stands = m.CheckpointRecord(done, 10)
    report(shell, worker, m.SnapshotTaken(run.task, run.epoch, stands, **fields))


def progress(shell: Shell, run: m.Run, done: int, worker: str = "w") -> None:
    stands = m.CheckpointRecord(done, 10)
    report(
        shell,
        worker,
        m.Progress(run.task, run.epoch, stands, 0.1, 1, at_risk=0.7, started=1.0),
    )


def yield_(shell: Shell, run: m.Run, done: int, worker: str = "w") -> None:
    stands = m.CheckpointRecord(done, 10)
    report(shell, worker, m.Yielded(run.task, run.epoch, stands, at_risk=0.9))


# ---------------------------------------------------------------- snapshots


def test_what_a_snapshot_holds_survives_the_worker(shell: Shell) -> None:
    run = running(shell)
    progress(shell, run, 4)
    snapshot(shell, run, 4, at=9.0, bytes=77, seconds=0.25)
    progress(shell, run, 6)
    shell.reports.worker_left(USER, "w", "killed")
    shell.worker("v")
    again = shell.run_of("v")

    info = shell.ask(m.ListTasks(1, ids=[run.task])).tasks[0]
    assert info.snapshot == m.SnapshotInfo(4, 10, 9.0, 77, 0.25)
    assert (info.progress, info.at_risk, info.attempts) == (0.4, 0.0, 1)
    assert record_of(shell, run.task).progress == 0.4
    assert (run.resume, again.resume) == (False, True)
    assert run.snapshots == again.snapshots
    assert run.snapshots.startswith(f"{run.task}-")


def test_a_snapshot_that_failed_leaves_the_older_one(shell: Shell) -> None:
    run = running(shell)
    snapshot(shell, run, 4, bytes=77)
    progress(shell, run, 6)
    snapshot(shell, run, 6, error="No space left on device")

    page = entry_of(shell, run.task)
    assert page.snapshot is not None
    assert (page.snapshot.done, page.at_risk) == (4, 0.7)
    assert page.snapshot_error == "No space left on device"


def test_a_task_goes_on_from_where_its_worker_could(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    run = running(shell)
    progress(shell, run, 6)
    snapshot(shell, run, 6)
    shell.reports.worker_left(USER, "w", "killed")
    shell.worker("v")
    again = shell.run_of("v")
    older = m.CheckpointRecord(3, 10)
    report(shell, "v", m.Resumed(run.task, again.epoch, older, ["x: it is cut off"]))

    page = entry_of(shell, run.task)
    assert (page.progress, page.refused) == (0.3, 1)
    assert record_of(shell, run.task).progress == 0.3
    assert caplog.messages == [
        f"task {run.task}: a snapshot is not used: x: it is cut off"
    ]


def test_a_snapshot_of_an_old_attempt_counts_for_nothing(shell: Shell) -> None:
    run = running(shell)
    shell.reports.worker_left(USER, "w", "killed")
    shell.worker("v")

    snapshot(shell, run, 9)

    assert entry_of(shell, run.task).snapshot is None


def test_progress_gives_all_attempts_back(shell: Shell) -> None:
    run = running(shell)
    for number in range(5):
        worker = f"w{number}"
        shell.reports.worker_left(
            USER, "w" if not number else f"w{number - 1}", "killed"
        )
        shell.worker(worker)
        run = shell.run_of(worker)
        if number < 3:
            progress(shell, run, number + 1, worker)
        assert entry_of(shell, run.task).state == "running"

    shell.reports.worker_left(USER, "w4", "killed")
    assert entry_of(shell, run.task).reason == "killed; 3 attempts are the limit"


def test_launchers_drop_the_snapshots_of_ended_tasks_of_their_user(
    shell: Shell,
) -> None:
    run, ended = running(shell), running(shell, "v")
    theirs = entry_of(shell, *shell.submit(a_spec(), uid=OTHER)).snapshots_name
    shell.finish("v", ended)
    launcher = a_peer("launcher")
    names = [run.snapshots, ended.snapshots, f"{run.task}-0", theirs, "no name", "9-9"]

    shell.reports.snapshots.held(launcher, m.SnapshotsHeld(names))

    ((route, drop),) = [
        reply
        for reply in shell.journal.batch.replies
        if isinstance(reply[1], m.DropSnapshots)
    ]
    assert route == launcher.route, "told when the commit is done"
    assert drop.names == names[1:]


def test_a_user_asks_for_a_snapshot(shell: Shell) -> None:
    run = running(shell)

    done = shell.ask(m.Control(1, "snapshot", [run.task]))

    assert done.ids == [run.task]
    assert shell.sent.to("w", m.TakeSnapshot) == [m.TakeSnapshot(run.task, run.epoch)]


# ---------------------------------------------------------------- waiting on disk


def held(shell: Shell, worker: str = "w") -> m.Run:
    run = running(shell, worker)
    shell.ask(m.Control(1, "hold", [run.task]))
    yield_(shell, run, 5, worker)
    return run


def test_a_parked_task_frees_its_worker_and_goes_on_in_any(shell: Shell) -> None:
    run = held(shell)
    snapshot(shell, run, 5)
    report(shell, "w", m.Parked(run.task, run.epoch))
    (other,) = shell.submit(a_spec())
    shell.worker("v")
    shell.ask(m.Control(1, "release", [run.task]))

    assert [each.task for each in shell.sent.to("w", m.Run)] == [run.task, other]
    again = shell.run_of("v")
    assert (again.task, again.resume, again.spec is not None) == (run.task, True, True)
    assert again.epoch > run.epoch
    info = entry_of(shell, run.task)
    assert (info.state, info.progress, info.attempts) == ("running", 0.5, 0)


def test_a_task_parked_while_it_was_told_to_go_on_goes_on_elsewhere(
    shell: Shell,
) -> None:
    run = held(shell)
    snapshot(shell, run, 5)
    shell.ask(m.Control(1, "release", [run.task]))
    report(shell, "w", m.Parked(run.task, run.epoch))
    refused = m.Failed(run.task, run.epoch, "it does not hold it", "not-held")
    report(shell, "w", refused)

    first, second, third = shell.sent.to("w", m.Run)
    assert (first.resume, second.spec) == (False, None)
    assert (third.task, third.resume, third.epoch > run.epoch) == (run.task, True, True)
    assert (shell.state(run.task), entry_of(shell, run.task).attempts) == ("running", 0)


# ---------------------------------------------------------------- restarts


def test_a_held_task_stays_with_its_worker_over_a_restart(restart: Restart) -> None:
    run = held(restart())

    shell = restart()
    peer = shell.worker("w", task=run.task, epoch=run.epoch)
    yielded = m.Yielded(run.task, run.epoch, m.CheckpointRecord(5, 10))
    shell.reports.report(peer, yielded)
    assert shell.state(run.task) == "held"
    shell.ask(m.Control(1, "release", [run.task]))

    order = shell.run_of("w")
    assert (order.task, order.epoch, order.spec) == (run.task, run.epoch, None)
    assert shell.sent.to("w", m.Abort) == []


def test_a_preempted_task_is_ordered_once_its_worker_greets(restart: Restart) -> None:
    run = preempted(restart())

    shell = restart()
    shell.reports.worker_left(USER, "x", "killed")
    shell.runtime.tick()
    peer = shell.worker("w", task=run.task, epoch=run.epoch)
    yielded = m.Yielded(run.task, run.epoch, m.CheckpointRecord(5, 10))
    shell.reports.report(peer, yielded)

    orders = shell.sent.to("w", m.Run)
    places = [order.device.name for order in orders if order.task == run.task]
    assert places == [] or set(places) == {"gpu0"}, "only where its owner wants it"


def test_a_task_whose_worker_is_gone_after_a_restart_goes_on_from_its_snapshot(
    restart: Restart,
) -> None:
    first = restart()
    run = held(first)
    snapshot(first, run, 5)

    shell = restart()
    shell.starts[1] = 0  # its process is gone
    shell.runtime.tick()
    shell.ask(m.Control(1, "release", [run.task]))
    shell.worker("v")

    order = shell.run_of("v")
    assert (order.task, order.resume) == (run.task, True)
    page = entry_of(shell, run.task)
    assert (page.progress, page.attempts) == (0.5, 1)


def test_what_was_acknowledged_is_followed_after_a_restart(restart: Restart) -> None:
    first = restart()
    runs = [
        running(first, "a", resources=["cpu"]),
        running(first, "b", resources=["cpu"]),
    ]
    first.ask(m.Migrate(1, runs[0].task, "gpu0"))
    first.ask(m.Control(1, "hold", [runs[1].task]))

    shell = restart()
    for worker, run in zip("ab", runs, strict=True):
        shell.worker(worker, task=run.task, epoch=run.epoch, resource="cpu")
        assert shell.sent.to(worker, m.Preempt) == [m.Preempt(run.task, run.epoch)]
        yield_(shell, run, 5, worker)

    assert shell.run_of("a").device.name == "gpu0"
    assert shell.state(runs[1].task) == "held"


def preempted(shell: Shell) -> m.Run:
    """Let a task wait for the GPU, in its worker."""
    run = running(shell, resources=["cpu"])
    running(shell, "x", resources=["gpu0"])
    shell.ask(m.Migrate(1, run.task, "gpu0"))
    yield_(shell, run, 5)
    assert shell.state(run.task) == "preempted"
    return run


def test_a_worker_that_runs_by_an_order_never_recorded_is_believed(
    restart: Restart,
) -> None:
    run = preempted(restart())

    shell = restart()
    peer = shell.worker("w", task=run.task, epoch=run.epoch, resource="cpu")
    assert (shell.state(run.task), entry_of(shell, run.task).resource) == (
        "running",
        "cpu",
    )
    shell.reports.report(peer, m.Finished(run.task, run.epoch, result="right"))

    assert entry_of(shell, run.task).result == "right"


def test_where_its_place_is_taken_it_goes_on_from_its_snapshot(
    restart: Restart,
) -> None:
    run = preempted(restart())

    shell = restart()
    shell.worker("w", task=run.task, epoch=run.epoch, resource="gpu0")

    assert shell.sent.to("w", m.Abort) == [m.Abort(run.task, run.epoch)]
    assert shell.state(run.task) == "queued"
    assert entry_of(shell, run.task).attempts == 0


@pytest.mark.parametrize("finished", [False, True])
def test_a_task_found_running_whose_release_was_not_recorded_is_held_again(
    restart: Restart, *, finished: bool
) -> None:
    run = held(restart())

    shell = restart()
    peer = shell.worker("w", task=run.task, epoch=run.epoch, resource="gpu0")
    assert shell.sent.to("w", m.Preempt) == [m.Preempt(run.task, run.epoch)]
    if finished:
        shell.reports.report(peer, m.Finished(run.task, run.epoch, result="right"))
    else:
        yield_(shell, run, 7)

    page = entry_of(shell, run.task)
    assert (page.state, page.progress) == (
        ("completed", 1.0) if finished else ("held", 0.7)
    )
