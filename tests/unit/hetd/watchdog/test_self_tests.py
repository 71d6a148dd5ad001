"""Devices whose drivers do not pass: unusable until a test goes well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from hetd.devices.health import TRIAL_S
from libtask import messages as m
from unit.daemon_shell import DEVICES, Shell, a_spec
from unit.hetd.watchdog.devices_on_trial import device_of, give_trials

if TYPE_CHECKING:
    from unit.turned_clock import Hands


UNUSABLE = m.DeviceInfo(
    m.DeviceSpec("gpu0", "gpu", "opencl"), state="unusable", reason="no compiler"
)


@pytest.fixture
def devices(request: pytest.FixtureRequest) -> list[m.DeviceInfo]:
    first: m.DeviceInfo = getattr(request, "param", UNUSABLE)
    return [DEVICES[0], first]


def test_an_unusable_device_gets_no_task_and_no_trial_by_itself(
    shell: Shell, hands: Hands
) -> None:
    trials = give_trials(shell)
    shell.runtime.restore()
    shell.worker("w")
    (waits,) = shell.submit(a_spec(resources=["gpu0"]))

    hands.seconds += 10_000
    shell.runtime.tick()

    assert (device_of(shell).state, device_of(shell).reason) == (
        "unusable",
        "no compiler",
    )
    assert shell.state(waits) == "queued"
    assert trials.begun == []


def test_an_unusable_device_is_used_when_it_passes_a_test(
    shell: Shell, hands: Hands
) -> None:
    trials = give_trials(shell)
    shell.runtime.restore()
    shell.worker("w")
    (waits,) = shell.submit(a_spec(resources=["gpu0"]))
    for outcome in ("still no compiler", ""):
        shell.ask(m.TestDevices(1), uid=0)
        assert device_of(shell).testing
        trials.outcomes = [None, outcome]
        for _ in range(3):
            hands.seconds += 0.2
            shell.runtime.tick()
        assert not device_of(shell).testing
        assert device_of(shell).reason == outcome

    assert device_of(shell).state == "up"
    assert shell.state(waits) == "running"


@pytest.mark.parametrize(
    "devices", [msgspec.structs.replace(UNUSABLE, state="up", reason="")], indirect=True
)
def test_a_device_in_use_that_fails_a_test_is_taken_out(
    shell: Shell, hands: Hands
) -> None:
    trials = give_trials(shell)
    for outcome, state in (("", "up"), ("wrong numbers", "unusable")):
        shell.ask(m.TestDevices(1, ["gpu0"]), uid=0)
        assert (device_of(shell).state, device_of(shell).testing) == ("up", True)
        trials.outcomes = [None, outcome]
        for _ in range(3):
            hands.seconds += 0.2
            shell.runtime.tick()
        assert (device_of(shell).state, device_of(shell).reason) == (state, outcome)
    assert not device_of(shell).testing


def test_a_test_without_an_answer_is_ended(shell: Shell, hands: Hands) -> None:
    trials = give_trials(shell)
    shell.ask(m.TestDevices(1), uid=0)
    for _ in range(2):
        hands.seconds += TRIAL_S + 1
        shell.runtime.tick()

    assert trials.given_up == 1
    assert device_of(shell).reason == "no answer in 60 s"


def test_a_resource_that_is_not_there_is_not_tested(shell: Shell) -> None:
    assert shell.error(m.TestDevices(1, ["gpu7"]), 0).code == "not-found"
