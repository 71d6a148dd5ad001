"""What operators set is in force again after a crash of the real daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask import messages as m
from system.private_daemon import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon


def test_a_drained_resource_and_a_policy_outlive_the_daemon(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon()
    daemon.client.drain("gpu0")
    configured = daemon.client.policy().name
    assert configured != "migration"
    daemon.client.policy("migration", minimum_run_s="3")

    daemon.kill9()
    daemon.start()

    states = {each.spec.name: each.state for each in daemon.client.devices()}
    assert states["gpu0"] == "draining"
    info = daemon.client.policy()
    assert (info.name, info.parameters["minimum_run_s"]) == ("migration", 3.0)
    assert (bool(info.set), info.configured) == (True, configured)

    spec = m.TaskSpec(
        "synthetic", {"seconds": {"gpu": 0.0}}, kinds=["gpu"], resources=["gpu0"]
    )
    (task,) = daemon.client.submit_specs([spec])
    assert daemon.info(task.id).state in ("waiting", "queued")
    daemon.client.resume("gpu0")
    assert task.wait(PATIENCE) == "completed"
    assert daemon.client.configured_policy().name == configured
