"""What the client sends when it submits."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hetapps.synthetic import Synthetic
from libtask.client.client import BATCH, Client
from libtask.errors import InputError
from libtask.messages import Submit, Submitted, TaskSpec
from unit.fake_daemon import FakeDaemon, a_task, specs


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
