"""Executors against a real daemon: calls run in workers, and come back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import (
    CancelledError,
    Future,
    ThreadPoolExecutor,
    as_completed,
)
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Selection
from system.private_daemon import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from system.private_daemon import PrivateDaemon
    from system.tracing import Tracing

    Submit = Callable[..., Tracing]

OWN_COMMAND = "/proc/self/cmdline"
"""The command line of who reads it; a worker that is not needed may end at any time."""


def test_an_executor_runs_calls_in_workers(daemon: PrivateDaemon) -> None:
    with daemon.client.executor() as executor:
        futures = [executor.submit(pow, 2, k) for k in range(20)]
        (command,) = executor.map(lambda path: Path(path).read_bytes(), [OWN_COMMAND])

        values = [future.result(PATIENCE) for future in as_completed(futures, 60)]

    assert sorted(values) == [2**k for k in range(20)]
    assert bytes(daemon.socket) in command.split(b"\0")


def test_chunks_of_calls_run_as_few_tasks(daemon: PrivateDaemon) -> None:
    def place(number: int) -> tuple[int, int]:
        return number, os.getpid()

    before = daemon.client.count()
    with daemon.client.executor() as executor:
        found = list(executor.map(place, range(90), chunksize=40))

    assert [number for number, _ in found] == list(range(90))
    assert daemon.client.count() == before + 3
    for first, last in ((0, 40), (40, 80), (80, 90)):
        assert len({pid for _, pid in found[first:last]}) == 1


def test_what_a_map_that_fails_had_queued_is_cancelled(daemon: PrivateDaemon) -> None:
    before = daemon.client.count(Selection(states=("cancelled",)))
    with daemon.client.executor() as executor:
        found = executor.map(
            lambda number: time.sleep(0.3) if number else int("many"), range(200)
        )
        with pytest.raises(ValueError, match="invalid literal"):
            next(found)

    after = daemon.client.count(Selection(states=("cancelled",)))
    assert after - before > 100


def test_an_executor_brings_large_values_and_exceptions_back(
    daemon: PrivateDaemon,
) -> None:
    with daemon.client.executor() as executor:
        large = executor.submit(bytes, 3_000_000)
        echo = executor.submit(len, b"x" * 3_000_000)
        bad = executor.submit(int, "many")

        assert large.result(PATIENCE) == bytes(3_000_000)
        assert echo.result(PATIENCE) == 3_000_000
        with pytest.raises(ValueError, match="invalid literal"):
            bad.result(PATIENCE)


def test_an_executor_cancels_what_does_not_run_yet(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    tenants = [trace(gate_at=5) for _ in range(2)]
    for tenant in tenants:
        tenant.await_gate()
    with daemon.client.executor() as executor:
        future: Future[int] = executor.submit(abs, -1)

        assert future.cancel()

        with pytest.raises(CancelledError):
            future.result(PATIENCE)
    for tenant in tenants:
        tenant.open_gate()
        tenant.check_completed()


def test_calls_that_are_being_submitted_outlast_a_killed_daemon(
    daemon: PrivateDaemon,
) -> None:
    with daemon.client.executor() as executor:
        first = [executor.submit(abs, -number) for number in range(200)]
        with ThreadPoolExecutor(1) as pool:
            restarted = pool.submit(daemon.restart)
            others = [executor.submit(abs, -number) for number in range(200)]
            restarted.result(PATIENCE)

        values = [future.result(PATIENCE) for future in [*first, *others]]

    assert values == [*range(200)] * 2


FORKS = """
import os, sys
from libtask import Client

with Client(sys.argv[1]) as client, client.executor() as executor:
    slow = executor.submit(__import__("time").sleep, 0.5)
    if not (child := os.fork()):
        with executor:
            print(executor.submit(pow, 2, 3).result(), client.submit(pow, 2, 4).result())
        sys.exit()  # it leaves the blocks, too
    _, status = os.waitpid(child, 0)
    print(status, slow.result(), executor.submit(pow, 2, 5).result())
"""


def test_a_forked_child_has_calls_of_its_own(daemon: PrivateDaemon) -> None:
    program = [sys.executable, "-c", FORKS, str(daemon.socket)]

    done = subprocess.run(
        program, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True
    )

    assert done.stdout.splitlines() == ["8 16", "0 None 32"]


PROGRAM = """
import sys
from pathlib import Path
from libtask.client.client import Client

client = Client(sys.argv[1])
executor = client.executor()
for number in range(100):
    executor.submit(Path(sys.argv[2], str(number)).touch)
"""


def test_what_a_program_has_submitted_runs_although_it_exits_at_once(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", PROGRAM, str(daemon.socket), str(tmp_path)]

    subprocess.run(program, check=True, timeout=PATIENCE)

    eventually(lambda: len(list(tmp_path.iterdir())) == 100, "the file of each call")
