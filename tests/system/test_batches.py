"""Batch planners as policies of the real daemon: a batch is planned as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.messages import Sample

if TYPE_CHECKING:
    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon

BY_COMPUTING = ("sct", "mmi", "mttf-lp", "cim", "ncjm")
BY_TRANSFERS = ("sjf", "ljf", "nim")
"""They balance transfers only, and these tasks have none."""
WINDOW_S = 0.3
"""Long beside a submission on a busy machine."""

SECONDS = {
    "cpu-bound": {"cpu": 0.02, "gpu": 0.4, "fpga": 0.4},
    "gpu-bound": {"cpu": 0.4, "gpu": 0.02, "fpga": 0.4},
    "fpga-bound": {"cpu": 0.4, "gpu": 0.4, "fpga": 0.02},
}
NODE = {"cpu": "cpu", "gpu0": "gpu", "fpga0": "fpga"}


def _teach(daemon: PrivateDaemon, label: str, seconds: dict[str, float]) -> None:
    kind = f"synthetic/{label}"
    daemon.client.learn([Sample(kind, name, seconds[NODE[name]]) for name in NODE])


def _submit(
    daemon: PrivateDaemon, label: str, seconds: dict[str, float], strips: int = 4
) -> TaskHandle:
    parameters = {"seconds": seconds, "label": label, "strips": strips}
    return daemon.client.submit("synthetic", parameters)


def _ended(daemon: PrivateDaemon, handles: list[TaskHandle]) -> list[TaskInfo]:
    return [daemon.await_state(handle.id, "completed") for handle in handles]


@pytest.mark.parametrize("planner", BY_COMPUTING + BY_TRANSFERS)
def test_what_arrives_within_the_window_is_planned_as_one(
    daemon: PrivateDaemon, planner: str
) -> None:
    for label, seconds in SECONDS.items():
        _teach(daemon, label, seconds)
    daemon.client.policy(planner, window_s=WINDOW_S)

    handles = [_submit(daemon, label, SECONDS[label]) for label in SECONDS]
    rules = [daemon.client.explain(handle.id).rule for handle in handles]
    infos = _ended(daemon, handles)

    if planner in BY_COMPUTING:
        assert [each.segments[0].resource for each in infos] == ["cpu", "gpu0", "fpga0"]
    assert set(rules) <= {"", f"planned by {planner} in a batch of 3"}
    first = min(info.segments[0].start for info in infos)
    assert first - infos[0].submitted >= WINDOW_S - 0.01


def test_a_plan_that_turns_out_wrong_is_corrected_by_migration(
    daemon: PrivateDaemon,
) -> None:
    # planned for the GPU, which then takes a thousand times as long as expected
    _teach(daemon, "misjudged", {"cpu": 2.0, "gpu": 0.1, "fpga": 9.0})
    daemon.client.policy("cim", window_s=0.0)

    handle = _submit(daemon, "misjudged", {"cpu": 2.0, "gpu": 100.0}, strips=500)
    (info,) = _ended(daemon, [handle])

    assert [segment.resource for segment in info.segments] == ["gpu0", "cpu"]
    assert info.migrations == 1
