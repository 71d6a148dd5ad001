"""Tasks that the code of another one called end with its run, unless it completes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hetd.tasks.called_tasks import SLICE
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec, restarting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Caller:
    """A task that runs in a worker, and what it calls."""

    def __init__(self, shell: Shell, worker: str = "w") -> None:
        self.shell = shell
        self.worker = worker
        shell.launcher()
        shell.worker(worker)
        (self.task,) = shell.submit(a_spec(resources=["cpu"], retries=1))
        self.run = shell.run_of(worker)

    def calls(self, count: int = 1, **fields: Any) -> list[int]:
        """Submit tasks that wait for a device which another task has."""
        run = m.TaskEpoch(self.task, self.run.epoch)
        spec = a_spec(**{"caller": run, "resources": ["gpu0"], "hold": True, **fields})
        return self.shell.submit(*[spec] * count)

    def ends(self, message: m.Aborted | m.Failed | m.Yielded | m.Parked) -> None:
        self.shell.reports.report(a_peer(self.worker), message)

    def fails(self) -> None:
        self.ends(m.Failed(self.task, self.run.epoch, "no", code="fault"))

    def loses_its_worker(self) -> None:
        exited = m.WorkerExited(self.worker, -9, "killed by signal 9")
        self.shell.reports.worker_exited(a_peer(f"launcher{USER}"), exited)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.fixture
def caller(shell: Shell) -> Caller:
    return Caller(shell)


def states(shell: Shell, tasks: list[int]) -> set[str]:
    for _ in range(20):
        shell.runtime.tick()
    return {shell.state(task) for task in tasks}


def info(shell: Shell, task: int) -> m.TaskInfo:
    (found,) = shell.ask(m.ListTasks(1, ids=[task], detail=True)).tasks
    assert isinstance(found, m.TaskInfo)
    return found


def test_they_are_cancelled_when_it_is(shell: Shell, caller: Caller) -> None:
    called = caller.calls(3)
    shell.ask(m.Control(1, "cancel", [caller.task]))
    assert states(shell, called) == {"held"}, "it still runs"

    caller.ends(m.Aborted(caller.task, caller.run.epoch))

    assert states(shell, called) == {"cancelled"}
    reason = f"task {caller.task}, which called it, ended as cancelled"
    assert info(shell, called[0]).reason == reason
    assert info(shell, called[0]).caller == caller.task


def test_one_that_runs_is_aborted(shell: Shell, caller: Caller) -> None:
    shell.worker("w2")
    (called,) = caller.calls(hold=False)
    run = shell.run_of("w2")
    assert run.task == called

    shell.ask(m.Control(1, "cancel", [caller.task]))
    caller.ends(m.Aborted(caller.task, caller.run.epoch))
    states(shell, [])

    (abort,) = shell.sent.to("w2", m.Abort)
    assert (abort.task, abort.epoch) == (called, run.epoch)


def test_they_are_cancelled_when_it_loses_its_worker(
    shell: Shell, caller: Caller
) -> None:
    called = caller.calls(3)

    caller.loses_its_worker()

    assert states(shell, called) == {"cancelled"}
    reason = f"task {caller.task}, which called it, has lost its worker"
    assert info(shell, called[0]).reason == reason


def test_its_next_run_has_its_own(shell: Shell, caller: Caller) -> None:
    old = caller.calls()
    shell.worker("w2")
    caller.loses_its_worker()
    caller.run = shell.run_of("w2")
    assert caller.run.task == caller.task

    new = caller.calls()

    assert states(shell, old) == {"cancelled"}
    assert states(shell, new) == {"held"}


def test_a_failure_that_is_retried_ends_them(shell: Shell, caller: Caller) -> None:
    called = caller.calls()

    caller.fails()

    assert states(shell, called) == {"cancelled"}
    assert shell.state(caller.task) != "failed"


def test_one_that_waits_in_its_worker_keeps_them_until_it_is_parked(
    shell: Shell, caller: Caller
) -> None:
    called = caller.calls()
    shell.ask(m.Control(1, "hold", [caller.task]))
    caller.ends(m.Yielded(caller.task, caller.run.epoch, m.CheckpointRecord(4, 10)))
    assert states(shell, called) == {"held"}

    caller.ends(m.Parked(caller.task, caller.run.epoch))

    assert states(shell, called) == {"cancelled"}


def test_they_go_on_if_it_completes(shell: Shell, caller: Caller) -> None:
    called = caller.calls(3)

    shell.finish("w", caller.run)

    assert states(shell, called) == {"held"}


def test_many_are_cancelled_in_several_turns(shell: Shell, caller: Caller) -> None:
    called = caller.calls(SLICE) + caller.calls(SLICE) + caller.calls(1)
    caller.loses_its_worker()

    shell.runtime.tick()

    done = [task for task in called if shell.state(task) == "cancelled"]
    assert len(done) == SLICE
    assert states(shell, called) == {"cancelled"}


def test_what_they_called_is_cancelled_too(shell: Shell, caller: Caller) -> None:
    shell.worker("w2")
    (called,) = caller.calls(hold=False)
    inner = m.TaskEpoch(called, shell.run_of("w2").epoch)
    below = caller.calls(caller=inner)

    caller.loses_its_worker()
    states(shell, [])
    shell.reports.report(a_peer("w2"), m.Aborted(inner.task, inner.epoch))

    assert states(shell, below) == {"cancelled"}


@pytest.mark.parametrize("mistake", ["another run", "no task", "another user"])
def test_only_a_task_that_runs_calls_others(
    shell: Shell, caller: Caller, mistake: str
) -> None:
    task, epoch = caller.task, caller.run.epoch
    run = {
        "another run": m.TaskEpoch(task, epoch - 1),
        "no task": m.TaskEpoch(task + 1, epoch),
        "another user": m.TaskEpoch(task, epoch),
    }[mistake]
    uid = OTHER if mistake == "another user" else USER

    answer = shell.error(m.Submit(1, [a_spec(caller=run)]), uid)

    assert answer.code == "bad-input"
    assert answer.text.endswith(
        f"task {run.task}, which submits this one, does not run any more"
    )


def test_one_that_is_submitted_again_ends_by_itself(
    shell: Shell, caller: Caller
) -> None:
    (called,) = caller.calls()
    shell.ask(m.Control(1, "cancel", [called]))

    (again,) = shell.ask(m.Requeue(1, [called])).ids
    caller.loses_its_worker()

    assert states(shell, [again]) == {"running"}


@pytest.mark.parametrize(("completes", "state"), [(True, "held"), (False, "cancelled")])
def test_the_daemon_may_have_stopped_meanwhile(
    tmp_path: Path,
    completes: bool,  # noqa: FBT001  drawn by name
    state: str,
) -> None:
    with restarting(tmp_path) as start:
        shell = start()
        caller = Caller(shell)
        called = caller.calls(3)
        if completes:
            shell.finish("w", caller.run)
        else:
            shell.ask(m.Control(1, "cancel", [caller.task]))
            caller.ends(m.Aborted(caller.task, caller.run.epoch))
        assert {shell.state(task) for task in called} == {"held"}

        shell = start()

        assert states(shell, called) == {state}


def test_a_caller_that_outlives_the_daemon_keeps_them(
    tmp_path: Path,
) -> None:
    with restarting(tmp_path) as start:
        caller = Caller(start())
        called = caller.calls(3)

        caller.shell = shell = start()
        run = caller.run
        shell.launcher()
        shell.worker("w", task=run.task, epoch=run.epoch, resource="cpu")

        assert states(shell, called) == {"held"}
        caller.loses_its_worker()
        assert states(shell, called) == {"cancelled"}
