"""What operators have set: in force again after every restart, until they say otherwise."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from hetd.tasks.operator_settings import OperatorSetting
from hetsched.ids import TaskId
from libtask import messages as m
from unit.daemon_shell import DEVICES, Shell, a_peer, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ADMIN = 0
CPU = DEVICES[0]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    """Start a daemon's shell, as after a crash; what was committed is there."""
    shells: list[Shell] = []

    def made(**fields: Any) -> Shell:
        shell = Shell(tmp_path, **fields)
        shells.append(shell)
        shell.runtime.restore()
        return shell

    yield made
    for shell in shells:
        shell.close()


def drain(shell: Shell, name: str, *, wanted: bool = True) -> None:
    assert shell.ask(m.Drain(1, name, on=wanted), ADMIN) == m.Done(1)
    shell.commit()


def states(shell: Shell) -> dict[str, str]:
    listed = shell.ask(m.Devices(1))
    return {each.spec.name: each.state for each in listed.devices}


def policy(shell: Shell) -> tuple[str, bool]:
    """Return the policy in force, and whether an operator has set it."""
    info = shell.ask(m.Policies(1))
    return info.name, bool(info.set)


# ---------------------------------------------------------------- drained resources


def test_a_drained_resource_stays_drained_until_it_is_given_back(
    start: Callable[..., Shell],
) -> None:
    drain(start(), "gpu0")

    again = start()
    assert states(again) == {"cpu": "up", "gpu0": "draining"}
    drain(again, "gpu0", wanted=False)

    assert states(start()) == {"cpu": "up", "gpu0": "up"}


def test_who_drained_a_resource_is_told(start: Callable[..., Shell]) -> None:
    drain(start(), "gpu0")

    (_, gpu0) = start().ask(m.Devices(1)).devices

    assert gpu0.reason.startswith(f"drained by uid {ADMIN} on 20")
    assert gpu0.reason.endswith("UTC; `hetctl resume gpu0` puts it back into service")


def test_nothing_begins_on_a_drained_resource_at_a_start(
    start: Callable[..., Shell],
) -> None:
    before = start()
    drain(before, "gpu0")
    (task,) = before.submit(a_spec(kinds=["gpu"]))
    before.commit()

    after = start()
    after.worker("w")

    assert after.state(task) == "queued"
    assert after.sent.to("w", m.Run) == []


def test_what_ran_on_a_drained_resource_is_to_leave_after_a_start(
    start: Callable[..., Shell],
) -> None:
    before = start()
    before.worker("w")
    (task,) = before.submit(a_spec(kinds=["cpu", "gpu"], resources=["gpu0", "cpu"]))
    run = before.run_of("w")
    drain(before, run.device.name)

    after = start()
    there = run.device.name
    peer = after.worker("w", task=task, epoch=run.epoch, resource=there)
    assert after.sent.to("w", m.Preempt)[-1] == m.Preempt(task, run.epoch)
    record = m.CheckpointRecord(1, 2)
    after.reports.report(peer, m.Yielded(task, run.epoch, record))

    (onward,) = after.sent.to("w", m.Run)
    assert onward.device.name != there


def test_a_task_that_a_worker_is_found_with_leaves_a_drained_resource(
    start: Callable[..., Shell],
) -> None:
    before = start()
    before.ask(m.Policies(1, set="work-conserving"), ADMIN)
    before.submit(*[a_spec(kinds=["cpu"])] * 2)
    before.worker("1")
    before.worker("2")
    (task,) = before.submit(a_spec())
    before.worker("w")
    run = before.run_of("w")
    drain(before, "gpu0")
    yielded = m.Yielded(task, run.epoch, m.CheckpointRecord(1, 2))
    before.reports.report(a_peer("w"), yielded)
    before.commit()
    assert (run.device.name, before.state(task)) == ("gpu0", "preempted")

    # given back, and it began there anew: the crash left nothing of that but the worker
    after = start()
    after.worker("w", task=task, epoch=run.epoch, resource="gpu0")

    record = after.runtime.scheduler.system.tasks[TaskId(task)]
    assert (record.resource, record.preempting) == ("gpu0", True)
    assert after.sent.to("w", m.Preempt) == [m.Preempt(task, run.epoch)] * 2


def test_a_drained_resource_that_is_not_here_is_remembered(
    start: Callable[..., Shell], caplog: pytest.LogCaptureFixture
) -> None:
    drain(start(), "gpu0")

    with caplog.at_level(logging.WARNING, "hetd"):
        without = start(devices=[CPU])
    assert states(without) == {"cpu": "up"}
    assert "gpu0, drained by uid 0" in caplog.text
    assert states(start())["gpu0"] == "draining"


def test_a_resource_that_is_not_here_can_be_given_back_but_not_drained(
    start: Callable[..., Shell],
) -> None:
    drain(start(), "gpu0")
    without = start(devices=[CPU])

    assert without.error(m.Drain(1, "gpu0", on=True), ADMIN).code == "not-found"
    drain(without, "gpu0", wanted=False)

    assert without.error(m.Drain(1, "gpu0", on=False), ADMIN).code == "not-found"
    assert states(start())["gpu0"] == "up"


def test_a_refused_drain_is_not_remembered(start: Callable[..., Shell]) -> None:
    shell = start()
    assert shell.error(m.Drain(1, "gpu0", on=True), 4321).code == "not-allowed"
    shell.commit()

    assert states(start())["gpu0"] == "up"


# ---------------------------------------------------------------- the policy


def test_a_policy_stays_in_force_whatever_the_configuration_names(
    start: Callable[..., Shell],
) -> None:
    before = start()
    parameters = {"minimum_run_s": "3"}
    before.ask(m.Policies(1, set="migration", parameters=parameters), ADMIN)
    before.commit()

    after = start(policy="work-conserving")
    info = after.ask(m.Policies(1))

    assert (info.name, info.parameters["minimum_run_s"]) == ("migration", 3.0)
    assert info.configured == "work-conserving"
    assert info.set.startswith("by uid 0 on 20")


def test_the_configured_policy_comes_back_when_it_is_asked_for(
    start: Callable[..., Shell],
) -> None:
    before = start()
    before.ask(m.Policies(1, set="migration"), ADMIN)
    before.commit()

    after = start()
    info = after.ask(m.Policies(2, configured=True), ADMIN)
    after.commit()

    assert (info.name, info.set) == ("affinity", "")
    assert policy(start()) == ("affinity", False)


def test_only_rulers_go_back_to_the_configured_policy(
    start: Callable[..., Shell],
) -> None:
    shell = start()
    shell.ask(m.Policies(1, set="migration"), ADMIN)

    assert shell.error(m.Policies(2, configured=True), 4321).code == "not-allowed"
    both = m.Policies(3, set="affinity", configured=True)
    assert shell.error(both, ADMIN).code == "bad-input"
    assert policy(shell) == ("migration", True)


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("clairvoyant", {}, "no policy 'clairvoyant'"),
        ("migration", {"nonsense": 1}, "no parameter 'nonsense'"),
    ],
)
def test_a_policy_that_is_no_more_is_ignored_with_one_warning(
    start: Callable[..., Shell],
    caplog: pytest.LogCaptureFixture,
    name: str,
    parameters: dict[str, Any],
    complaint: str,
) -> None:
    before = start()
    setting = OperatorSetting(ADMIN, 1e9, name, parameters)
    before.journal.batch.settings["policy", ""] = msgspec.msgpack.encode(setting)
    before.commit()

    with caplog.at_level(logging.WARNING, "hetd"):
        after = start()

    assert policy(after) == ("affinity", False)
    (warning,) = caplog.records
    assert complaint in warning.getMessage()


def test_what_was_not_committed_was_not_set(start: Callable[..., Shell]) -> None:
    before = start()
    before.ask(m.Policies(1, set="migration"), ADMIN)
    before.ask(m.Drain(1, "gpu0", on=True), ADMIN)

    after = start()

    assert policy(after) == ("affinity", False)
    assert states(after)["gpu0"] == "up"
