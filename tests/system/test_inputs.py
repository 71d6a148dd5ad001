"""Tasks that take the results of others as parameters, against a real daemon."""

from __future__ import annotations

import asyncio
import operator
import textwrap
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask import AsyncClient, InputError, NotFoundError, TaskFailedError
from libtask.messages import RESULT_INLINE
from system.private_daemon import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from system.private_daemon import PrivateDaemon

APP = """
    from dataclasses import dataclass, field
    from libtask import Size, Task

    @dataclass
    class Total(Task):
        numbers: list[float] = field(default_factory=list)
        weights: dict[str, list[float]] = field(default_factory=dict)
        scale: int = 1

        def __post_init__(self):
            if self.scale < 1:
                raise ValueError("scale: expected at least 1")

        def size(self):
            return Size(str(len(self.numbers)))

        def save(self, checkpoint):
            inner = sum(sum(each) for each in self.weights.values())
            return self.scale * (sum(self.numbers) + inner)

    @Total.on("cpu")
    def run(task, device, checkpoint):
        for strip in checkpoint.strips():
            yield
"""


@pytest.fixture
def total(tmp_path: Path) -> str:
    path = tmp_path / "total.py"
    path.write_text(textwrap.dedent(APP))
    return f"{path}:Total"


def fail() -> None:
    raise ValueError("no luck")


def test_a_call_takes_the_result_of_another(daemon: PrivateDaemon) -> None:
    client = daemon.client

    four = client.submit(operator.add, 1, 3)
    pair = client.submit(divmod, client.submit(operator.mul, four, four), 5)

    assert pair.result(PATIENCE) == (3, 1)
    assert client.show(pair.id).inputs[0].task == pair.id - 1


def test_references_may_stand_deep_in_the_arguments(daemon: PrivateDaemon) -> None:
    def combined(tree: dict[str, Any]) -> Any:
        return tree["sum"](tree["all"][0]) + len(tree["all"][1])

    one, two = (daemon.client.submit(abs, -number) for number in (1, 2))
    tree = {"sum": sum, "all": ((one, two, one), {"k": two})}

    assert daemon.client.submit(combined, tree).result(PATIENCE) == 5


def test_parameters_of_an_application_are_checked_when_they_are_known(
    daemon: PrivateDaemon, total: str
) -> None:
    client = daemon.client
    one, text = client.submit(abs, -1), client.submit(str, 7)
    params = {"numbers": [one, 2.5], "weights": {"a": [3.0, one]}, "scale": 2}

    right = client.submit(total, params)
    wrong = client.submit(total, {"scale": text})

    assert right.result(PATIENCE) == 15.0
    with pytest.raises(TaskFailedError, match="parameter scale: expected int, got '7'"):
        wrong.result(PATIENCE)
    with pytest.raises(InputError, match="unknown parameter 'number'"):
        client.submit(total, {"number": one})
    with pytest.raises(InputError, match="parameter scale: expected int"):
        client.submit(total, {"numbers": [one], "scale": "x"})


def test_map_takes_handles(daemon: PrivateDaemon, total: str) -> None:
    client = daemon.client
    numbers = [client.submit(range, number) for number in (2, 3)]
    lists = [client.submit(list, each) for each in numbers]

    assert list(client.map(total, lists, timeout=PATIENCE)) == [1.0, 3.0]
    assert list(client.map(max, lists, timeout=PATIENCE)) == [1, 2]


@pytest.mark.parametrize("size", [10, RESULT_INLINE * 2, 200_000])
def test_a_result_of_any_size_arrives_as_it_was(
    daemon: PrivateDaemon, size: int
) -> None:
    client = daemon.client
    array = client.submit(np.arange, size)
    text = client.submit("".join, ["x"] * size)

    same = client.submit(lambda values: (values.dtype.kind, values.size), array)
    ended = text.wait(PATIENCE)
    length = client.submit(len, text)

    assert same.result(PATIENCE) == ("i", size)
    assert ended == "completed"
    assert length.result(PATIENCE) == size
    for path in (daemon.crew_folder / "results").glob(f"{text.id}-*"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_child_of_a_failed_task_is_cancelled_whoever_is_first(
    daemon: PrivateDaemon,
) -> None:
    client = daemon.client
    failing = client.submit(fail)
    early = client.submit(abs, failing)
    assert failing.wait(PATIENCE) == "failed"
    late = client.submit(abs, failing)
    grandchild = client.submit(abs, late)

    for child, parent in ((early, failing), (late, failing), (grandchild, late)):
        ended = "failed" if parent is failing else "cancelled"
        why = f"task {parent.id}, which it comes after, ended as {ended}"
        with pytest.raises(CancelledError, match=why):
            child.result(PATIENCE)


def test_a_forgotten_task_has_no_result_to_take(daemon: PrivateDaemon) -> None:
    ended = daemon.client.submit(abs, -1)
    assert ended.result(PATIENCE) == 1
    daemon.client.forget_tasks(ended.id)

    with pytest.raises(NotFoundError, match=f"no task {ended.id}"):
        daemon.client.submit(abs, ended)


def test_a_child_that_waits_keeps_the_result_of_a_forgotten_task(
    daemon: PrivateDaemon,
) -> None:
    client = daemon.client
    parent = client.submit("".join, ["y"] * 2 * RESULT_INLINE)
    child = client.submit(len, parent, hold=True)
    assert parent.wait(PATIENCE) == "completed"
    client.forget_tasks(parent.id)

    client.release(child.id)

    assert child.result(PATIENCE) == 2 * RESULT_INLINE


def test_results_outlive_the_daemon(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon()
    client = daemon.client
    small, large = client.submit(abs, -2), client.submit(list, range(3000))
    child = client.submit(
        lambda number, numbers: number + sum(numbers), small, large, hold=True
    )
    small.wait(PATIENCE)
    large.wait(PATIENCE)

    daemon.restart()
    client.release(child.id)
    late = client.submit(operator.add, small, child)

    assert child.result(PATIENCE) == 2 + sum(range(3000))
    assert late.result(PATIENCE) == 4 + sum(range(3000))


def test_requeued_tasks_take_the_results_of_the_new_ones_and_of_completed_ones(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    client = daemon.client
    kept = client.submit(abs, -5)
    flaky = client.submit(lambda number: gate.read_text() * number, kept)
    child = client.submit(len, flaky)
    assert child.wait(PATIENCE) == "cancelled"
    gate.write_text("ab")

    again = client.requeue(flaky.id, child.id)

    assert again[-1].result(PATIENCE) == 10
    inputs = [client.show(each.id).inputs[0].task for each in again]
    assert inputs == [kept.id, again[0].id]


def test_futures_of_an_executor_chain(daemon: PrivateDaemon) -> None:
    with daemon.client.executor() as opened:
        executor: Any = opened  # futures of values as arguments have no types
        future = executor.submit(abs, -1)
        for _ in range(20):
            future = executor.submit(operator.add, future, 1)
        large = executor.submit(bytes, 500_000)
        length = executor.submit(len, large)
        failing = executor.submit(int, "many")
        after_failing = executor.submit(abs, failing)

        assert future.result(PATIENCE) == 21
        assert length.result(PATIENCE) == 500_000
        assert executor.submit(operator.add, future, length).result(PATIENCE) == 500_021
        with pytest.raises(CancelledError, match="ended as failed"):
            after_failing.result(PATIENCE)
        with pytest.raises(ValueError, match="invalid literal"):
            failing.result(PATIENCE)
        with pytest.raises(CancelledError, match="ended as failed"):
            executor.submit(abs, failing).result(PATIENCE)
    calls = [future, large, length, failing, after_failing]
    kinds = ("call", "result", "error")
    paths = [each.task.file(what) for each in calls for what in kinds]
    assert [path for path in paths if path.exists()] == []


def test_futures_chain_with_few_workers_too(daemon: PrivateDaemon) -> None:
    with (
        daemon.client.executor(max_workers=2) as first,
        daemon.client.executor(max_workers=1) as second,
    ):
        chain = [first.submit(abs, -1)]
        for number in range(10):
            executor: Any = first if number % 2 else second
            chain.append(executor.submit(operator.add, chain[-1], 1))

        assert chain[-1].result(PATIENCE) == 11
        eventually(lambda: all(each.done() for each in chain), "all futures")


def test_asynchronous_tasks_are_inputs_too(daemon: PrivateDaemon) -> None:
    async def added() -> Any:
        async with AsyncClient(daemon.socket) as client:
            one = await client.submit(abs, -1)
            two = await client.submit(operator.add, one, one)
            return await two.result()

    assert asyncio.run(added()) == 2
