"""Operators of a node drain its resources and change its policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask import messages as m
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client
    from system.private_daemon import PrivateDaemon
    from system.tracing import Tracing

    Submit = Callable[..., Tracing]


def test_a_drained_resource_is_left_and_comes_back(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    running = trace(gate_at=5, resources=["gpu0", "fpga0"])
    running.await_gate()
    (place,) = running.resources()
    queued = trace(resources=[place])

    daemon.client.drain(place)
    running.open_gate()

    running.check_completed()
    assert running.resources() == [place, *({"gpu0", "fpga0"} - {place})]
    assert _device(daemon.client, place).state == "draining"
    assert daemon.info(queued.id).state == "queued"
    daemon.client.resume(place)
    queued.check_completed()
    assert _device(daemon.client, place).state == "up"


def test_what_can_run_nowhere_else_ends_on_a_drained_resource(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=5, resources=["gpu0"])
    task.await_gate()

    daemon.client.drain("gpu0")
    task.open_gate()

    task.check_completed()
    assert task.resources() == ["gpu0"]


def test_the_policy_changes_while_tasks_wait(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    affinity = daemon.client.policy()
    tenants = [trace(gate_at=2, resources=["cpu"]) for _ in range(2)]
    for tenant in tenants:
        tenant.await_gate()
    learned = [("cpu", 0.1), ("gpu0", 0.2)]
    daemon.client.learn([m.Sample("traced:Traced/traced", *pair) for pair in learned])
    waiting = trace(only="cpu,gpu", resources=[])
    assert daemon.info(waiting.id).state == "queued"
    assert daemon.info(waiting.id).resource == "cpu"

    # unlike affinity, it leaves no resource idle while a task waits that it can run
    info = daemon.client.policy("work-conserving")

    waiting.check_completed()
    assert waiting.resources() == ["gpu0"]
    assert (affinity.name, info.name) == ("affinity", "work-conserving")
    for tenant in tenants:
        tenant.open_gate()
        tenant.check_completed()


def test_unknown_policies_and_parameters_are_refused(daemon: PrivateDaemon) -> None:
    with pytest.raises(InputError, match="afinity"):
        daemon.client.policy("afinity")
    with pytest.raises(InputError, match="patience"):
        daemon.client.policy("migration", patience=3)

    assert daemon.client.policy().name == "affinity"


def test_devices_show_what_runs_and_waits(daemon: PrivateDaemon, trace: Submit) -> None:
    running = trace(gate_at=2, resources=["gpu0"])
    running.await_gate()
    trace(resources=["gpu0"])

    device = _device(daemon.client, "gpu0")

    assert (device.running, device.queued) == ([running.id], 1)
    assert [each.spec.name for each in daemon.client.devices()] == [
        "cpu",
        "gpu0",
        "fpga0",
    ]
    running.open_gate()


def _device(client: Client, name: str) -> m.DeviceInfo:
    (found,) = (each for each in client.devices() if each.spec.name == name)
    return found
