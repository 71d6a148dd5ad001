"""The node: orders of the scheduler carried out, restarts, and patience that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.clock import SYSTEM_CLOCK
from libtask import messages as m
from unit.daemon_shell import Shell, a_peer, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable


# ---------------------------------------------------------------- orders


def test_the_next_task_is_staged_while_the_first_one_runs(shell: Shell) -> None:
    for name in ("w1", "w2"):
        shell.worker(name)
    first, second, _ = shell.submit(*[a_spec(resources=["gpu0"])] * 3)
    runner, stager = ("w2", "w1")

    run = shell.run_of(runner)
    (stage,) = shell.sent.to(stager, m.Stage)
    shell.finish(runner, run)

    assert (run.task, stage.task) == (first, second)
    assert run.spec is not None
    order = shell.run_of(stager)
    assert (order.task, order.epoch, order.spec) == (second, stage.epoch, None)


def test_a_segment_begins_before_its_order_leaves(shell: Shell) -> None:
    shell.worker("w")
    before = SYSTEM_CLOCK.wall()
    left: list[float] = []
    send = shell.sent.send

    def send_and_note(route: bytes, *messages: m.Message) -> bool:
        left.append(SYSTEM_CLOCK.wall())
        return send(route, *messages)

    shell.pool._send = send_and_note

    (task,) = shell.submit(a_spec())

    page = shell.journal.find(task)
    assert page is not None
    assert before <= page.segments[0].start <= left[0]


def test_a_cancelled_task_that_no_worker_has_yet_ends_at_once(shell: Shell) -> None:
    (task,) = shell.submit(a_spec())
    assert shell.state(task) == "running"

    shell.ask(m.Control(1, "cancel", [task]))

    assert shell.state(task) == "cancelled"
    shell.worker("w")
    assert shell.sent.to("w", m.Run) == []


# ---------------------------------------------------------------- patience


def test_a_cancelled_task_without_a_checkpoint_costs_its_worker(shell: Shell) -> None:
    launcher = shell.launcher()
    shell.worker("1-1")
    (task,) = shell.submit(a_spec())
    shell.ask(m.Control(1, "cancel", [task]))
    assert shell.state(task) == "running"

    shell.runtime.tick()

    (kill,) = shell.sent.to("launcher1000", m.KillWorker)
    assert kill.name == "1-1"
    shell.reports.worker_exited(launcher, m.WorkerExited("1-1", -15))
    assert shell.state(task) == "cancelled"


def test_a_worker_without_a_launcher_is_killed_by_the_daemon(
    shell: Shell,
) -> None:
    shell.reports.worker_came(
        a_peer("w", pid=4242), m.Register("worker", pid=1, worker="w")
    )
    (task,) = shell.submit(a_spec())

    shell.ask(m.Control(1, "cancel", [task]))
    shell.runtime.tick()

    assert shell.killed == [4242], "the pid that the kernel tells"


def test_a_pid_that_is_another_process_by_now_is_not_killed(shell: Shell) -> None:
    shell.reports.worker_came(
        a_peer("w", pid=4242), m.Register("worker", pid=1, worker="w")
    )
    (task,) = shell.submit(a_spec())
    shell.starts[4242] = 77

    shell.ask(m.Control(1, "cancel", [task]))
    shell.runtime.tick()

    assert shell.killed == []


def test_a_program_of_its_own_is_never_killed(shell: Shell) -> None:
    shell.launcher()
    shell.worker("own", own=True)
    (task,) = shell.submit(a_spec(), worker="own")

    shell.ask(m.Control(1, "cancel", [task]))
    shell.runtime.tick()

    assert shell.sent.to("launcher1000", m.KillWorker) == []
    assert shell.killed == []
    assert shell.state(task) == "running", "it may finish its strip"


def test_a_task_that_obeyed_in_time_costs_nothing(shell: Shell) -> None:
    shell.launcher()
    shell.worker("1-1")
    (task,) = shell.submit(a_spec())
    run = shell.run_of("1-1")
    shell.ask(m.Control(1, "cancel", [task]))

    shell.reports.report(a_peer("1-1"), m.Aborted(task, run.epoch))
    shell.runtime.tick()

    assert shell.state(task) == "cancelled"
    assert shell.sent.to("launcher1000", m.KillWorker) == []


def test_the_nearer_of_two_deadlines_counts(restart: Callable[..., Shell]) -> None:
    first = restart()
    first.worker("w")
    first.submit(a_spec(resources=["cpu"]))
    first.commit()
    shell = restart(restore_grace_s=500.0)
    shell.runtime.restore()
    far = shell.runtime.next_deadline()
    shell.worker("x")
    (task,) = shell.submit(a_spec(resources=["gpu0"]))

    shell.ask(m.Control(1, "cancel", [task]))

    near = shell.runtime.next_deadline()
    assert far is not None
    assert near is not None
    assert near < far


# ---------------------------------------------------------------- restarts


def test_a_running_task_is_waited_for(restart: Callable[..., Shell]) -> None:
    first = restart()
    first.worker("w")
    (task,) = first.submit(a_spec())
    run = first.run_of("w")
    first.commit()

    shell = restart()
    shell.runtime.restore()
    shell.worker("w", task=task, epoch=run.epoch)
    shell.runtime.tick()
    shell.finish("w", run, result=1)

    page = shell.journal.find(task)
    assert page is not None
    assert (page.state, page.result) == ("completed", 1)
    assert len(page.segments) == 1


def test_a_running_task_whose_worker_stays_away_runs_anew(
    restart: Callable[..., Shell],
) -> None:
    first = restart()
    first.worker("w")
    (task,) = first.submit(a_spec())
    old = first.run_of("w")
    first.commit()

    shell = restart()
    shell.runtime.restore()
    shell.starts[1] = 0  # its process is gone
    shell.worker("other")
    assert shell.sent.to("other", m.Run) == []
    shell.runtime.tick()

    run = shell.run_of("other")
    assert run.task == task
    assert run.epoch > old.epoch
    # and the one that comes after all is told to give it up
    shell.worker("w", task=task, epoch=old.epoch)
    assert shell.sent.to("w", m.Abort) == [m.Abort(task, old.epoch)]


def test_a_worker_that_only_loaded_its_task_is_told_to_run(
    restart: Callable[..., Shell],
) -> None:
    first = restart()
    first.worker("w")
    (task,) = first.submit(a_spec())
    run = first.run_of("w")
    first.commit()

    shell = restart()
    shell.runtime.restore()
    peer = shell.worker("w", task=task, epoch=run.epoch)
    shell.reports.report(peer, m.Ready(task, run.epoch))

    assert shell.sent.to("w", m.Run) == [m.Run(task, run.epoch, run.device)]


def test_waiting_and_held_tasks_are_so_after_a_restart(
    restart: Callable[..., Shell],
) -> None:
    first = restart()
    ids = first.submit(a_spec(hold=True), a_spec(after=[-1]), a_spec(priority=3))
    first.commit()

    shell = restart()
    shell.runtime.restore()

    assert [shell.state(task) for task in ids] == ["held", "waiting", "running"]
    shell.ask(m.Control(1, "release", ids[:1]))
    assert [shell.state(task) for task in ids] == ["running", "waiting", "running"]


def test_what_was_not_committed_was_never_accepted(
    restart: Callable[..., Shell],
) -> None:
    first = restart()
    first.submit(a_spec())
    first.commit()
    first.submit(a_spec())

    shell = restart()
    shell.runtime.restore()

    assert [info.id for info in shell.ask(m.ListTasks(1)).tasks] == [1]
    assert shell.submit(a_spec()) == [2]
