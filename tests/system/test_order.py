"""The order in which tasks run, what may be submitted, and where."""

from __future__ import annotations

import itertools
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from libtask import messages as m
from libtask.apps import Options, build, describe, resolve
from libtask.errors import InputError, NotFoundError, TaskFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon
    from system.tracing import Tracing

    Submit = Callable[..., Tracing]


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
            CancelledError,
            match=r"task \d+, which it comes after, ended as .*on purpose in save",
        ):
            task.handle.result(30)


def test_a_task_after_one_that_has_ended(trace: Submit) -> None:
    good, bad = trace(), trace(raise_in="run")
    good.check_completed()
    assert bad.handle.wait(30) == "failed"

    trace(after=[good.id]).check_completed()

    with pytest.raises(InputError) as refused:
        trace(after=[bad.id])
    said = str(refused.value)
    assert said.startswith(f"task {bad.id}, which it comes after, ended as failed: ")
    assert "on purpose in run" in said


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
