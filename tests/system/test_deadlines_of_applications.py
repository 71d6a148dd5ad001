"""Two real applications with deadlines share a CPU, a GPU and an FPGA, as in the docs.

The devices are those that hetd discovers: here the CPU, PoCL as a GPU and the FPGA
vendor's emulator, or what stands in for them. Deadlines are minutes or a moment away,
so that it does not matter how fast these are.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from hetapps.gaussian_blur import GaussianBlur
from hetapps.heat import Heat
from libtask.messages import ENDED
from system.private_daemon import NAMES, PATIENCE, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.messages import TaskInfo
    from libtask.task import Task
    from system.private_daemon import PrivateDaemon

COMPILING = 100.0
"""Seconds for a first run, which may compile kernels for the first time."""

MINUTES = 300.0
MOMENT = 1e-5
MADE_WAY = r"made way on (cpu|gpu0|fpga0) for a task of a type that falls behind"

APPS: dict[str, Task] = {
    "heat": Heat(n=256, steps=64),
    "gaussian-blur": GaussianBlur(n=512, sigma=2.0),
}
OF_EACH = 12
"""More than fit the slots and places of two resources at once (5 and 4): all are used."""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateDaemon]:
    """A daemon on which each application ran once on each resource."""
    with opened("") as daemon:
        for task in APPS.values():
            for name in NAMES:
                daemon.client.submit(task, resources=[name]).result(COMPILING)
        yield daemon


@pytest.mark.timeout(6 * COMPILING + PATIENCE)
@pytest.mark.parametrize(
    ("policy", "parameters"),
    # felare may drop tasks that have time enough, for want of places: see below
    [("felare", {"fairness_factor": 0.5, "evict": False}), ("fair-deadline", {})],
)
def test_they_share_all_devices_and_are_right(
    known: PrivateDaemon, policy: str, parameters: dict[str, Any]
) -> None:
    known.client.policy(policy, **parameters)

    infos = run(known, OF_EACH, MINUTES)

    assert {(info.state, info.reason) for info in infos} == {("completed", None)}
    assert all((info.finished or 0.0) <= (info.deadline or 0.0) for info in infos)
    assert Counter(info.app for info in infos) == dict.fromkeys(APPS, OF_EACH)
    # the same bits wherever it ran
    assert len({(info.app, info.result["crc32"]) for info in infos}) == len(APPS)
    if policy == "felare":  # the other waits for the CPU where that is thriftier
        used = {segment.resource for info in infos for segment in info.segments}
        assert used == {*NAMES}


@pytest.mark.timeout(6 * COMPILING + PATIENCE)
def test_who_makes_way_is_told_so(known: PrivateDaemon) -> None:
    known.client.policy("felare", fairness_factor=0.5)

    infos = run(known, OF_EACH, MINUTES)

    completed = Counter(info.app for info in infos if info.state == "completed")
    assert {info.state for info in infos} <= {"completed", "dropped"}
    assert min(completed[app] for app in APPS) >= 3
    for info in infos:
        if info.state == "dropped":
            assert info.segments == []
            assert re.fullmatch(MADE_WAY, info.reason or "")


@pytest.mark.timeout(6 * COMPILING + PATIENCE)
@pytest.mark.parametrize("policy", ["felare", "fair-deadline"])
def test_those_that_cannot_make_it_are_dropped_with_a_reason(
    known: PrivateDaemon, policy: str
) -> None:
    known.client.policy(policy)

    infos = run(known, 3, MOMENT)

    assert {info.state for info in infos} == {"dropped"}
    assert [info.segments for info in infos] == [[]] * 6
    for info in infos:
        assert re.match(r"deadline -?0\.\d+ s after submission", info.reason or "")


def run(daemon: PrivateDaemon, count: int, deadline_s: float) -> list[TaskInfo]:
    """Submit tasks of both applications; return them when all have ended."""
    handles = [
        handle
        for task in APPS.values()
        for handle in daemon.client.submit_many([task] * count, deadline_s=deadline_s)
    ]
    for handle in handles:
        handle.wait(COMPILING)
    infos = [handle.info() for handle in handles]
    assert {info.state for info in infos} <= ENDED
    return infos
