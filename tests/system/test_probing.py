"""Probing: a task that nobody knows tries each resource for a few strips."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hetapps.synthetic import Synthetic
from libtask.errors import DaemonUnreachableError
from system.private_daemon import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon

CONFIG = """
policy = "{policy}"
cancel_grace_s = 0.3
probing = {probing}
{parameters}
"""
EAGER = """
[policy_parameters]
minimum_run_s = 0.0
"""
POLICIES = {"migration": EAGER, "finish-time": ""}
TIMES = {"cpu": 60.0, "gpu": 2.0, "fpga": 20.0}


def visited(daemon: PrivateDaemon) -> list[str]:
    """Run a task that is quickest on the GPU; list where it ran."""
    task = daemon.client.submit(Synthetic(seconds=TIMES, strips=1200))
    task.result(60)
    return places_of(daemon, task.id)


def places_of(daemon: PrivateDaemon, task: int) -> list[str]:
    """List where a task ran, in order."""
    return [segment.resource for segment in daemon.info(task).segments]


def configured(policy: str, probing: str = "0.2") -> str:
    parameters = POLICIES[policy]
    values = {"policy": policy, "probing": probing, "parameters": parameters}
    return CONFIG.format(**values) + RESOURCES


@pytest.mark.parametrize("policy", POLICIES)
def test_an_unknown_task_finds_its_best_resource(
    private_daemon: Callable[..., PrivateDaemon], policy: str
) -> None:
    daemon = private_daemon(configured(policy))

    places = visited(daemon)

    assert places[0] == "cpu"
    assert set(places) == {"cpu", "gpu0", "fpga0"}
    assert places[-1] == "gpu0"
    # one of its kind knows where to go at once
    assert visited(daemon)[0] == "gpu0"
    log = daemon.log.read_text()
    assert log.count("probed synthetic/") == 3
    (told,) = re.findall(r"on fpga0: takes ([0-9.]+) s", log)
    assert float(told) == pytest.approx(20.0, rel=0.3)


@pytest.mark.parametrize("probing", ["0", "1.5"])
def test_a_curiosity_that_cannot_be_is_refused(
    private_daemon: Callable[..., PrivateDaemon], probing: str
) -> None:
    with pytest.raises(
        DaemonUnreachableError, match="probing: expected a number above 0"
    ):
        private_daemon(configured("migration", probing))
