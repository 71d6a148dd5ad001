"""What the client sends when it submits."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import BATCH, Client
from libtask.errors import InputError
from libtask.messages import Submit, TaskSpec
from unit.fake_daemon import FakeDaemon, specs

if TYPE_CHECKING:
    from pathlib import Path


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
