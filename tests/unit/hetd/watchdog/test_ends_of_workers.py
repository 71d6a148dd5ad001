"""Workers that cannot be had, that leave, and that are gone after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.workers.watchdog import ASKS, KILL_S, LAUNCHER_S
from hetsched.ids import TaskId
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec
from unit.hetd.watchdog.devices_on_trial import TWINS
from unit.turned_clock import Hands

if TYPE_CHECKING:
    from pathlib import Path


def test_a_machine_without_room_for_processes_is_asked_again_later(
    shell: Shell, hands: Hands
) -> None:
    launcher = shell.launcher()
    (task,) = shell.submit(a_spec())
    reason = "no process for a worker: Resource temporarily unavailable"

    for asked in range(1, ASKS):
        orders = shell.sent.to("launcher1000", m.StartWorkers)
        assert len(orders) == asked
        (name,) = orders[-1].names
        failed = m.WorkerExited(name, 1, reason, started=False)
        shell.reports.worker_exited(launcher, failed)
        shell.runtime.tick()
        assert len(shell.sent.to("launcher1000", m.StartWorkers)) == asked
        entry = shell.journal.find(task)
        assert entry is not None
        assert (entry.state, entry.reason, entry.runtime.attempts) == (
            "running",
            reason,
            0,
        )
        hands.seconds += 6.0
        shell.runtime.tick()

    (name,) = shell.sent.to("launcher1000", m.StartWorkers)[-1].names
    shell.reports.worker_exited(
        launcher, m.WorkerExited(name, 1, reason, started=False)
    )
    entry = shell.journal.find(task)
    assert entry is not None
    assert entry.runtime.attempts == 1, "then it lets others have its place"


def test_a_worker_that_leaves_costs_its_next_task_no_attempt(shell: Shell) -> None:
    shell.launcher()
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    run = shell.run_of("w")

    shell.reports.worker_leaves(a_peer("w"))
    shell.worker("next")

    again = shell.run_of("next")
    assert (again.task, again.epoch, again.spec) == (task, run.epoch, run.spec)
    shell.finish("next", again, result=1)
    entry = shell.journal.find(task)
    assert entry is not None
    assert (entry.state, entry.runtime.attempts, len(entry.segments)) == (
        "completed",
        0,
        1,
    )


@pytest.mark.parametrize(("earlier", "attempts"), [(True, 0), (False, 2)])
def test_workers_from_before_a_restart_may_all_have_other_code(
    shell: Shell,
    earlier: bool,  # noqa: FBT001  drawn by name
    attempts: int,
) -> None:
    shell.launcher()
    prefix = "before" if earlier else str(shell.store.incarnation)
    names = [f"{prefix}-{number}" for number in range(3)]
    shell.worker(names[0])
    (task,) = shell.submit(a_spec())

    for name, following in zip(names, [*names[1:], "next"], strict=True):
        shell.reports.worker_leaves(a_peer(name))
        shell.worker(following)

    page = shell.journal.find(task)
    assert page is not None
    assert (page.state, page.runtime.attempts) == ("running", attempts)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_worker_that_stays_after_its_last_word_is_ended(
    shell: Shell,
    hands: Hands,
    leaves: bool,  # noqa: FBT001  drawn by name
) -> None:
    launcher = shell.launcher()
    shell.worker("w")
    shell.reports.worker_leaves(a_peer("w"))
    if leaves:
        shell.reports.worker_exited(launcher, m.WorkerExited("w", 0))

    hands.seconds += KILL_S
    shell.runtime.tick()

    reason = "stayed alive after it announced its exit"
    kills = [] if leaves else [m.KillWorker("w", reason)]
    assert shell.sent.to("launcher1000", m.KillWorker) == kills


def test_a_task_cancelled_when_its_worker_leaves_has_ended(shell: Shell) -> None:
    shell.launcher()
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    shell.ask(m.Control(1, "cancel", [task]))

    shell.reports.worker_leaves(a_peer("w"))

    assert shell.state(task) == "cancelled"


# ---------------------------------------------------------------- launchers


def _wait_in_vain(shell: Shell, hands: Hands) -> None:
    """Let so much time pass that whom nobody makes workers for is known."""
    for seconds in (0.0, LAUNCHER_S - 1.0, 2.0):
        assert not shell.runtime.scheduler.system.unattended
        hands.seconds += seconds
        shell.runtime.tick()


def _hung(shell: Shell, hands: Hands) -> int:
    """Let a launcher make no worker for a task; return that."""
    shell.launcher()
    shell.worker("w")
    shell.submit(a_spec(resources=["gpu0"]))
    (task,) = shell.submit(a_spec())
    _wait_in_vain(shell, hands)
    return task


def test_a_launcher_that_gives_no_sign_of_life_is_told_of(
    shell: Shell, hands: Hands
) -> None:
    task = _hung(shell, hands)

    assert shell.pool.of_user(USER).hung_launcher == 77
    entry = shell.journal.live[task]
    reason = "the launcher of uid 1000, process 77, gave no sign of life in 60 s"
    assert (entry.reason, entry.runtime.attempts) == (reason, 0), (
        "it is to blame for nothing"
    )
    assert shell.ask(m.Explain(1, task)).why == (
        "keeps out of the way of others, and waits for a worker: its owner's launcher, "
        "process 77, hangs; a submit replaces it"
    )
    assert shell.state(task - 1) == "running", "its worker needs no launcher"
    assert not shell.ask(m.Submit(1, [a_spec()])).launcher, "the client starts another"


def test_tasks_of_a_user_without_a_launcher_keep_out_of_the_way(
    shell: Shell, hands: Hands
) -> None:
    mine = shell.submit(*[a_spec(resources=["cpu"]) for _ in range(3)])
    assert [shell.state(task) for task in mine] == ["running", "running", "queued"]

    _wait_in_vain(shell, hands)
    shell.launcher(OTHER)
    (theirs,) = shell.submit(a_spec(resources=["cpu"]), uid=OTHER)

    assert [shell.state(task) for task in mine] == ["queued"] * 3
    assert shell.state(theirs) == "running"
    assert [shell.journal.live[task].runtime.attempts for task in mine] == [0] * 3
    assert "its owner's launcher is not there" in shell.ask(m.Explain(1, mine[2])).why


def test_tasks_that_kept_out_of_the_way_run_when_there_is_a_launcher(
    shell: Shell, hands: Hands
) -> None:
    mine = shell.submit(*[a_spec(resources=["cpu"]) for _ in range(3)])
    _wait_in_vain(shell, hands)

    (later,) = shell.submit(a_spec(resources=["cpu"]))
    waits = [shell.state(task) for task in (*mine, later)]
    shell.launcher()

    assert waits == ["queued"] * 4
    assert [shell.state(task) for task in mine] == ["running", "running", "queued"]


def test_a_worker_that_is_asked_for_again_may_not_come_later(
    shell: Shell, hands: Hands
) -> None:
    shell.launcher()
    (task,) = shell.submit(a_spec())
    binding = shell.pool.binding(task)
    assert binding is not None
    assert binding.watched is not None
    before = binding.watched.deadline

    hands.seconds += 80.0
    shell.runtime.watchdog.runs(TaskId(task))

    assert binding.watched.deadline == before


def test_a_program_of_its_own_needs_no_launcher(shell: Shell, hands: Hands) -> None:
    shell.submit(a_spec(resources=["cpu"]))
    _wait_in_vain(shell, hands)
    shell.worker("own", own=True)

    (task,) = shell.submit(a_spec(resources=["cpu"]), worker="own")

    assert shell.run_of("own").task == task


def test_users_are_told_that_a_worker_is_waited_for(shell: Shell) -> None:
    (task,) = shell.submit(a_spec())
    why = "runs on cpu, and waits for a worker"

    missing = shell.ask(m.Explain(1, task)).why
    shell.launcher()
    asked = shell.ask(m.Explain(1, task)).why
    shell.worker("w")

    reason = "its owner's launcher is not there; a submit starts it"
    assert [missing, asked] == [f"{why}: {reason}", why]
    assert shell.ask(m.Explain(1, task)).why == "runs on cpu"


def test_the_successor_of_a_launcher_makes_the_workers(
    shell: Shell, hands: Hands
) -> None:
    task = _hung(shell, hands)

    shell.launcher(pid=78)
    shell.reports.launcher_left(a_peer(f"launcher{USER}", pid=77))

    assert not shell.pool.of_user(USER).hung
    name = shell.sent.to("launcher1000", m.StartWorkers)[-1].names[0]
    shell.worker(name)
    assert shell.run_of(name).task == task


def test_a_launcher_that_goes_on_hangs_no_more(shell: Shell, hands: Hands) -> None:
    task = _hung(shell, hands)

    name = shell.sent.to("launcher1000", m.StartWorkers)[0].names[0]
    shell.worker(name)

    assert not shell.pool.of_user(USER).hung
    assert shell.run_of(name).task == task


# ---------------------------------------------------------------- restarts


def test_nobody_waits_for_who_held_a_task_before(shell: Shell) -> None:
    launcher = shell.launcher()
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    held = shell.journal.live[task].holder
    assert held is not None

    shell.reports.worker_exited(launcher, m.WorkerExited("w", -9))

    assert held.name == "w"
    assert shell.journal.live[task].holder is None, "it waits for another worker"


def _restarted(shell: Shell, tmp_path: Path, hands: Hands) -> Shell:
    shell.commit()
    return Shell(tmp_path, hands.clock(), TWINS, restore_grace_s=5.0)


def test_a_worker_in_a_long_strip_is_waited_for(
    shell: Shell, tmp_path: Path, hands: Hands
) -> None:
    shell.launcher()
    shell.worker("w")
    (task,) = shell.submit(a_spec(kinds=["cpu"]))
    after = _restarted(shell, tmp_path, hands)
    after.runtime.restore()
    after.reports.launcher_came(a_peer(f"launcher{USER}"), ["w"])

    for _ in range(10):
        hands.seconds += 6.0
        after.runtime.tick()
    assert after.state(task) == "running"

    exited = m.WorkerExited("w", -9, "killed by signal 9 (SIGKILL)")
    after.reports.worker_exited(a_peer(f"launcher{USER}"), exited)
    entry = after.journal.find(task)
    assert entry is not None
    assert (entry.runtime.attempts, entry.reason) == (1, "killed by signal 9 (SIGKILL)")
    after.close()


@pytest.mark.parametrize(("started", "attempts"), [(1, 0), (4711, 1)])
def test_without_a_launcher_the_start_of_the_process_counts(
    shell: Shell, tmp_path: Path, started: int, attempts: int
) -> None:
    hands = Hands()
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    after = _restarted(shell, tmp_path, hands)
    after.starts[1] = started  # another process may have its pid
    after.runtime.restore()

    hands.seconds += 6.0
    after.runtime.tick()

    entry = after.journal.find(task)
    assert entry is not None
    assert entry.runtime.attempts == attempts
    after.close()


def test_a_restart_before_a_task_has_a_worker_is_no_attempt(
    shell: Shell, tmp_path: Path
) -> None:
    hands = Hands()
    (task,) = shell.submit(a_spec())  # its worker is being made
    assert shell.journal.live[task].state == "running"
    after = _restarted(shell, tmp_path, hands)
    after.runtime.restore()

    hands.seconds += 6.0
    after.runtime.tick()

    entry = after.journal.live[task]
    assert entry.reason == "its worker did not report after a restart of hetd"
    assert entry.runtime.attempts == 0
    after.close()


def test_a_worker_that_was_assigned_after_the_last_commit_keeps_its_task(
    shell: Shell, tmp_path: Path
) -> None:
    hands = Hands()
    shell.launcher()
    (task,) = shell.submit(a_spec())
    after = _restarted(shell, tmp_path, hands)  # the page on disk names no worker
    page = shell.journal.live[task]
    epoch, place = page.runtime.epoch, page.resource
    after.runtime.restore()

    after.runtime.tick()
    bound = after.runtime.scheduler.system.tasks.values()
    assert list(after.runtime.watchdog.neglected(bound)) == []
    after.launcher()
    after.worker("w", task=task, epoch=epoch, resource=place)

    assert after.sent.to("w", m.Abort) == []
    holder = after.journal.live[task].holder
    assert holder is not None
    assert holder.name == "w"
    hands.seconds += 6.0
    after.runtime.tick()
    assert after.state(task) == "running"
    assert after.journal.live[task].runtime.attempts == 0
    after.close()


def test_no_process_of_another_boot_is_waited_for(
    shell: Shell, tmp_path: Path, hands: Hands
) -> None:
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    entry = shell.journal.live[task]
    assert entry.holder is not None
    entry.holder = type(entry.holder)("w", 1, 1, boot="another")
    shell.journal.save(entry)
    after = _restarted(shell, tmp_path, hands)
    after.runtime.restore()

    after.runtime.tick()

    entry = after.journal.live[task]
    assert entry.runtime.attempts == 1
    assert after.killed == []
    after.close()
