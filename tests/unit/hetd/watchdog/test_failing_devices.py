"""Devices that fail again and again are out of use until a trial goes well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.devices.health import FIRST_PAUSE_S, IGNORED_S, TRIAL_S, Health
from hetd.timers import Timers
from hetsched import events as e
from hetsched.system import SECOND
from libtask import messages as m
from unit.daemon_shell import DEVICES, OTHER, USER, Shell, a_peer, a_spec
from unit.hetd.watchdog.devices_on_trial import Trials, device_of, give_trials

if TYPE_CHECKING:
    from unit.turned_clock import Hands


def _fail_on_gpu(
    shell: Shell, name: str, code: str = "device", uid: int = USER
) -> None:
    """Run a task on the GPU, where it fails."""
    _fail_on(shell, "gpu0", name, code, uid)


def _fail_on(
    shell: Shell, resource: str, name: str, code: str = "device", uid: int = USER
) -> None:
    shell.submit(a_spec(resources=[resource]), uid=uid)
    run = shell.sent.to(name, m.Run)[-1]
    assert run.device.name == resource
    failed = m.Failed(run.task, run.epoch, "boom", code)
    shell.reports.report(a_peer(name, uid), failed)


def _pass_the_test(shell: Shell, hands: Hands, trials: Trials) -> None:
    """Let the GPU pass its self-test."""
    trials.outcomes = [""]
    for _ in range(2):
        hands.seconds += FIRST_PAUSE_S
        shell.runtime.tick()
    assert device_of(shell).state == "up"


def test_a_device_that_fails_again_and_again_is_tried_before_it_is_used_again(
    shell: Shell, hands: Hands
) -> None:
    trials = give_trials(shell)
    shell.worker("w")
    for _ in range(3):
        assert device_of(shell).state == "up"
        _fail_on_gpu(shell, "w")

    gpu = device_of(shell)
    assert (gpu.state, gpu.reason) == (
        "lost",
        "3 device errors in a row, the last one: boom",
    )
    (waits,) = shell.submit(a_spec(resources=["gpu0"]))
    hands.seconds += FIRST_PAUSE_S
    shell.runtime.tick()
    trials.outcomes = [None, "wrong numbers"]
    for _ in range(2):
        hands.seconds += 0.5
        shell.runtime.tick()
    assert trials.begun == ["gpu0"]
    reason = "self-test failed: wrong numbers; retrying in 2 s"
    assert device_of(shell).reason == reason
    assert shell.state(waits) == "queued"

    trials.outcomes = [""]
    for _ in range(2):
        hands.seconds += 2.1
        shell.runtime.tick()

    assert (device_of(shell).state, device_of(shell).reason) == ("up", "")
    assert shell.state(waits) == "running"


def test_a_task_beside_those_that_fail_yields_before_it_goes_on_elsewhere(
    shell: Shell,
) -> None:
    """Two workers would compute it, and a command would have its effects twice."""
    give_trials(shell)
    shell.worker("beside")
    (task,) = shell.submit(a_spec())
    run = shell.run_of("beside")
    shell.worker("w")
    for _ in range(3):
        _fail_on(shell, "cpu", "w")

    (preempt,) = shell.sent.to("beside", m.Preempt)
    assert (preempt.task, preempt.epoch) == (task, run.epoch)
    assert shell.sent.to("beside", m.Abort) == []
    assert shell.sent.to("w", m.Run)[-1].task != task, "another worker computes it, too"
    yielded = m.Yielded(task, run.epoch, m.CheckpointRecord(5, 10), strips=2)
    shell.reports.report(a_peer("beside"), yielded)

    first, second = shell.sent.to("beside", m.Run)
    assert (first.device.name, second.device.name) == ("cpu", "gpu0")
    page = shell.journal.find(task)
    assert page is not None
    assert page.segments[0].stop_rule == "cpu is out of service"


def test_errors_of_a_user_do_not_count_where_the_device_passed_its_test(
    shell: Shell, hands: Hands
) -> None:
    """A user whose workers report errors at will would keep it from all others."""
    trials = give_trials(shell)
    shell.worker("w")
    shell.worker("v", uid=OTHER)
    for _ in range(3):
        _fail_on_gpu(shell, "w")
    assert device_of(shell).state == "lost"
    _pass_the_test(shell, hands, trials)

    for _ in range(6):
        _fail_on_gpu(shell, "w")

    assert device_of(shell).state == "up"
    for _ in range(3):
        _fail_on_gpu(shell, "v", uid=OTHER)
    assert device_of(shell).state == "lost", "another user's count"
    _pass_the_test(shell, hands, trials)
    hands.seconds += IGNORED_S
    for _ in range(3):
        _fail_on_gpu(shell, "w")
    assert device_of(shell).state == "lost", "for a while only"
    _pass_the_test(shell, hands, trials)
    hands.seconds += IGNORED_S
    for _ in range(3):
        _fail_on_gpu(shell, "w")
    assert device_of(shell).state == "up", "for longer each time"


def test_errors_count_where_the_self_test_confirmed_them(
    shell: Shell, hands: Hands
) -> None:
    trials = give_trials(shell)
    shell.worker("w")
    for _ in range(3):
        _fail_on_gpu(shell, "w")
    trials.outcomes = ["wrong numbers", ""]
    for _ in range(4):
        hands.seconds += 2.1
        shell.runtime.tick()
    assert device_of(shell).state == "up"

    for _ in range(3):
        _fail_on_gpu(shell, "w")

    assert device_of(shell).state == "lost"


@pytest.mark.parametrize("code", ["program", "device-memory", "task-failed"])
def test_a_device_is_not_to_blame_for_everything(shell: Shell, code: str) -> None:
    shell.worker("w")

    for _ in range(4):
        _fail_on_gpu(shell, "w", code)

    assert device_of(shell).state == "up"


def test_success_makes_errors_forgotten(shell: Shell) -> None:
    shell.worker("w")
    for _ in range(3):
        for _ in range(2):
            _fail_on_gpu(shell, "w")
        shell.submit(a_spec(resources=["gpu0"]))
        shell.finish("w", shell.sent.to("w", m.Run)[-1], strips=1)

    assert device_of(shell).state == "up"


def test_an_administrator_may_know_better(shell: Shell) -> None:
    trials = give_trials(shell)
    shell.worker("w")
    for _ in range(3):
        _fail_on_gpu(shell, "w")

    shell.ask(m.Drain(1, "gpu0", on=False), uid=0)

    assert (device_of(shell).state, device_of(shell).reason) == ("up", "")
    assert trials.begun == []


def test_a_trial_without_an_answer_is_given_up() -> None:
    trials = Trials()
    health = Health({d.spec.name: d.spec for d in DEVICES}, 1, Timers(), trials.begin)
    (lost,) = health.failed("gpu0", "boom", USER, 0)
    assert lost == e.ResourceLost(
        "gpu0", "1 device errors in a row, the last one: boom"
    )

    health.tick(2 * SECOND)
    assert health.tick(int((TRIAL_S + 3) * SECOND)) == []

    assert trials.given_up == 1
    assert "no answer in 60 s" in health.reason("gpu0")


def test_a_program_that_does_not_build_is_tried_on_no_other_of_the_kind(
    shell: Shell,
) -> None:
    shell.worker("w")
    (task,) = shell.submit(a_spec(resources=["gpu0", "gpu1"]))
    run = shell.run_of("w")

    failed = m.Failed(run.task, run.epoch, "does not compile: line 3", "program")
    shell.reports.report(a_peer("w"), failed)

    page = shell.journal.find(task)
    assert page is not None
    assert (page.state, page.reason) == ("failed", "does not compile: line 3")
