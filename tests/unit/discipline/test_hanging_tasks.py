"""Tasks that hang: they cost their workers, and what nothing ends costs its resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.discipline import KILL_S
from libtask import messages as m
from unit.daemon_shell import USER, Shell, a_peer, a_spec
from unit.discipline.devices_on_trial import device_of, give_trials

if TYPE_CHECKING:
    from unit.turned_clock import Hands


def _report(shell: Shell, name: str, run: m.Run, done: int) -> None:
    record = m.CheckpointRecord(done, 100)
    progress = m.Progress(run.task, run.epoch, record, 0.1, 1)
    shell.crew.report(a_peer(name), progress)


def _hanging(shell: Shell, hands: Hands, **fields: object) -> tuple[int, m.Run]:
    """Let a task run, report, and then be silent for too long."""
    shell.worker("w")
    (task,) = shell.submit(a_spec(**fields))
    run = shell.run_of("w")
    for done in (1, 2):
        _report(shell, "w", run, done)
    hands.seconds += 11.0
    shell.node.tick()
    return task, run


def test_a_task_that_hangs_costs_its_worker_and_goes_on_elsewhere(
    shell: Shell, hands: Hands
) -> None:
    launcher = shell.launcher()
    task, run = _hanging(shell, hands)

    (kill,) = shell.sent.to("launcher1000", m.KillWorker)
    assert kill == m.KillWorker("w", "no checkpoint was reached in 10 s")
    shell.worker("other")
    assert shell.sent.to("other", m.Run) == [], "not before the process is gone"
    exited = m.WorkerExited("w", -15, f"killed by signal 15: {kill.reason}")
    shell.crew.worker_exited(launcher, exited)

    anew = shell.run_of("other")
    assert (anew.task, run.device.name, anew.device.name) == (task, "cpu", "gpu0")
    assert anew.epoch > run.epoch


def test_a_task_that_can_run_nowhere_else_is_tried_there_again(
    shell: Shell, hands: Hands
) -> None:
    launcher = shell.launcher()
    _hanging(shell, hands, resources=["cpu"])
    shell.worker("other")

    shell.crew.worker_exited(launcher, m.WorkerExited("w", -15))

    assert shell.run_of("other").device.name == "cpu"


def test_a_program_of_the_users_own_may_hang(shell: Shell, hands: Hands) -> None:
    shell.launcher()
    shell.worker("own", own=True)
    shell.submit(a_spec(), worker="own")

    hands.seconds += 1000.0
    shell.node.tick()

    assert shell.sent.to("launcher1000", m.KillWorker) == []


@pytest.fixture
def stuck(shell: Shell, hands: Hands) -> m.Run:
    """Return what a worker runs on gpu0 that nothing ends."""
    shell.launcher()
    task, run = _hanging(shell, hands, kinds=["gpu"])
    assert run.device.name == "gpu0"
    shell.ask(m.Migrate(1, task, "gpu0"))  # it goes elsewhere all the same
    shell.worker("other")
    hands.seconds += KILL_S + 1
    shell.node.tick()
    assert device_of(shell).reason == f"process 1 of task {task} cannot be ended"
    return run


def test_what_nothing_ends_takes_its_resource_out_of_use(
    shell: Shell, hands: Hands, stuck: m.Run
) -> None:
    trials = give_trials(shell)
    assert (device_of(shell).state, device_of(shell).running) == ("lost", [])
    hands.seconds += 100.0
    shell.node.tick()
    assert trials.begun == [], "no trial while it holds on to the device"

    exited = m.WorkerExited("w", -9)
    shell.crew.worker_exited(a_peer(f"launcher{USER}"), exited)
    shell.node.tick()
    trials.outcomes = [""]
    hands.seconds += 1.0
    shell.node.tick()

    assert trials.begun == ["gpu0"]
    assert device_of(shell).state == "up"


def test_what_a_stuck_worker_says_at_last_is_refused(
    shell: Shell, stuck: m.Run
) -> None:
    anew = shell.run_of("other")
    assert (anew.device.name, anew.task) == ("gpu1", stuck.task)

    shell.finish("w", stuck, result="of the old attempt")
    assert shell.state(stuck.task) == "running"
    shell.finish("other", anew, result="of the newest")

    entry = shell.journal.find(stuck.task)
    assert entry is not None
    assert entry.result == "of the newest"


def test_a_stuck_worker_that_obeys_at_last_is_trusted_again(
    shell: Shell, hands: Hands, stuck: m.Run
) -> None:
    trials = give_trials(shell)

    shell.crew.report(a_peer("w"), m.Aborted(stuck.task, stuck.epoch))
    shell.node.tick()
    trials.outcomes = [""]
    hands.seconds += 1.0
    shell.node.tick()

    assert device_of(shell).state == "up"
