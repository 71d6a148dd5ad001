"""Parking: a request that holds tasks and is answered when their progress is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec, restarting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Restart = Callable[[], Shell]


@pytest.fixture
def restart(tmp_path: Path) -> Iterator[Restart]:
    with restarting(tmp_path) as start:
        yield start


@pytest.fixture
def shell(restart: Restart) -> Shell:
    return restart()


def running(shell: Shell, **fields: Any) -> m.Run:
    shell.worker("w")
    shell.submit(a_spec(**fields))
    return shell.run_of("w")


def report(shell: Shell, message: Any) -> None:
    shell.reports.report(a_peer("w"), message)


def yielded(shell: Shell, run: m.Run, done: int) -> None:
    report(shell, m.Yielded(run.task, run.epoch, m.CheckpointRecord(done, 10)))


def saved(shell: Shell, run: m.Run, done: int, **fields: Any) -> None:
    stands = m.CheckpointRecord(done, 10)
    report(shell, m.SnapshotTaken(run.task, run.epoch, stands, **fields))


def park(shell: Shell, *ids: int, key: str = "k", uid: int = USER) -> Any:
    """Ask to park tasks; return the answer if it comes at once."""
    return shell.ask(m.Control(7, "park", list(ids), key=key), uid)


def answers(shell: Shell) -> list[m.ParkedTask]:
    """Return what is answered now to requests that waited."""
    replies = [reply for _, _, reply in shell.service.late_answers()]
    found: list[m.ParkedTask] = []
    for reply in replies:
        assert isinstance(reply, m.ParkedTasks)
        assert reply.request == 7
        found += reply.tasks
    return found


def test_the_answer_comes_when_the_snapshot_is_on_disk(shell: Shell) -> None:
    run = running(shell)

    assert park(shell, 1) is None
    assert shell.sent.to("w", m.Preempt)
    assert answers(shell) == []
    yielded(shell, run, 4)
    assert shell.state(1) == "held"
    assert answers(shell) == []
    (order,) = shell.sent.to("w", m.TakeSnapshot)
    assert (order.task, order.epoch) == (1, run.epoch)
    assert answers(shell) == []
    saved(shell, run, 4, bytes=99, path="/x/1.snapshot")

    assert answers(shell) == [m.ParkedTask(1, "/x/1.snapshot", 0.4, 99)]
    assert len(shell.sent.to("w", m.TakeSnapshot)) == 1
    assert answers(shell) == []


def test_a_snapshot_of_where_it_stopped_is_not_written_twice(shell: Shell) -> None:
    run = running(shell)
    saved(shell, run, 4, bytes=99, path="/x/1.snapshot")
    park(shell, 1)
    yielded(shell, run, 4)

    assert answers(shell) == [m.ParkedTask(1, "/x/1.snapshot", 0.4, 99)]
    assert not shell.sent.to("w", m.TakeSnapshot)


def test_a_task_that_cannot_be_saved_is_held_and_says_so(shell: Shell) -> None:
    run = running(shell)
    park(shell, 1)
    yielded(shell, run, 4)
    assert answers(shell) == []
    saved(shell, run, 0, error="its worker keeps none")

    assert answers(shell) == [m.ParkedTask(1, error="its worker keeps none")]
    assert shell.state(1) == "held"


def test_tasks_that_have_not_begun_or_have_ended_need_no_worker(shell: Shell) -> None:
    shell.submit(*[a_spec(resources=["gpu0"])] * 4)
    shell.ask(m.Control(1, "cancel", [3]))

    park(shell, 2, 3)

    assert answers(shell) == [
        m.ParkedTask(2),
        m.ParkedTask(3, error="it has ended as cancelled"),
    ]
    assert [shell.state(task) for task in (2, 4)] == ["held", "queued"]


def test_a_task_that_is_released_meanwhile_is_not_waited_for(shell: Shell) -> None:
    running(shell)
    park(shell, 1)
    shell.ask(m.Control(1, "release", [1]))

    assert answers(shell) == [
        m.ParkedTask(1, error="it was released before it was saved")
    ]


def test_a_lost_worker_leaves_the_last_snapshot(shell: Shell) -> None:
    run = running(shell)
    saved(shell, run, 2, bytes=50, path="/x/old.snapshot")
    park(shell, 1)
    yielded(shell, run, 4)
    assert answers(shell) == []
    shell.launcher()
    shell.reports.worker_exited(a_peer("launcher1000"), m.WorkerExited("w", -9))

    assert answers(shell) == [m.ParkedTask(1, "/x/old.snapshot", 0.2, 50)]


def test_a_repeated_request_is_answered_once_to_its_last_sender(shell: Shell) -> None:
    run = running(shell)
    park(shell, 1)
    again = m.Control(9, "park", [1], key="k")
    assert shell.service.answer(a_peer("second"), again) is None
    yielded(shell, run, 4)
    assert not list(shell.service.late_answers())
    saved(shell, run, 4, path="/x/1.snapshot")

    ((peer, _, reply),) = shell.service.late_answers()
    assert (peer.route, reply.request) == (b"second", 9)
    shell.commit()
    known = park(shell, 1)
    assert known.tasks == [m.ParkedTask(1, "/x/1.snapshot", 0.4)]


def test_after_a_restart_the_repetition_finds_the_task(restart: Restart) -> None:
    shell = restart()
    run = running(shell)
    park(shell, 1)
    yielded(shell, run, 4)

    shell = restart()
    assert shell.state(1) == "held"
    park(shell, 1)
    assert answers(shell) == []
    assert not shell.sent.to("w", m.TakeSnapshot)
    shell.worker("w", task=1, epoch=run.epoch)
    assert answers(shell) == []
    assert shell.sent.to("w", m.TakeSnapshot)
    saved(shell, run, 4, path="/x/1.snapshot")

    assert answers(shell) == [m.ParkedTask(1, "/x/1.snapshot", 0.4)]


def test_commands_are_refused_before_anything_is_held(shell: Shell) -> None:
    shell.submit(a_spec(), a_spec(app="command"))

    error = park(shell, 1, 2)

    assert error.code == "bad-input"
    assert "task 2 is a command, which writes no snapshots" in error.text
    assert shell.state(1) != "held"


def test_a_user_parks_a_bounded_number_of_tasks_at_a_time(shell: Shell) -> None:
    shell.worker("w")
    shell.submit(*[a_spec(resources=["cpu"])] * (m.MAX_PARKED + 1))
    most = range(1, m.MAX_PARKED + 1)

    assert park(shell, *most, m.MAX_PARKED + 1).code == "bad-input"
    assert park(shell, *most) is None
    assert park(shell, m.MAX_PARKED + 1, key="more").code == "busy"
    assert shell.state(m.MAX_PARKED + 1) != "held"
    shell.submit(a_spec(), uid=OTHER)
    assert park(shell, m.MAX_PARKED + 2, uid=OTHER) is None
    assert park(shell, 1, uid=OTHER, key="theirs").code == "not-allowed"
