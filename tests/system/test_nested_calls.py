"""Calls that submit others and wait for them: their slots are lent to these."""

from __future__ import annotations

import concurrent.futures
import sys
import time
from typing import TYPE_CHECKING

import cloudpickle
import pytest

from libtask.client.client import Client
from system.private_daemon import PATIENCE, SETTINGS, eventually, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]

ONE_SLOT = """
[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
"""
CALLS = 3

# workers cannot import this module
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def one_slot() -> Iterator[PrivateDaemon]:
    with opened(SETTINGS + ONE_SLOT) as daemon:
        yield daemon


def squares(socket: Path) -> list[int]:
    with Client(socket) as client, client.executor() as executor:
        return [executor.submit(pow, k, 2).result() for k in range(3)]


def by_map(socket: Path) -> list[int]:
    with Client(socket) as client, client.executor() as executor:
        return list(executor.map(pow, range(3), [2, 2, 2]))


def by_wait(socket: Path) -> list[int]:
    with Client(socket) as client, client.executor() as executor:
        futures = [executor.submit(pow, k, 2) for k in range(3)]
        done, others = concurrent.futures.wait(futures)
        return sorted(future.result() for future in done if not others)


def as_they_end(socket: Path) -> list[int]:
    with Client(socket) as client, client.executor() as executor:
        futures = [executor.submit(pow, k, 2) for k in range(3)]
        ended = concurrent.futures.as_completed(futures)
        return sorted(future.result() for future in ended)


def one_at_a_time(socket: Path) -> list[int]:
    with Client(socket) as client, client.executor(max_workers=1) as executor:
        futures = [executor.submit(pow, k, 2) for k in range(3)]
        return [future.result() for future in futures[::-1]][::-1]


def with_handles(socket: Path) -> list[int]:
    with Client(socket) as client:
        handles = [client.submit(pow, k, 2) for k in range(3)]
        assert {handle.wait() for handle in handles} == {"completed"}
        return [handle.result() for handle in handles]


def with_arguments(socket: Path) -> list[int]:
    with Client(socket) as client, client.executor() as executor:
        two = executor.submit(int, "2")
        return [executor.submit(pow, k, two).result() for k in range(3)]  # type: ignore[arg-type]  # a future stands for its value


def as_a_graph(socket: Path) -> list[int]:
    import libtask.dask

    graph = {"two": 2, **{str(k): (pow, k, "two") for k in range(3)}}
    with Client(socket) as client:
        return list(libtask.dask.get(graph, ["0", "1", "2"], client=client))


@pytest.mark.parametrize(
    "call",
    [
        squares,
        by_map,
        by_wait,
        as_they_end,
        one_at_a_time,
        with_handles,
        with_arguments,
        as_a_graph,
    ],
)
def test_calls_that_have_all_slots_get_what_they_wait_for(
    one_slot: PrivateDaemon, call: Callable[[Path], list[int]]
) -> None:
    with one_slot.client.executor() as executor:
        futures = [executor.submit(call, one_slot.socket) for _ in range(CALLS)]

        assert [each.result(PATIENCE) for each in futures] == CALLS * [[0, 1, 4]]


def down(socket: Path, levels: int) -> int:
    with Client(socket) as client, client.executor() as executor:
        below = executor.submit(down, socket, levels - 1).result() if levels else 0
        return below + 1


def test_calls_may_wait_for_calls_that_wait(one_slot: PrivateDaemon) -> None:
    with one_slot.client.executor() as executor:
        assert executor.submit(down, one_slot.socket, 5).result(PATIENCE) == 6


def failing(socket: Path) -> str:
    with Client(socket) as client, client.executor() as executor:
        try:
            executor.submit(int, "many").result()
        except ValueError as error:
            return str(error)
    return "no error"


def test_an_error_comes_back_through_both(one_slot: PrivateDaemon) -> None:
    with one_slot.client.executor() as executor:
        assert "many" in executor.submit(failing, one_slot.socket).result(PATIENCE)


def impatient(socket: Path) -> str:
    with Client(socket) as client, client.executor() as executor:
        future = executor.submit(time.sleep, 600)
        try:
            future.result(0.2)
        except TimeoutError:
            assert future.handle is not None  # type: ignore[attr-defined]  # a CallFuture
            future.handle.cancel()  # type: ignore[attr-defined]
            return "gave up"
    return "it came"


def test_one_that_gives_up_goes_on(one_slot: PrivateDaemon) -> None:
    with one_slot.client.executor() as executor:
        future = executor.submit(impatient, one_slot.socket)
        assert future.result(PATIENCE) == "gave up"


def gated(gate: Path) -> str:
    while not gate.exists():
        time.sleep(0.01)
    return "through"


def waiting(socket: Path, gate: Path) -> str:
    with Client(socket) as client, client.executor() as executor:
        return executor.submit(gated, gate).result()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """Let calls end that wait for a file, at the latest when the test has ended."""
    yield tmp_path / "gate"
    (tmp_path / "gate").touch()


def await_running(daemon: PrivateDaemon, count: int) -> None:
    """Wait until so many tasks run on the resource with one slot."""

    def runs() -> bool:
        (device,) = daemon.client.devices()
        return (device.slots, len(device.running)) == (1, count)

    eventually(runs, f"{count} running tasks")


def test_waiting_calls_outlive_the_daemon(private_daemon: Start, gate: Path) -> None:
    daemon = private_daemon(SETTINGS + ONE_SLOT)
    calls = [daemon.client.submit(waiting, daemon.socket, gate) for _ in range(2)]
    await_running(daemon, 2)

    daemon.restart()
    gate.touch()

    assert [each.result(PATIENCE) for each in calls] == ["through", "through"]
    assert all(task.attempts == 0 for task in daemon.client.tasks())


def test_others_do_not_run_in_a_lent_slot(one_slot: PrivateDaemon, gate: Path) -> None:
    call = one_slot.client.submit(waiting, one_slot.socket, gate)
    await_running(one_slot, 2)
    other = one_slot.client.submit(abs, -3)
    time.sleep(0.3)
    assert one_slot.client.show(other.id).state == "queued"

    gate.touch()
    assert call.result(PATIENCE) == "through"
    assert other.result(PATIENCE) == 3


def test_a_call_that_waits_is_cancelled_like_any_other(
    one_slot: PrivateDaemon, gate: Path
) -> None:
    call = one_slot.client.submit(waiting, one_slot.socket, gate)
    await_running(one_slot, 2)

    call.cancel()

    assert call.wait(PATIENCE) == "cancelled"
    gate.touch()
    await_running(one_slot, 0)
