"""Calls through `Client.executor()`, run by a scripted daemon in this process."""

from __future__ import annotations

import asyncio
import errno
import itertools
import signal
import stat
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from libtask.apps import build, resolve
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.client.batches import BATCH
from libtask.client.call import INLINE, Call, current_device
from libtask.client.client import Client
from libtask.devices.residents import ResultsOnHost
from libtask.errors import HetError, InputError, NotAllowedError, RemoteTraceback
from libtask.messages import (
    CheckpointRecord,
    Control,
    DeviceSpec,
    Error,
    ListTasks,
    Message,
    Submit,
    Submitted,
    TaskSpec,
)
from system.private_daemon import PATIENCE, eventually
from unit.fake_daemon import FakeDaemon, a_change, a_task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.client.executor import TaskExecutor


class Device(ResultsOnHost):
    spec = DeviceSpec("cpu", "cpu")


def executed(spec: TaskSpec, number: int) -> Message:
    """Do what a worker does."""
    task = build(resolve(spec.app), spec.params)
    checkpoint = Checkpoint(CheckpointRecord(0, task.total()), StripSizer(1))
    try:
        task.load()
        list(task.implementations["cpu"](task, Device(), checkpoint))
        return a_change(number, "completed", result=task.save(checkpoint))
    except Exception as error:  # noqa: BLE001  as a worker does
        return a_change(number, "failed", reason=f"{type(error).__name__}: {error}")


def run_all(message: Submit) -> list[Message]:
    ids = list(range(1, len(message.tasks) + 1))
    changes = [
        executed(spec, number) for number, spec in zip(ids, message.tasks, strict=True)
    ]
    return [Submitted(message.request, ids), *changes]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    fake = FakeDaemon(tmp_path / "s")
    fake.answers[Submit] = run_all
    yield fake
    fake.close()


@pytest.fixture
def executor(daemon: FakeDaemon) -> Iterator[TaskExecutor]:
    with Client(daemon.path) as client, client.executor() as made:
        yield made


def files(folder: Path) -> list[Path]:
    return list((folder / "hetd" / "calls").glob("*"))


def test_value_comes_back(executor: TaskExecutor) -> None:
    assert executor.submit(divmod, 7, 2).result(5) == (3, 1)
    assert executor.submit(sorted, [1, 2], reverse=True).result(5) == [2, 1]


def test_closures_and_lambdas_travel(executor: TaskExecutor) -> None:
    offset = 10
    assert list(executor.map(lambda x, y: x * y + offset, [1, 2, 3], [4, 5])) == [
        14,
        20,
    ]


def test_map_goes_in_one_message(executor: TaskExecutor, daemon: FakeDaemon) -> None:
    assert list(executor.map(str, range(100))) == [str(number) for number in range(100)]
    assert len(daemon.requests(Submit)) == 1


def test_a_long_map_goes_in_few_messages_while_the_rest_is_described(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    numbers = itertools.count(1)

    def accept(message: Submit) -> list[Message]:
        ids = [next(numbers) for _ in message.tasks]
        ended = map(executed, message.tasks, ids)
        return [Submitted(message.request, ids), *ended]

    daemon.answers[Submit] = accept

    def described() -> Iterator[int]:
        yield from range(BATCH)
        eventually(lambda: daemon.requests(Submit), "the first calls in a submit")
        yield BATCH

    assert list(executor.map(abs, described())) == list(range(BATCH + 1))
    assert len(daemon.requests(Submit)) == 2


def test_chunks_of_calls_are_one_task_each(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    def plus(x: int, y: int) -> int:
        return x + y

    found = executor.map(plus, range(10), itertools.count(100), chunksize=4)

    assert list(found) == list(range(100, 120, 2))
    (message,) = daemon.requests(Submit)
    assert [each.work for each in message.tasks] == [4.0, 4.0, 2.0]
    assert {each.type for each in message.tasks} == {"call/plus"}


def test_a_chunk_takes_values_of_other_calls(executor: TaskExecutor) -> None:
    before = [executor.submit(abs, -number) for number in range(5)]
    for each in before:
        each.result(5)

    assert list(executor.map(str, before, chunksize=3)) == list("01234")


def test_a_call_that_raises_ends_its_chunk(executor: TaskExecutor) -> None:
    found = executor.map(int, ["1", "2", "3", "four", "5"], chunksize=2)

    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(ValueError, match="'four'"):
        next(found)


def test_a_map_takes_no_more_arguments_than_its_buffer_holds(
    executor: TaskExecutor,
) -> None:
    taken = itertools.count()

    found = executor.map(abs, taken, buffersize=3)

    first = next(taken)
    values = [next(found) for _ in range(10)]
    assert first == 3
    assert values == [0, 1, 2, *range(4, 11)]
    assert next(taken) == 14

    chunks = executor.map(abs, iter(range(10)), chunksize=2, buffersize=2)
    assert list(chunks) == list(range(10))


def test_a_buffer_holds_at_least_one_call(executor: TaskExecutor) -> None:
    with pytest.raises(ValueError, match="buffersize must be None or > 0"):
        executor.map(abs, [1], buffersize=0)


def test_a_chunk_has_at_least_one_call(executor: TaskExecutor) -> None:
    with pytest.raises(ValueError, match="chunksize must be >= 1"):
        executor.map(abs, [1], chunksize=0)


def test_an_argument_in_a_chunk_that_cannot_be_pickled_is_named(
    executor: TaskExecutor,
) -> None:
    with pytest.raises(TypeError) as raised:
        executor.map(divmod, [1, 2], [1, threading.Lock()], chunksize=4)

    (note,) = raised.value.__notes__
    assert "argument 2 of divmod, a lock, cannot be pickled" in note


def test_the_time_for_values_counts_from_the_call(
    executor: TaskExecutor, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    timer = SimpleNamespace(monotonic=lambda: clock[0])
    for module in ("executor", "call"):
        monkeypatch.setattr(f"libtask.client.{module}.time", timer)
    held = HeldBack(daemon)

    found = executor.map(abs, [1], timeout=50)
    clock[0] = 51.0
    released = threading.Timer(0.5, held.release)
    released.start()

    with pytest.raises(TimeoutError):
        next(found)
    released.join()


def test_large_payload_and_result_go_through_private_files(
    executor: TaskExecutor, daemon: FakeDaemon, tmp_path: Path
) -> None:
    modes: list[int] = []

    def look_and_run(message: Submit) -> list[Message]:
        modes.extend(stat.S_IMODE(each.stat().st_mode) for each in files(tmp_path))
        return run_all(message)

    daemon.answers[Submit] = look_and_run
    data = b"x" * (INLINE + 1)

    assert executor.submit(bytes.upper, data).result(5) == data.upper()
    executor.shutdown()
    assert modes == [0o600]
    assert files(tmp_path) == []


def test_a_large_payload_without_room_names_the_folder(
    executor: TaskExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("libtask.client.call.write_private", fail)

    text = f"^{tmp_path}/hetd/calls: cannot store the task there: No space left on "
    with pytest.raises(HetError, match=text):
        executor.submit(bytes.upper, b"x" * (INLINE + 1))
    assert executor.submit(abs, -1).result(5) == 1


def test_exception_comes_back_with_the_remote_traceback(
    executor: TaskExecutor, tmp_path: Path
) -> None:
    error = executor.submit({"a": 1}.pop, "absent").exception(5)

    assert isinstance(error, KeyError)
    assert error.args == ("absent",)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in run" in str(error.__cause__)
    executor.shutdown()
    assert files(tmp_path) == []


def test_exception_that_cannot_be_unpickled(executor: TaskExecutor) -> None:
    class OddError(Exception):
        def __init__(self, first: int, second: int) -> None:
            super().__init__(f"{first} {second}")

    def fail() -> None:
        raise OddError(1, 2)

    assert "OddError: 1 2" in str(executor.submit(fail).exception(5))


def iter_forever() -> Any:
    return (number for number in [1])


def test_result_that_cannot_be_pickled(executor: TaskExecutor) -> None:
    text = (
        "the result, a generator, cannot be pickled: cannot pickle 'generator' object"
    )
    with pytest.raises(InputError, match=f"^{text}$"):
        executor.submit(iter_forever).result(5)


async def halved(number: int) -> float:
    await asyncio.sleep(0)
    return number / 2


def test_a_coroutine_function_is_run(executor: TaskExecutor) -> None:
    function: Any = halved
    assert executor.submit(function, 3).result(5) == 1.5
    assert list(executor.map(function, range(4), chunksize=2)) == [0, 0.5, 1, 1.5]


def test_an_argument_that_cannot_be_pickled_is_named(executor: TaskExecutor) -> None:
    def take(*_values: Any, **_named: Any) -> None:
        """Take anything."""

    with pytest.raises(TypeError, match="cannot pickle") as caught:
        executor.submit(take, 1, [2], threading.Lock(), four=[threading.Lock()])

    reason = "cannot be pickled: cannot pickle '_thread.lock' object"
    assert caught.value.__notes__ == [
        f"argument 3 of take, a lock, {reason}",
        f"argument four of take, a list, {reason}",
    ]


def test_calls_of_a_map_that_fails_leave_nothing_behind(
    executor: TaskExecutor, daemon: FakeDaemon, tmp_path: Path
) -> None:
    """Neither their files, nor a claim to the result that they would have taken."""
    large = b"x" * (INLINE + 1)
    hold = threading.Event()
    answer = daemon.answers[Submit]

    def wait_and_run(message: Submit) -> list[Message]:
        hold.wait(10)
        return answer(message)

    daemon.answers[Submit] = wait_and_run
    call: Any = executor.submit(bytes.upper, large)
    with pytest.raises(TypeError, match="cannot pickle"):
        executor.map(
            lambda *_: None,
            [large, large, large],
            [call, call, call],
            [1, 2, threading.Lock()],
        )
    left = files(tmp_path)
    hold.set()
    assert call.result(10) == large.upper()
    executor.shutdown()

    assert left == [call.task.file("call")]
    assert files(tmp_path) == []


def test_pending_call_can_be_cancelled(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    daemon.answers[Submit] = lambda message: [Submitted(message.request, [1])]
    daemon.tasks[1] = a_task(1, state="queued")
    future: Any = executor.submit(str, 1)
    eventually(lambda: future.handle, "a submitted call")

    assert future.cancel()
    assert future.cancelled()
    daemon.push(a_change(1, "cancelled"))
    assert wait([future], timeout=5).done == {future}
    assert daemon.requests(Control)[0].verb == "cancel"


def test_running_call_cannot_be_cancelled(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    daemon.answers[Submit] = lambda message: [Submitted(message.request, [1])]
    daemon.tasks[1] = a_task(1, state="running")
    future = executor.submit(str, 1)

    eventually(future.running, "a call that runs")
    assert not future.cancel()
    daemon.push(a_change(1, "failed", reason="gone"))
    assert "gone" in str(future.exception(5))


def cancelled(daemon: FakeDaemon) -> list[int]:
    """List the tasks that were cancelled, in some pages of ids at most."""
    orders = daemon.requests(Control)
    assert {each.verb for each in orders} <= {"cancel"}
    assert len(orders) + len(daemon.requests(ListTasks)) < 10
    return sorted(number for each in orders for number in each.ids)


def test_calls_of_a_map_that_is_given_up_are_cancelled_in_few_requests(
    daemon: FakeDaemon,
) -> None:
    del daemon.answers[Submit]
    with Client(daemon.path) as client:
        executor = client.executor()
        found = executor.map(str, range(600), timeout=0.0)
        last: Any = executor.submit(str, 601)
        eventually(lambda: last.handle, "all submitted")
        daemon.tasks[600] = a_task(600, state="running")

        with pytest.raises(TimeoutError):
            next(found)

        eventually(lambda: daemon.requests(Control), "cancelled")
        assert cancelled(daemon) == list(range(1, 600))
        daemon.push(*(a_change(number, "cancelled") for number in range(1, 602)))
        executor.shutdown()


def test_shutdown_cancels_what_does_not_run_in_few_requests(
    daemon: FakeDaemon,
) -> None:
    del daemon.answers[Submit]
    with Client(daemon.path) as client:
        executor = client.executor()
        futures: list[Any] = [executor.submit(str, each) for each in range(100)]
        eventually(lambda: futures[-1].handle, "all submitted")
        daemon.tasks[7] = a_task(7, state="running")

        executor.shutdown(wait=False, cancel_futures=True)

        others = [number for number in range(1, 101) if number != 7]
        assert cancelled(daemon) == others
        running = [each for each in futures if each.running()]
        assert [each.handle.id for each in running] == [7]
        daemon.push(*(a_change(number, "cancelled") for number in range(1, 101)))
        executor.shutdown()


def interrupted(executor: TaskExecutor, daemon: FakeDaemon, where: str) -> list[Any]:
    """Leave the block of an executor, one of whose calls runs, by Ctrl-C; return the calls."""
    futures: list[Any] = []
    with suppress(KeyboardInterrupt), executor:
        futures += [executor.submit(str, each) for each in range(100)]
        eventually(lambda: futures[-1].handle, "all submitted")
        daemon.tasks[7] = a_task(7, state="running")
        assert futures[6].running()
        if where == "in the block":
            raise KeyboardInterrupt
        main = threading.get_ident()
        threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT]).start()
    return futures


@pytest.mark.parametrize("where", ["in the block", "at its end"])
def test_ctrl_c_cancels_all_calls_also_those_that_run(
    daemon: FakeDaemon, where: str
) -> None:
    del daemon.answers[Submit]
    with Client(daemon.path) as client:
        futures = interrupted(client.executor(), daemon, where)

        assert cancelled(daemon) == list(range(1, 101))
        daemon.push(*(a_change(number, "cancelled") for number in range(1, 101)))
        for future in futures:
            with pytest.raises(CancelledError):
                future.result(PATIENCE)


class HeldBack:
    """Answers of a daemon that takes its time: submits wait until `release`."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._answer = daemon.answers[Submit]
        self._released = threading.Event()
        self.submits: list[Submit] = []
        daemon.answers[Submit] = self._wait

    def _wait(self, message: Submit) -> list[Message]:
        self.submits.append(message)
        self._released.wait(10)
        return self._answer(message)

    def await_first(self) -> None:
        eventually(lambda: self.submits, "a submit")

    def release(self) -> None:
        self._released.set()

    @property
    def sizes(self) -> list[int]:
        return [len(each.tasks) for each in self.submits]


def test_calls_that_come_while_others_are_submitted_go_in_one_message(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    held = HeldBack(daemon)
    first = executor.submit(abs, -1)
    held.await_first()

    others = [executor.submit(abs, -number) for number in range(20)]
    held.release()

    assert first.result(5) == 1
    assert [each.result(5) for each in others] == list(range(20))
    assert held.sizes == [1, 20]


def test_arguments_are_not_kept_until_the_call_ends(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    daemon.answers[Submit] = lambda message: [Submitted(message.request, [1])]

    future: Any = executor.submit(len, bytes(INLINE // 2))
    eventually(lambda: future.handle, "a submitted call")

    assert (future.spec, future.task.payload) == (None, b"")
    daemon.push(a_change(1, "failed", reason="gone"))
    future.exception(5)


def test_a_call_cancelled_while_others_are_submitted_is_never_submitted(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    held = HeldBack(daemon)
    first = executor.submit(abs, -1)
    held.await_first()

    second, third = executor.submit(abs, -2), executor.submit(abs, -3)
    assert second.cancel()
    held.release()

    assert wait([first, second, third], timeout=5).not_done == set()
    assert third.result() == 3
    assert held.sizes == [1, 1]


def test_a_refusal_reaches_the_futures_of_its_message_only(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    answer = daemon.answers[Submit]
    daemon.answers[Submit] = lambda message: [
        Error(message.request, "not-allowed", "too many tasks")
    ]
    refused = executor.submit(abs, -1)

    with pytest.raises(NotAllowedError, match="too many tasks"):
        refused.result(5)
    daemon.answers[Submit] = answer
    assert executor.submit(abs, -2).result(5) == 2


def test_each_call_of_a_refused_message_raises_an_error_of_its_own(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    daemon.answers[Submit] = lambda message: [
        Error(message.request, "not-allowed", "too many tasks")
    ]
    refused = [executor.submit(abs, -number) for number in range(20)]

    errors = [each.exception(5) for each in refused]

    assert {type(error) for error in errors} == {NotAllowedError}
    assert len({id(error) for error in errors}) == len(errors)


def test_a_call_that_takes_the_value_of_a_refused_one_is_not_submitted(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    hold = threading.Event()

    def refuse(message: Submit) -> list[Message]:
        hold.wait(10)
        return [Error(message.request, "not-allowed", "too many tasks")]

    daemon.answers[Submit] = refuse
    refused: Any = executor.submit(abs, -1)
    follower = executor.submit(abs, refused)
    hold.set()

    with pytest.raises(CancelledError, match="was not submitted"):
        follower.result(5)
    assert len(daemon.requests(Submit)) == 1


def test_calls_belong_to_the_job_in_which_they_were_made(daemon: FakeDaemon) -> None:
    held = HeldBack(daemon)
    with Client(daemon.path) as client, client.executor() as executor:
        futures: list[Any] = [executor.submit(abs, 0)]
        held.await_first()
        with client.graph("first"):
            futures.append(executor.submit(abs, 1))
            futures.append(executor.submit(abs, futures[0]))  # it waits for that one
        futures.append(executor.submit(abs, 3))
        held.release()
        wait(futures, timeout=5)

    jobs = [spec.job for each in held.submits for spec in each.tasks]
    assert jobs[0] == ""
    assert sorted(jobs[1:]) == ["", "first", "first"]


def test_calls_run_in_the_folder_in_which_they_were_made(
    executor: TaskExecutor,
    daemon: FakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = HeldBack(daemon)
    before = str(Path.cwd())
    first = executor.submit(abs, -1)
    held.await_first()
    second = executor.submit(abs, -2)
    monkeypatch.chdir(tmp_path)
    third = executor.submit(abs, -3)
    held.release()

    assert [each.result(5) for each in (first, second, third)] == [1, 2, 3]
    folders = [spec.cwd for each in held.submits for spec in each.tasks]
    assert folders == [before, before, str(tmp_path)]


def test_an_invalid_call_is_refused_at_once(
    executor: TaskExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    with pytest.raises(InputError, match="the current folder was removed"):
        executor.submit(abs, -1)
    monkeypatch.undo()
    executor.shutdown()


def test_a_future_is_an_input_of_another_task_as_soon_as_it_is_submitted(
    executor: TaskExecutor, daemon: FakeDaemon
) -> None:
    held = HeldBack(daemon)
    future: Any = executor.submit(abs, -1)
    held.await_first()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: future.input_id)
        assert not reading.done()
        held.release()

        assert reading.result(5) == future.handle.id


def test_no_more_calls_than_workers_are_submitted_at_once(daemon: FakeDaemon) -> None:
    numbers = itertools.count(1)
    submitted: list[int] = []

    def accept(message: Submit) -> list[Message]:
        ids = [next(numbers) for _ in message.tasks]
        submitted.extend(ids)
        return [Submitted(message.request, ids)]

    daemon.answers[Submit] = accept
    with Client(daemon.path) as client, client.executor(max_workers=2) as executor:
        futures = [executor.submit(abs, -number) for number in range(1, 6)]
        for ended in range(1, 6):
            eventually(partial(submitted.__contains__, ended), "the next call")
            assert len(submitted) <= ended + 1
            daemon.push(a_change(ended, "failed", reason="over"))
            assert "over" in str(futures[ended - 1].exception(5))


def test_callback_may_submit_more(executor: TaskExecutor) -> None:
    second: Future[Future[int]] = Future()

    def more(done: Future[int]) -> None:
        second.set_result(executor.submit(abs, -done.result()))

    executor.submit(abs, -3).add_done_callback(more)

    assert second.result(5).result(5) == 3


def test_no_call_after_shutdown(executor: TaskExecutor) -> None:
    executor.shutdown()

    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_call_runs_only_on_its_kind() -> None:
    assert Call("f", kind="gpu").kinds() == ["gpu"]


def test_current_device(executor: TaskExecutor) -> None:
    def name() -> str:
        return current_device().spec.name

    assert executor.submit(name).result(5) == "cpu"
    with pytest.raises(InputError):
        current_device()


def test_an_unknown_kind_is_refused_at_once(daemon: FakeDaemon) -> None:
    wrong: Any = "nope"
    refused = pytest.raises(InputError, match=r"kind: expected one of 'cpu', .* 'nope'")
    with Client(daemon.path) as client, refused:
        client.executor(wrong)
