"""Deadlines of real tasks: dropped with a reason, stopped, or left to go on."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from libtask.errors import InputError
from libtask.messages import ENDED, Sample
from system.private_daemon import RESOURCES, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon
    from system.terminal import Terminal
    from system.tracing import Tracing

    Submit = Callable[..., Tracing]


@pytest.mark.parametrize("policy", ["elare", "felare", "fair-deadline"])
def test_a_task_that_cannot_make_it_is_dropped_and_told_why(
    daemon: PrivateDaemon, trace: Submit, policy: str
) -> None:
    daemon.client.policy(policy)
    tenant = trace(gate_at=5, resources=["gpu0"], only="gpu")
    tenant.await_gate()

    hopeless = trace(resources=["gpu0"], only="gpu", deadline_s=0.05)

    info = daemon.await_state(hopeless.id, "dropped")
    # counted from when hetd took it in, a moment after its submission
    assert re.match(r"deadline 0\.0[45]\d s after submission", info.reason or "")
    assert "on gpu0" in (info.reason or "")
    assert info.deadline == pytest.approx(info.submitted + 0.05)
    assert hopeless.strips() == []
    tenant.open_gate()
    tenant.check_completed()


@pytest.mark.parametrize("policy", ["mm", "elare", "felare", "fair-deadline"])
def test_tasks_with_time_enough_complete(
    daemon: PrivateDaemon, trace: Submit, policy: str
) -> None:
    daemon.client.policy(policy)

    tasks = [
        trace(resources=[], deadline_s=25.0 if number % 2 else None)
        for number in range(8)
    ]

    for task in tasks:
        task.check_completed()


def test_a_running_task_is_stopped_at_its_deadline_where_so_wished(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    stopped = trace(gate_at=5, deadline_s=0.3, overrun="stop")
    goes_on = trace(gate_at=5, deadline_s=0.3)
    goes_on.await_gate()

    info = daemon.await_state(stopped.id, "cancelled")
    goes_on.open_gate()

    assert info.reason == "stopped at its deadline, 0.3 s after submission"
    goes_on.check_completed()
    late = daemon.info(goes_on.id)
    assert (late.finished or 0.0) > (late.deadline or 0.0)


def test_a_deadline_outlives_a_restart(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon()
    held = daemon.client.submit(
        "synthetic",
        {"seconds": {"cpu": 0.0}},
        hold=True,
        deadline_s=2.0,
        overrun="stop",
    )
    due = daemon.info(held.id).deadline

    daemon.restart()

    info = daemon.await_state(held.id, "cancelled")
    assert info.deadline == due
    assert (info.finished or 0.0) >= (due or 0.0)


def test_the_deadline_is_an_option_of_submit(
    daemon: PrivateDaemon, hetctl: Terminal
) -> None:
    words = ["submit", "synthetic", "--set", 'seconds={"cpu": 0}', "--hold"]

    (task,) = hetctl.json(*words, "--deadline", "1.5min")["ids"]
    shown = hetctl("show", str(task))

    info = daemon.info(task)
    assert info.deadline == pytest.approx(info.submitted + 90.0)
    assert "deadline" in shown


def test_a_deadline_in_the_past_is_refused(trace: Submit) -> None:
    with pytest.raises(InputError, match="deadline: expected seconds above 0, got -1"):
        trace(deadline_s=-1.0)


SECONDS = {
    "fast": {"cpu": 0.05, "gpu": 0.02, "fpga": 0.04},
    "slow": {"cpu": 0.10, "gpu": 0.05, "fpga": 0.06},
}


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [("felare", {"fairness_factor": 0.5}), ("fair-deadline", {})],
)
def test_two_apps_with_deadlines_share_cpu_gpu_and_fpga(
    daemon: PrivateDaemon, policy: str, parameters: dict[str, float]
) -> None:
    daemon.client.learn(
        [
            Sample(f"synthetic/{label}", resource, seconds[resource.rstrip("0")])
            for label, seconds in SECONDS.items()
            for resource in ("cpu", "gpu0", "fpga0")
        ]
    )
    # Workers take long to start, beside a deadline: they are there from here on.
    for name in ("cpu", "cpu", "gpu0", "fpga0"):
        first = daemon.client.submit(
            "synthetic", {"seconds": SECONDS["fast"]}, resources=[name]
        )
        daemon.await_state(first.id, "completed")
    daemon.client.policy(policy, **parameters)

    handles = [
        daemon.client.submit(
            "synthetic", {"seconds": SECONDS[label], "label": label}, deadline_s=2.0
        )
        for _ in range(20)
        for label in SECONDS
    ]
    infos = [daemon.await_state(handle.id, *ENDED) for handle in handles]

    completed = Counter(info.type for info in infos if info.state == "completed")
    used = {segment.resource for info in infos for segment in info.segments}
    assert {info.state for info in infos} <= {"completed", "dropped"}
    assert all(info.reason for info in infos if info.state == "dropped")
    assert min(completed[f"synthetic/{label}"] for label in SECONDS) >= 3
    assert used == {"cpu", "gpu0", "fpga0"}


def test_as_many_tasks_wait_for_a_resource_as_its_limit_says(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon(f"queue_limit = 1\n{SETTINGS}{RESOURCES}")
    daemon.client.policy("elare")
    held = {"seconds": {"gpu": 60.0}, "strips": 600}

    tasks = [daemon.client.submit("synthetic", held, deadline_s=600.0) for _ in "abcd"]
    daemon.await_state(tasks[0].id, "running")

    (gpu,) = [each for each in daemon.client.devices() if each.spec.name == "gpu0"]
    assert (gpu.running, gpu.queued) == ([tasks[0].id], 1)
    going = [daemon.client.explain(task.id).resource for task in tasks[1:]]
    assert going == ["gpu0", None, None]
