"""Tasks that hang: they cost their workers, and what nothing ends costs its resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.workers.watchdog import KILL_S
from libtask import messages as m
from unit.daemon_shell import USER, Shell, a_peer, a_spec
from unit.hetd.watchdog.devices_on_trial import device_of, give_trials

if TYPE_CHECKING:
    from unit.turned_clock import Hands


def _report(shell: Shell, name: str, run: m.Run, done: int) -> None:
    record = m.CheckpointRecord(done, 100)
    progress = m.Progress(run.task, run.epoch, record, 0.1, 1)
    shell.reports.report(a_peer(name), progress)


def _hanging(shell: Shell, hands: Hands, **fields: object) -> tuple[int, m.Run]:
    """Let a task run, report, and then be silent for too long."""
    shell.worker("w")
    (task,) = shell.submit(a_spec(**fields))
    run = shell.run_of("w")
    for done in (1, 2):
        _report(shell, "w", run, done)
    hands.seconds += 11.0
    shell.runtime.tick()
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
    shell.reports.worker_exited(launcher, exited)

    anew = shell.run_of("other")
    assert (anew.task, run.device.name, anew.device.name) == (task, "cpu", "gpu0")
    assert anew.epoch > run.epoch


def test_a_task_that_can_run_nowhere_else_is_tried_there_again(
    shell: Shell, hands: Hands
) -> None:
    launcher = shell.launcher()
    _hanging(shell, hands, resources=["cpu"])
    shell.worker("other")

    shell.reports.worker_exited(launcher, m.WorkerExited("w", -15))

    assert shell.run_of("other").device.name == "cpu"


def test_the_reason_is_told_where_no_launcher_tells_it(
    shell: Shell, hands: Hands
) -> None:
    task, _ = _hanging(shell, hands)

    shell.reports.process_ended(a_peer("w"), "w")

    page = shell.journal.find(task)
    assert page is not None
    assert page.reason == "no checkpoint was reached in 10 s: its worker ended"


def test_a_call_of_a_function_may_take_any_time(shell: Shell, hands: Hands) -> None:
    launcher = shell.launcher()
    shell.worker("w")
    (task,) = shell.submit(a_spec(app=m.CALL))
    run = shell.run_of("w")
    shell.ask(m.Drain(1, run.device.name, on=True))  # it is asked to leave, and cannot

    for _ in range(100):
        hands.seconds += 1000.0
        shell.runtime.tick()

    assert shell.sent.to("launcher1000", m.KillWorker) == []
    # a lost process is noticed all the same
    shell.reports.worker_exited(launcher, m.WorkerExited("w", -9))
    page = shell.journal.find(task)
    assert page is not None
    assert (run.device.name, page.runtime.resource) == ("cpu", "gpu0")


def test_saving_the_result_of_a_call_may_not(shell: Shell, hands: Hands) -> None:
    shell.launcher()
    shell.worker("w")
    shell.submit(a_spec(app=m.CALL))
    _report(shell, "w", shell.run_of("w"), 100)

    hands.seconds += 51.0
    shell.runtime.tick()

    (kill,) = shell.sent.to("launcher1000", m.KillWorker)
    assert kill.reason == "no strip was finished in 50 s"


def test_a_program_of_the_users_own_may_hang(shell: Shell, hands: Hands) -> None:
    shell.launcher()
    shell.worker("own", own=True)
    shell.submit(a_spec(), worker="own")

    hands.seconds += 1000.0
    shell.runtime.tick()

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
    shell.runtime.tick()
    assert device_of(shell).reason == f"process 1 of task {task} cannot be ended"
    return run


def test_what_nothing_ends_takes_its_resource_out_of_use(
    shell: Shell, hands: Hands, stuck: m.Run
) -> None:
    trials = give_trials(shell)
    assert (device_of(shell).state, device_of(shell).running) == ("lost", [])
    hands.seconds += 100.0
    shell.runtime.tick()
    assert trials.begun == [], "no trial while it holds on to the device"

    exited = m.WorkerExited("w", -9)
    shell.reports.worker_exited(a_peer(f"launcher{USER}"), exited)
    shell.runtime.tick()
    trials.outcomes = [""]
    hands.seconds += 1.0
    shell.runtime.tick()

    assert trials.begun == ["gpu0"]
    assert device_of(shell).state == "up"


def test_what_nothing_ends_costs_the_cpu_one_slot(shell: Shell, hands: Hands) -> None:
    launcher = shell.launcher()
    task, run = _hanging(shell, hands, kinds=["cpu"])
    shell.worker("other")
    hands.seconds += KILL_S + 1
    shell.runtime.tick()

    anew = shell.run_of("other")
    assert (anew.task, anew.device.name, shell.state(task)) == (task, "cpu", "running")
    assert anew.epoch > run.epoch
    assert shell.killed == [1], "the launcher may hang, and the kernel may let us"
    cpu = device_of(shell, "cpu")
    stuck = f"slots lost: 1; process 1 of task {task} cannot be ended"
    assert (cpu.state, cpu.reason) == ("up", stuck)
    (waits,) = shell.submit(a_spec(kinds=["cpu"]))
    assert shell.state(waits) == "queued", "the other slot is not its own"

    shell.reports.worker_exited(launcher, m.WorkerExited("w", -9))

    assert shell.state(waits) == "running"
    assert device_of(shell, "cpu").reason == ""


def test_a_cpu_of_which_no_slot_is_left_is_lost_until_one_is(
    shell: Shell, hands: Hands
) -> None:
    launcher = shell.launcher()
    for name in ("v", "w"):
        shell.worker(name)
        shell.submit(a_spec(kinds=["cpu"]))
        _report(shell, name, shell.run_of(name), 1)
        _report(shell, name, shell.run_of(name), 2)
    for seconds in (11.0, KILL_S + 1):
        hands.seconds += seconds
        shell.runtime.tick()

    cpu = device_of(shell, "cpu")
    assert (cpu.state, cpu.running, cpu.queued) == ("lost", [], 0)
    assert shell.state(1) == "queued"

    shell.reports.worker_exited(launcher, m.WorkerExited("v", -9))

    assert device_of(shell, "cpu").state == "up"
    assert [shell.state(task) for task in (1, 2)].count("running") == 1


def test_the_next_attempt_after_what_nothing_ended_may_hang_too(
    shell: Shell, hands: Hands
) -> None:
    shell.launcher()
    _hanging(shell, hands, kinds=["cpu"])
    shell.worker("other")
    hands.seconds += KILL_S + 1
    shell.runtime.tick()

    for seconds in (51.0, 1.0):  # it reports no strip; it is told to end, once
        hands.seconds += seconds
        shell.runtime.tick()

    ended = [order.name for order in shell.sent.to("launcher1000", m.KillWorker)]
    assert ended == ["w", "other"]
    assert shell.state(1) == "running", "while that is not over"


def test_what_a_stuck_worker_says_at_last_is_refused(
    shell: Shell, stuck: m.Run
) -> None:
    anew = shell.run_of("other")
    assert (anew.device.name, anew.task) == ("gpu1", stuck.task)

    shell.finish("w", stuck, result="of the old attempt")
    assert shell.state(stuck.task) == "running"
    shell.finish("other", anew, result="of the newest")

    page = shell.journal.find(stuck.task)
    assert page is not None
    assert page.result == "of the newest"


def test_a_stuck_worker_that_obeys_at_last_is_trusted_again(
    shell: Shell, hands: Hands, stuck: m.Run
) -> None:
    trials = give_trials(shell)

    shell.reports.report(a_peer("w"), m.Aborted(stuck.task, stuck.epoch))
    shell.runtime.tick()
    trials.outcomes = [""]
    hands.seconds += 1.0
    shell.runtime.tick()

    assert device_of(shell).state == "up"
