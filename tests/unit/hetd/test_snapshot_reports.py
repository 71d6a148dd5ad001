"""What hetd makes of snapshots, of tasks that wait on disk, and of restored ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hetd.config import LimitsTable, SnapshotsTable
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec, restarting
from unit.turned_clock import Hands

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


def _dropped(shell: Shell, *names: str, uid: int = USER) -> list[str]:
    """Return which of these snapshots a launcher is to remove."""
    shell.journal.batch.replies.clear()
    shell.reports.snapshots.held(a_peer("l", uid=uid), m.SnapshotsHeld([*names]))
    replies = [reply for _, reply in shell.journal.batch.replies]
    return [
        n for each in replies if isinstance(each, m.DropSnapshots) for n in each.names
    ]


def _ended_with_snapshot(shell: Shell, worker: str = "w") -> m.Run:
    """Let a task fail that has written a snapshot."""
    run = running(shell, worker)
    taken = m.SnapshotTaken(
        run.task, run.epoch, m.CheckpointRecord(2, 4), 1.0, bytes=1 << 20
    )
    shell.reports.report(a_peer(worker), taken)
    shell.reports.report(a_peer(worker), m.Failed(run.task, run.epoch, "no"))
    shell.commit()
    return run


def test_snapshots_of_failed_tasks_are_kept_for_a_while(tmp_path: Path) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    run = _ended_with_snapshot(shell)

    at_once = _dropped(shell, run.snapshots)
    foreign = _dropped(shell, run.snapshots, uid=OTHER)
    hands.seconds += 86_399.0
    later = _dropped(shell, run.snapshots)
    hands.seconds += 2.0

    assert (at_once, foreign, later) == ([], [run.snapshots], [])
    assert _dropped(shell, run.snapshots) == [run.snapshots]
    shell.close()


def test_only_the_newest_that_fit_into_the_storage_limit_are_kept(
    tmp_path: Path,
) -> None:
    hands = Hands()
    limits = LimitsTable(stored_mb=3)
    shell = Shell(tmp_path, hands.clock(), limits=limits)
    runs = []
    for worker in ("a", "b"):
        runs.append(_ended_with_snapshot(shell, worker))
        hands.seconds += 10.0

    names = [run.snapshots for run in runs]

    assert _dropped(shell, *names) == names[:1]
    shell.close()


def test_none_are_kept_if_the_time_is_0(tmp_path: Path) -> None:
    shell = Shell(tmp_path, snapshots=SnapshotsTable(kept_s=0.0))
    run = _ended_with_snapshot(shell)

    answer = shell.ask(m.Requeue(1, [run.task], from_snapshot=True))

    assert _dropped(shell, run.snapshots) == [run.snapshots]
    assert isinstance(answer, m.Error)
    assert "it was kept for 0 s after its end" in answer.text
    shell.close()


def test_a_requeued_task_continues_from_the_snapshot_of_the_old_one(
    tmp_path: Path,
) -> None:
    hands = Hands()
    shell = Shell(tmp_path, hands.clock())
    old = _ended_with_snapshot(shell)
    shell.worker("v")

    reply = shell.ask(m.Requeue(1, [old.task], from_snapshot=True))

    run = shell.run_of("v")
    assert reply.ids == [run.task]
    assert run.resume
    assert run.spec is not None
    assert run.spec.resumes == old.snapshots
    hands.seconds += 200_000.0
    assert _dropped(shell, old.snapshots, run.snapshots) == []
    again = shell.ask(m.Requeue(2, [old.task]))
    assert shell.journal.live[again.ids[0]].spec.resumes == ""
    shell.close()


def test_a_requeue_from_a_snapshot_that_is_not_there_is_refused(
    shell: Shell,
) -> None:
    plain, done = running(shell), running(shell, "v")
    shell.reports.report(a_peer("w"), m.Failed(plain.task, plain.epoch, "no"))
    shell.finish("v", done)
    shell.commit()

    texts = []
    for task in (plain.task, done.task):
        answer = shell.ask(m.Requeue(task, [task], from_snapshot=True))
        assert isinstance(answer, m.Error)
        texts.append(answer.text)

    assert texts == [
        f"task {plain.task} has no snapshot: none was written",
        (
            f"task {done.task} has no snapshot: it ended as completed; "
            "only failed and cancelled tasks have one"
        ),
    ]


@pytest.mark.parametrize("name", ["7-5f", "../7-5f", "7-5f/..", "x"])
def test_users_name_no_snapshots_themselves(shell: Shell, name: str) -> None:
    request = m.Submit(1, [a_spec(resumes=name)])

    answer = shell.ask(request)

    assert isinstance(answer, m.Error)
    assert "only a requeue from a snapshot may set it" in answer.text


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
    assert (info.state, info.progress, info.runtime.attempts) == ("running", 0.5, 0)


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
    assert (shell.state(run.task), entry_of(shell, run.task).runtime.attempts) == (
        "running",
        0,
    )


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
    assert (page.progress, page.runtime.attempts) == (0.5, 1)


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
    assert entry_of(shell, run.task).runtime.attempts == 0


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
