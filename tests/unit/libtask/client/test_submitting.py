"""What the client sends when it submits."""

from __future__ import annotations

import pickle
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hetapps.synthetic import Synthetic
from libtask.client.batches import BATCH
from libtask.client.client import Client
from libtask.errors import InputError, NotAllowedError
from libtask.messages import Control, Error, Submit, Submitted, TaskSpec
from libtask.task import Task
from unit.fake_daemon import FakeDaemon, a_change, a_task, specs

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_many_tasks_go_in_few_messages(client: Client, daemon: FakeDaemon) -> None:
    handles = client.submit_specs(specs(2 * BATCH + 1))

    assert [handle.id for handle in handles] == list(range(1, 2 * BATCH + 2))
    assert [len(each.tasks) for each in daemon.requests(Submit)] == [BATCH, BATCH, 1]


def test_large_descriptions_are_split_by_size(
    client: Client, daemon: FakeDaemon
) -> None:
    client.submit_specs(specs(20, params={"payload": b"x" * 100_000}))

    assert [len(each.tasks) for each in daemon.requests(Submit)] == [10, 10]


def test_references_reach_across_messages(client: Client, daemon: FakeDaemon) -> None:
    tasks = specs(BATCH)
    tasks += [TaskSpec("heat", after=[-1]), TaskSpec("heat", after=[-1, -2, 7])]

    client.submit_specs(tasks)

    sent = daemon.requests(Submit)[1].tasks
    assert [task.after for task in sent] == [[BATCH], [-1, BATCH, 7]]


def test_reference_before_the_first_task(client: Client) -> None:
    with pytest.raises(InputError, match="before the first"):
        client.submit_specs([TaskSpec("heat", after=[-1])])


def test_description_that_never_fits(client: Client) -> None:
    with pytest.raises(InputError, match="exceeds the limit"):
        client.submit_specs(specs(1, params={"payload": b"x" * 2_000_000}))


def test_launcher_is_started_before_the_first_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []
    fake = FakeDaemon(tmp_path / "s", launcher=False)
    launcher = SimpleNamespace(start_launcher=started.append)
    monkeypatch.setitem(sys.modules, "libtask.launcher.launcher", launcher)

    with Client(fake.path) as client:
        client.devices()
        assert started == []
        client.submit_specs(specs(1))
        client.submit_specs(specs(1))

    assert started == [fake.path]
    fake.close()


def test_many_threads_share_a_client(client: Client) -> None:
    found: list[int] = []

    def ask() -> None:
        for _ in range(20):
            found.extend(handle.id for handle in client.submit_specs(specs(1)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found) == list(range(1, 81))


def test_a_key_of_the_caller_is_that_of_the_message(
    client: Client, daemon: FakeDaemon
) -> None:
    (handle,) = client.submit_many([Synthetic({"cpu": 0.01})], key="job-17")
    client.submit_many([Synthetic({"cpu": 0.01})] * (BATCH + 1), key="many")

    keys = [message.key for message in daemon.requests(Submit)]
    assert keys == ["job-17", "many", "many/1"]
    assert not handle.known


def test_a_task_runs_in_the_folder_that_its_options_name(
    client: Client, daemon: FakeDaemon
) -> None:
    task = Synthetic(seconds={"cpu": 1.0})
    client.submit(task, cwd="/data")
    client.submit(task)

    sent = [each.tasks[0].cwd for each in daemon.requests(Submit)]
    assert sent == ["/data", str(Path.cwd())]


def test_too_long_a_key_is_refused_before_anything_is_sent(
    client: Client, daemon: FakeDaemon
) -> None:
    with pytest.raises(
        InputError, match="key: expected at most 120 characters, got 121"
    ):
        client.submit("synthetic", {"seconds": {"cpu": 0.01}}, key="k" * 121)

    assert not daemon.requests(Submit)


def test_a_task_that_hetd_knows_already_is_asked_for(
    client: Client, daemon: FakeDaemon
) -> None:
    """It may have ended, and then nothing is pushed any more."""
    daemon.tasks[1] = a_task(1, state="completed", result=7)
    daemon.answers[Submit] = lambda message: [
        Submitted(message.request, [1], known=True)
    ]

    handle = client.submit("synthetic", {"seconds": {"cpu": 0.01}}, key="job-17")

    assert handle.known
    assert handle.result(5) == 7


def test_map_makes_a_call_of_each_group_of_arguments(
    client: Client, daemon: FakeDaemon
) -> None:
    def not_here(*_: object) -> None:
        raise AssertionError("the function runs in the client")

    client.map(not_here, [1, 2], [3, 4])

    sent = daemon.requests(Submit)[0].tasks
    assert [(each.app, each.type) for each in sent] == [("call", "call/not_here")] * 2


@pytest.mark.parametrize("other", [3, None, Synthetic({"cpu": 0.01})])
def test_map_refuses_what_is_neither_application_nor_function(
    client: Client, other: Any
) -> None:
    with pytest.raises(InputError, match=r"the name or class .*, or a function; got"):
        client.map(other, [1])


@pytest.mark.parametrize("other", [3, None, ["heat"]])
def test_submit_refuses_what_is_neither_application_nor_function(
    client: Client, daemon: FakeDaemon, other: Any
) -> None:
    with pytest.raises(InputError, match="or a function; got"):
        client.submit(other)
    assert not daemon.requests(Submit)


@pytest.mark.parametrize("other", [abs, "synthetic", Synthetic])
def test_submit_many_refuses_what_is_no_task(
    client: Client, daemon: FakeDaemon, other: Any
) -> None:
    with pytest.raises(
        InputError, match=r"submit_many: expected tasks, got .* use map"
    ):
        client.submit_many([Synthetic({"cpu": 0.01}), other])
    assert not daemon.requests(Submit)


@pytest.mark.parametrize("params", [5, 0, "n=5", [("n", 5)]])
def test_parameters_of_an_application_are_a_map(client: Client, params: Any) -> None:
    with pytest.raises(InputError, match=r"as one map, such as \{'n': 1\}; got"):
        client.submit("synthetic", params)


# ------------------------------------------------------------ in batches


def plus(number: int) -> int:
    return number + 1


def test_the_first_batch_is_sent_before_all_arguments_are_taken(
    client: Client, daemon: FakeDaemon
) -> None:
    sent: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(2 * BATCH + 1):
            sent.append(len(daemon.requests(Submit)))
            yield number

    client.map(plus, numbers(), at_once=2, hold=True, key="study")

    assert sent == [0] * BATCH + [1] * BATCH + [2]
    messages = daemon.requests(Submit)
    assert [len(each.tasks) for each in messages] == [BATCH, BATCH, 1]
    assert [each.part_of for each in messages] == [0, 1, 1]
    tasks = [task for each in messages for task in each.tasks]
    assert {(task.hold, task.at_once) for task in tasks} == {(True, 2)}
    assert len({task.array for task in tasks} - {""}) == 1


def test_without_a_key_slow_arguments_are_not_waited_for(
    client: Client, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libtask.client.client.LINGER_S", 0.0)

    client.map(plus, [1, 2, 3])
    client.map(plus, [1, 2, 3], key="study")

    assert [len(each.tasks) for each in daemon.requests(Submit)] == [1, 1, 1, 3]


def test_submit_many_sends_as_it_takes_tasks(
    client: Client, daemon: FakeDaemon
) -> None:
    sent: list[int] = []

    def tasks() -> Iterator[Synthetic]:
        for _ in range(BATCH + 1):
            sent.append(len(daemon.requests(Submit)))
            yield Synthetic({"cpu": 0.01})

    handles = client.submit_many(tasks(), key="study")

    assert [handle.id for handle in handles] == list(range(1, BATCH + 2))
    assert sent == [0] * BATCH + [1]


@pytest.mark.usefixtures("full_batches")
def test_what_arguments_raise_cancels_the_tasks_before(
    client: Client, daemon: FakeDaemon
) -> None:
    def numbers() -> Iterator[int]:
        yield from range(BATCH)
        raise KeyError("the next one")

    with pytest.raises(KeyError, match="the next one") as caught:
        client.map(plus, numbers())

    (order,) = daemon.requests(Control)
    assert (order.verb, order.ids) == ("cancel", list(range(1, BATCH + 1)))
    assert caught.value.__notes__ == [
        f"{BATCH} tasks had been submitted before, and are cancelled"
    ]


@pytest.mark.usefixtures("full_batches")
def test_an_invalid_task_cancels_those_before(
    client: Client, daemon: FakeDaemon
) -> None:
    good = [Synthetic({"cpu": 0.01})] * (BATCH + 1)

    with pytest.raises(InputError, match="submit_many: expected tasks, got 3"):
        client.submit_many([*good, 3])  # type: ignore[list-item]  # that is the test

    (order,) = daemon.requests(Control)
    assert (order.verb, len(order.ids)) == ("cancel", BATCH)


def _refusing_the_second(daemon: FakeDaemon) -> None:
    def answer(message: Submit) -> list[Any]:
        if message.part_of:
            return [Error(message.request, NotAllowedError.code, "no room")]
        return [Submitted(message.request, list(range(1, BATCH + 1)))]

    daemon.answers[Submit] = answer


@pytest.mark.usefixtures("full_batches")
def test_a_refused_batch_cancels_those_before(
    client: Client, daemon: FakeDaemon
) -> None:
    _refusing_the_second(daemon)

    with pytest.raises(NotAllowedError, match="no room") as caught:
        client.map(plus, range(3 * BATCH))

    assert len(daemon.requests(Submit)) == 2
    (order,) = daemon.requests(Control)
    assert (order.verb, order.ids) == ("cancel", list(range(1, BATCH + 1)))
    assert caught.value.__notes__[0].endswith("and are cancelled")


def test_with_a_key_the_tasks_before_stay(client: Client, daemon: FakeDaemon) -> None:
    _refusing_the_second(daemon)

    with pytest.raises(NotAllowedError, match="no room") as caught:
        client.map(plus, range(BATCH + 1), key="study")

    assert not daemon.requests(Control)
    assert "and stay: repeat it with its key" in caught.value.__notes__[0]


def test_an_abandoned_map_is_cancelled_in_one_request(
    client: Client, daemon: FakeDaemon
) -> None:
    found = client.map(plus, [1, 2, 3])
    daemon.push(a_change(1, "completed", result=2))
    assert next(found) == 2

    found.close()  # type: ignore[attr-defined]  # a generator

    (order,) = daemon.requests(Control)
    assert (order.verb, order.ids) == ("cancel", [2, 3])


# ------------------------------------------------------------ functions without a name


def _payloads(daemon: FakeDaemon) -> list[bytes]:
    tasks = [task for each in daemon.requests(Submit) for task in each.tasks]
    return [task.params["payload"] for task in tasks]


def test_a_function_that_workers_cannot_import_is_pickled_once(
    client: Client, daemon: FakeDaemon
) -> None:
    class Counted:
        pickled = 0

        def __reduce__(self) -> tuple[Any, ...]:
            Counted.pickled += 1
            return int, ("10",)

    added = Counted()
    client.map(lambda number: number + added, [1, 2, 3])

    assert Counted.pickled == 1
    calls = [pickle.loads(each) for each in _payloads(daemon)]  # noqa: S301  ours
    assert [function(*given) for function, given, _ in calls] == [11, 12, 13]
    assert daemon.requests(Submit)[0].tasks[0].type == "call/<lambda>"


def test_a_function_that_holds_the_result_of_a_task_takes_it_each_time(
    client: Client, daemon: FakeDaemon
) -> None:
    base = client.submit("synthetic", {"seconds": {"cpu": 0.01}})

    client.map(lambda number: (number, base, "padding" * 60), [1, 2])

    sent = daemon.requests(Submit)[1].tasks
    assert [[each.task for each in task.inputs] for task in sent] == [[base.id]] * 2


def test_what_cannot_be_pickled_is_named(client: Client) -> None:
    lock = threading.Lock()

    with pytest.raises(TypeError, match="pickle") as caught:
        client.map(lambda number: (number, lock), [1])

    assert caught.value.__notes__[0].startswith("the function <lambda>")


def test_a_class_by_value_is_pickled_once_for_all_its_tasks(
    client: Client, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[type[Task]] = []

    def keep(app_class: type[Task], _socket: Path) -> str:
        kept.append(app_class)
        return "0" * 64

    monkeypatch.setattr("libtask.classes.keep_class", keep)

    @dataclass
    class Local(Task):
        n: int

    Local.on("cpu")(lambda *_: iter(()))
    client.map(Local, range(3))

    assert kept == [Local]
    sent = daemon.requests(Submit)[0].tasks
    assert [task.attachments[0] for task in sent] == ["0" * 64] * 3
