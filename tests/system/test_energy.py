"""Energy on a real daemon: modelled by the figures of its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetapps.synthetic import Synthetic

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon

CONFIG = """
policy = "affinity"
cancel_grace_s = 0.3

[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
slots = 2

[[resource]]
name = "gpu0"
kind = "gpu"
driver = "null"
busy_watts = 250.0
idle_watts = 30.0
"""


def test_energy_is_watts_times_time(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon(CONFIG)
    task = Synthetic(seconds={"gpu": 0.5, "cpu": 0.5}, strips=10)
    handle = daemon.client.submit(task, resources=["gpu0"])

    handle.result(30)

    info = daemon.info(handle.id)
    (segment,) = info.segments
    assert segment.finish is not None
    took = segment.finish - segment.start
    assert info.joules == pytest.approx(250.0 * took, rel=0.01)
    assert not info.measured
    gpu = next(each for each in daemon.client.devices() if each.spec.name == "gpu0")
    assert gpu.busy_joules == pytest.approx(info.joules)
    whole = 250.0 * took + 30.0 * (gpu.metered_s - took)
    assert gpu.idle_joules > 0
    assert gpu.busy_joules + gpu.idle_joules == pytest.approx(whole, rel=0.01)


def test_nothing_is_told_where_no_figures_are_known(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon(CONFIG)
    task = Synthetic(seconds={"gpu": 0.01, "cpu": 0.01}, strips=1)
    handle = daemon.client.submit(task, resources=["cpu"])

    handle.result(30)

    assert daemon.info(handle.id).joules is None
