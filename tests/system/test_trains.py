"""Trains: workers that have several short tasks are lost, and no task is, or blamed for another."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from libtask.apps import Options, describe
from libtask.errors import TaskFailedError
from system import noting
from system.private_daemon import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]

TASKS = 400
LONGEST = 16
SLOTS = 2


def submitted(
    daemon: PrivateDaemon, file: Path, kills_at: int = -1
) -> list[TaskHandle]:
    """Submit tasks of which it is known that they are short."""
    name = f"{noting.__file__}:Noting"

    def specs(count: int, first: int) -> list[TaskHandle]:
        tasks = [noting.Noting(first + n, str(file), kills_at) for n in range(count)]
        described = [describe(task, name, Options()) for task in tasks]
        return daemon.client.submit_specs(described)

    for handle in specs(40, -1000):
        handle.result(PATIENCE)
    return specs(TASKS, 0)


def runs(file: Path) -> Counter[int]:
    """Count how often each ran."""
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter(int(line.split()[0]) for line in lines)


def test_a_call_that_takes_unexpectedly_long_does_not_delay_others(
    private_daemon: Start, tmp_path: Path
) -> None:
    client, gate = private_daemon().client, tmp_path / "gate"

    def seldom_long(number: int, long: int) -> int:
        while number == long and not gate.exists():
            time.sleep(0.001)
        return number

    with client.executor() as executor:
        for _ in range(4):  # it becomes known that they are short
            list(executor.map(seldom_long, range(TASKS), [-1] * TASKS))
        calls = [executor.submit(seldom_long, n, TASKS // 2) for n in range(TASKS)]
        others = [call for n, call in enumerate(calls) if n != TASKS // 2]

        results = [call.result(PATIENCE) for call in others]
        ended = calls[TASKS // 2].done()
        gate.touch()

        assert results == [n for n in range(TASKS) if n != TASKS // 2]
        assert not ended
        assert calls[TASKS // 2].result(PATIENCE) == TASKS // 2


def test_a_killed_worker_loses_no_task_of_its_train(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon, file = private_daemon(), tmp_path / "runs"
    handles = submitted(daemon, file)
    eventually(lambda: len(runs(file)) > 40 + TASKS // 4, "a quarter of them")

    killed = daemon.workers()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    for handle in handles:
        handle.result(PATIENCE)

    counted = runs(file)
    assert all(counted[number] for number in range(TASKS))
    # what ran again had ended, or was at it, in a train that was not reported
    again = sum(counted[number] - 1 for number in range(TASKS))
    assert again <= len(killed) * LONGEST
    # of each worker one, and not those that were behind it
    assert sum(handle.info().attempts for handle in handles) <= len(killed)


def test_a_task_that_kills_its_worker_fails_and_takes_none_along(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon, file = private_daemon(), tmp_path / "runs"

    handles = submitted(daemon, file, kills_at=TASKS // 2)

    for number, handle in enumerate(handles):
        if number == TASKS // 2:
            with pytest.raises(TaskFailedError):
                handle.result(PATIENCE)
        else:
            handle.result(PATIENCE)


def test_a_killed_daemon_loses_no_task_of_a_train(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon, file = private_daemon(), tmp_path / "runs"
    handles = submitted(daemon, file)
    eventually(lambda: len(runs(file)) > 40 + TASKS // 4, "a quarter of them")

    daemon.restart()
    for handle in handles:
        handle.result(PATIENCE)

    assert all(runs(file)[number] for number in range(TASKS))
    # of each slot one, whose worker had been ordered the next before its end was durable
    assert sum(handle.info().attempts for handle in handles) <= SLOTS
