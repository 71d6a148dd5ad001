"""Energy on a real daemon: modelled by the figures of its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetapps.synthetic import Synthetic
from system.private_daemon import RESOURCES, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon

CONFIG = f"""{SETTINGS}{RESOURCES}
busy_watts = 250.0
idle_watts = 30.0
"""
"""The figures are those of the last resource."""


def test_energy_is_watts_times_time(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon(CONFIG)
    task = Synthetic(seconds={"fpga": 0.5, "cpu": 0.5}, strips=10)
    handle = daemon.client.submit(task, resources=["fpga0"])

    handle.result(30)

    info = daemon.info(handle.id)
    (segment,) = info.segments
    assert segment.finish is not None
    took = segment.finish - segment.start
    assert info.joules == pytest.approx(250.0 * took, rel=0.01)
    assert not info.measured
    fpga = next(each for each in daemon.client.devices() if each.spec.name == "fpga0")
    assert fpga.busy_joules == pytest.approx(info.joules)
    whole = 250.0 * took + 30.0 * (fpga.metered_s - took)
    assert fpga.idle_joules > 0
    assert fpga.busy_joules + fpga.idle_joules == pytest.approx(whole, rel=0.01)


def test_nothing_is_told_where_no_figures_are_known(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon(CONFIG)
    task = Synthetic(seconds={"fpga": 0.01, "cpu": 0.01}, strips=1)
    handle = daemon.client.submit(task, resources=["cpu"])

    handle.result(30)

    assert daemon.info(handle.id).joules is None
