"""What users ask of their tasks, in every state that a task can be in."""

from __future__ import annotations

import itertools
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from libtask import messages as m
from libtask.apps import Options, build, describe, resolve
from libtask.errors import InputError, NotFoundError, TaskFailedError
from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client
    from system.private_daemon import PrivateDaemon
    from system.tracing import Tracing

    Submit = Callable[..., Tracing]

# ---------------------------------------------------------------- hold


def test_a_running_task_is_held_at_its_checkpoint_and_goes_on_from_there(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=10, resources=["cpu"])
    task.await_gate()

    daemon.client.hold(task.id)
    task.open_gate()
    info = daemon.await_state(task.id, "held")
    done = task.strips()
    daemon.client.release(task.id)

    task.check_completed()
    assert info.resource is None
    assert 11 <= len(done) < 20
    assert len(task.pids()) == 1


def test_a_release_before_the_checkpoint_lets_the_task_go_on(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=10)
    task.await_gate()

    daemon.client.hold(task.id)
    daemon.client.release(task.id)
    task.open_gate()

    task.check_completed()


def test_queued_and_waiting_tasks_start_only_after_their_release(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    tenant = trace(gate_at=5, resources=["gpu0"])
    tenant.await_gate()
    queued = trace(resources=["gpu0"])
    waiting = trace(after=[tenant.id], resources=["gpu0"])

    daemon.client.hold(queued.id, waiting.id)
    tenant.open_gate()
    tenant.check_completed()
    assert daemon.info(queued.id).state == "held"
    assert daemon.info(waiting.id).state == "held"
    daemon.client.release(queued.id, waiting.id)

    queued.check_completed()
    waiting.check_completed()


def test_a_task_released_before_its_dependency_ends_waits_for_it(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    first = trace(gate_at=5)
    second = trace(hold=True, after=[first.id])

    daemon.client.release(second.id)
    assert daemon.info(second.id).state == "waiting"
    first.open_gate()

    second.check_completed()


# ---------------------------------------------------------------- cancel


def test_a_running_task_is_cancelled_at_its_checkpoint(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=10, total_strips=2000)
    task.await_gate()
    (pid,) = task.pids()

    task.handle.cancel()
    task.open_gate()

    with pytest.raises(CancelledError, match="cancelled by its owner"):
        task.handle.result(30)
    assert len(task.strips()) < 2000
    assert pid in daemon.workers(), "its worker lives on"


def test_a_cancelled_task_that_reaches_no_checkpoint_is_killed(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=0)
    task.await_gate()
    (pid,) = task.pids()

    task.handle.cancel()

    with pytest.raises(CancelledError, match="cancelled by its owner"):
        task.handle.result(30)
    eventually(lambda: pid not in daemon.processes(), "the end of the worker")
    assert daemon.info(task.id).state == "cancelled"
    trace().check_completed()


def test_tasks_that_do_not_run_are_cancelled_at_once(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    tenant = trace(gate_at=5, resources=["gpu0"])
    tenant.await_gate()
    preempted = trace(gate_at=5, resources=["cpu"])
    preempted.await_gate()
    daemon.client.migrate(preempted.id, "gpu0")
    preempted.open_gate()
    daemon.await_state(preempted.id, "preempted")
    queued = trace(resources=["gpu0"])
    waiting = trace(after=[tenant.id])
    held = trace(hold=True)
    tasks = (preempted, queued, waiting, held)
    states = [daemon.info(task.id).state for task in tasks]
    assert states == ["preempted", "queued", "waiting", "held"]

    daemon.client.cancel(*(task.id for task in tasks))

    for task in tasks:
        assert task.handle.wait(30) == "cancelled"
    tenant.open_gate()
    tenant.check_completed()
    for task in (queued, waiting, held):
        assert task.strips() == []
    assert len(preempted.strips()) < 20


def test_cancelling_twice_or_too_late_changes_nothing(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=5)
    task.await_gate()
    done = trace()
    done.check_completed()

    assert daemon.client.cancel(task.id, done.id) == [task.id]
    daemon.client.cancel(task.id)

    assert task.handle.wait(30) == "cancelled"
    assert daemon.client.cancel(task.id) == []
    assert daemon.info(done.id).state == "completed"


def test_a_request_for_a_task_that_is_not_there_changes_nothing(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=5)
    task.await_gate()

    with pytest.raises(NotFoundError, match="no task 987654321"):
        daemon.client.cancel(task.id, 987654321)
    task.open_gate()

    task.check_completed()


# ---------------------------------------------------------------- order


def test_tasks_run_after_those_they_depend_on(trace: Submit) -> None:
    first = trace(gate_at=5)
    second = trace(after=[first.id])
    third = trace(after=[first.id, second.id])
    assert [task.handle.info().state for task in (second, third)] == ["waiting"] * 2

    first.open_gate()
    third.check_completed()

    infos = [task.handle.info() for task in (first, second, third)]
    for before, after in itertools.pairwise(infos):
        assert before.finished is not None
        assert after.started is not None
        assert before.finished <= after.started


def test_tasks_after_a_failed_one_are_cancelled(trace: Submit) -> None:
    first = trace(gate_at=0, raise_in="save")
    second = trace(after=[first.id])
    third = trace(after=[second.id])

    first.open_gate()

    with pytest.raises(TaskFailedError, match="on purpose in save"):
        first.handle.result(30)
    for task in (second, third):
        with pytest.raises(
            CancelledError, match=r"task \d+, which it comes after, ended as"
        ):
            task.handle.result(30)


def test_a_task_after_one_that_has_ended(trace: Submit) -> None:
    good, bad = trace(), trace(raise_in="run")
    good.check_completed()
    assert bad.handle.wait(30) == "failed"

    trace(after=[good.id]).check_completed()

    with pytest.raises(InputError, match=f"task {bad.id}, which it comes after"):
        trace(after=[bad.id])


def test_negative_numbers_count_back_within_a_submit(daemon: PrivateDaemon) -> None:
    chain = [_synthetic(after=(-1,) if k else ()) for k in range(4)]

    handles = daemon.client.submit_specs(chain)

    for handle in handles:
        assert handle.result(30)["strips"] == 2
    infos = [handle.info() for handle in handles]
    assert [info.after for info in infos] == [[], *([h.id] for h in handles[:-1])]
    with pytest.raises(InputError, match="-1 is before the first"):
        daemon.client.submit_specs([_synthetic(after=(-1,))])


def test_higher_priorities_run_first_then_earlier_tasks(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    tenant = trace(gate_at=0, resources=["gpu0"])
    tenant.await_gate()

    tasks = [trace(priority=p, resources=["gpu0"]) for p in (0, 5, -3, 5, 0)]
    tenant.open_gate()

    for task in tasks:
        task.check_completed()
    started = [daemon.info(task.id).started or 0.0 for task in tasks]
    order = sorted(range(5), key=started.__getitem__)
    assert order == [1, 3, 0, 4, 2]


def _synthetic(**options: tuple[int, ...]) -> m.TaskSpec:
    task = build(resolve("synthetic"), {"seconds": {"cpu": 0.002}, "strips": 2})
    return describe(task, "synthetic", Options(**options))  # type: ignore[arg-type]  # only `after` is given


# ---------------------------------------------------------------- submission


def test_the_same_key_gives_the_same_tasks(daemon: PrivateDaemon) -> None:
    def submit(key: str) -> list[int]:
        specs = [_synthetic(), _synthetic()]
        message = m.Submit(request=0, tasks=specs, key=key)
        ids: list[int] = daemon.client._session.request(message).ids
        return ids

    first = submit("the-same")

    assert submit("the-same") == first
    assert set(submit("another")).isdisjoint(first)


def test_resources_limit_where_a_task_runs(trace: Submit) -> None:
    tasks = [trace(resources=["fpga0"]) for _ in range(3)]

    for task in tasks:
        task.check_completed()
        assert task.resources() == ["fpga0"]


def test_what_can_never_run_is_refused(daemon: PrivateDaemon, trace: Submit) -> None:
    before = len(daemon.client.tasks())

    with pytest.raises(NotFoundError, match=r"no resource 'fpga9'.*'fpga0'"):
        trace(resources=["fpga9"])
    with pytest.raises(InputError, match=r"cannot run on fpga0: .*for gpu; this node"):
        trace(only="gpu", resources=["fpga0"])
    with pytest.raises(InputError, match="no task 987654321"):
        trace(after=[987654321])

    assert len(daemon.client.tasks()) == before


def test_a_kind_that_the_node_lacks_is_refused(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon('[[resource]]\nname = "cpu"\nkind = "cpu"\n')

    with pytest.raises(InputError, match=r"for gpu; this node has cpu \(cpu\)"):
        daemon.client.submit("synthetic", {"seconds": {"gpu": 1.0}})


# ---------------------------------------------------------------- the node


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
