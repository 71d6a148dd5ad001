"""The scheduler's record of a task is what the store holds of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from hetd.store import Batch
from hetd.store.schema import with_runtime
from hetd.tasks.page import TaskPage, decode, encode
from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.tasks import Cancel, Hold, State, TaskRecord, TaskRuntime
from libtask import messages as m
from unit.daemon_shell import USER, Shell, a_spec

if TYPE_CHECKING:
    from pathlib import Path


def _stored(shell: Shell, task: int) -> TaskRuntime:
    """Commit; return what the next start would read of a task."""
    shell.commit()
    encoded = shell.store.task(task)
    assert encoded is not None
    return decode(encoded).runtime


def _running(shell: Shell) -> int:
    shell.worker("w")
    (task,) = shell.submit(a_spec(kinds=["cpu"]))
    shell.commit()
    return task


def test_a_page_holds_the_record_of_the_scheduler_until_the_task_ends(
    shell: Shell,
) -> None:
    task = _running(shell)
    page = shell.journal.live[task]

    assert page.runtime is shell.runtime.scheduler.system.tasks[TaskId(task)]

    shell.finish("w", shell.run_of("w"))

    assert type(page.runtime) is TaskRuntime
    assert page.state == "completed"


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        (e.TaskCancelled(TaskId(1), "no more"), Cancel("no more")),
        (e.TaskHeld(TaskId(1)), Hold(yields=True)),
    ],
    ids=["cancel", "hold"],
)
def test_a_request_for_a_running_task_is_stored_whoever_dispatches_it(
    shell: Shell, event: e.Event, wanted: Cancel | Hold
) -> None:
    task = _running(shell)

    shell.runtime.dispatch(event)

    assert _stored(shell, task).intent == wanted


def test_where_a_running_task_was_moved_to_is_stored(shell: Shell) -> None:
    shell.worker("w")
    (task,) = shell.submit(a_spec())
    shell.commit()
    there = shell.journal.live[task].resource
    elsewhere = "cpu" if there != "cpu" else "gpu0"

    shell.runtime.dispatch(e.TaskMoved(TaskId(task), elsewhere))

    assert _stored(shell, task).pinned == elsewhere
    info = shell.journal.live[task].info(detail=False)
    assert (info.resource, info.destination) == (there, elsewhere)


def test_a_failure_to_load_a_held_task_is_stored(shell: Shell) -> None:
    task = _running(shell)
    system = shell.runtime.scheduler.system
    epoch = system.tasks[TaskId(task)].epoch
    shell.runtime.dispatch(e.TaskHeld(TaskId(task)))
    shell.runtime.dispatch(e.TaskYielded(TaskId(task), epoch, 0.5))
    assert _stored(shell, task).in_worker

    shell.runtime.dispatch(e.TaskFailed(TaskId(task), epoch, "it does not load"))

    assert not _stored(shell, task).in_worker


def test_only_the_durable_fields_of_a_live_record_are_encoded() -> None:
    submitted: Any = None
    row: Any = None
    record = TaskRecord(
        State.RUNNING,
        "cpu",
        7,
        id=TaskId(1),
        row=row,
        submitted=submitted,
        arrival=0,
        sequence=1,
        rule="x",
    )
    page = TaskPage(1, USER, a_spec(), 1.0, record)

    plain = msgspec.msgpack.decode(encode(page))["runtime"]

    assert plain == {"state": "running", "resource": "cpu", "epoch": 7}
    assert page.runtime is record


def test_a_record_of_which_nothing_is_known_stores_nothing() -> None:
    assert msgspec.to_builtins(TaskRuntime()) == {}


# ---------------------------------------------------------------- damage


def test_an_invalid_record_costs_its_task_alone(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    first, second, last = shell.submit(*[a_spec(hold=True)] * 3)
    (after,) = shell.submit(a_spec(after=[second]))
    shell.commit()
    page = msgspec.msgpack.decode(shell.store.task(second) or b"")
    page["runtime"]["state"] = "no such state"
    batch = Batch(tasks=[(second, 0, msgspec.msgpack.encode(page), USER)])
    shell.store.submit(batch)
    shell.store.flush()
    shell.close()

    again = Shell(tmp_path)
    again.runtime.restore()
    again.commit()

    assert [again.state(task) for task in (first, last)] == ["held", "held"]
    failed = again.journal.find(second)
    assert failed is not None
    assert (failed.state, failed.spec.hold) == ("failed", True)
    assert "what is stored of it is invalid" in (failed.reason or "")
    assert again.state(after) == "cancelled"
    again.close()
    third = Shell(tmp_path)
    third.runtime.restore()
    assert third.state(second) == "failed"
    assert list(third.journal.live) == [first, last]
    third.close()


@pytest.mark.parametrize("app", ["app", 5])
def test_an_invalid_specification_costs_its_task_alone(
    tmp_path: Path, app: object
) -> None:
    shell = Shell(tmp_path)
    first, second = shell.submit(*[a_spec(hold=True)] * 2)
    shell.commit()
    page = msgspec.msgpack.decode(shell.store.task(first) or b"")
    page["spec"].update(kinds=5, app=app)
    shell.store.submit(Batch(tasks=[(first, 0, msgspec.msgpack.encode(page), USER)]))
    shell.store.flush()
    shell.close()

    again = Shell(tmp_path)
    again.runtime.restore()

    assert [again.state(task) for task in (first, second)] == ["failed", "held"]
    failed = again.journal.find(first)
    assert failed is not None
    assert failed.spec.app == (app if app == "app" else "unknown")
    again.close()


def test_an_invalid_page_of_an_ended_task_does_not_end_listings(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    first, second, last = shell.submit(*[a_spec(hold=True)] * 3)
    shell.commit()
    shell.ask(m.Control(1, "cancel", [second]))
    shell.commit()
    page = msgspec.msgpack.decode(shell.store.task(second) or b"")
    page["segments"] = [{"resource": "cpu", "start": 1.0, "rule": 5}]
    stored = msgspec.msgpack.encode(page)
    batch = Batch(tasks=[(second, int(page["finished"]), stored, USER)])
    shell.store.submit(batch)
    shell.store.flush()
    shell.close()

    again = Shell(tmp_path)
    again.runtime.restore()
    again.commit()

    listed = {each.id: each for each in again.ask(m.ListTasks(2)).tasks}
    assert sorted(listed) == [first, second, last]
    assert listed[second].state == "failed"
    assert listed[second].finished == page["finished"]
    assert "what is stored of it is invalid" in (listed[second].reason or "")
    again.ask(m.DeleteTasks(3, [second]))
    again.commit()
    assert again.journal.find(second) is None
    again.close()


# ---------------------------------------------------------------- pages of schema 6


def _taken_over(**fields: Any) -> TaskRuntime:
    spec = msgspec.to_builtins(a_spec())
    old = {"id": 1, "owner": USER, "spec": spec, "submitted": 1.0, **fields}
    return decode(with_runtime(msgspec.msgpack.encode(old))).runtime


OPEN: dict[str, Any] = {"resource": "cpu", "start": 2.0, "computing": 3.0}


def test_what_ran_is_taken_over_with_its_worker_and_progress() -> None:
    found = _taken_over(
        state="running",
        resource="cpu",
        epoch=7,
        segments=[OPEN],
        checkpoint={"done": 6, "total": 8},
        snapshot={"done": 2, "total": 8},
        attempts=1,
        excluded=["gpu0"],
        failures={"gpu0": "x"},
        pinned="cpu",
    )

    assert found == TaskRuntime(
        State.RUNNING,
        "cpu",
        7,
        bound=True,
        pinned="cpu",
        excluded=frozenset({"gpu0"}),
        failures={"gpu0": "x"},
        checkpointed=True,
        progress=0.75,
        kept=0.25,
        furthest=0.75,
        attempts=1,
    )


@pytest.mark.parametrize(
    ("old", "wanted"),
    [
        ({"holding": True}, Hold()),
        ({"holding": True, "requeuing": True}, Hold(requeue=True)),
        ({"cancelling": ""}, Cancel("")),
        ({"cancelling": "why", "holding": True}, Cancel("why")),
        ({}, None),
    ],
)
def test_what_was_wanted_of_a_task_is_taken_over(
    old: dict[str, Any], wanted: Cancel | Hold | None
) -> None:
    found = _taken_over(state="running", resource="cpu", segments=[OPEN], **old)

    assert found.intent == wanted


def test_a_task_behind_others_is_taken_over_without_its_worker() -> None:
    found = _taken_over(state="running", resource="cpu", epoch=7)

    assert (found.runs, found.in_worker, found.epoch) == (False, False, 7)


def test_a_task_that_waits_in_its_worker_is_taken_over_with_it() -> None:
    found = _taken_over(state="held", epoch=7, in_worker=True)

    assert (found.state, found.in_worker) == (State.HELD, True)


def test_an_illegible_page_is_left_as_it_is() -> None:
    assert with_runtime(b"\xc1") == b"\xc1"
    assert with_runtime(b"\x93\x01\x02\x03") == b"\x93\x01\x02\x03"
