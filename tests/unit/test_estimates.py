"""The table of expected execution times: what it says of sizes nobody has measured."""

from __future__ import annotations

import pytest

from hetd.core.system import Resource
from hetd.core.tasks import Row
from hetd.estimates.table import GUESS_S, EstimateTable

CPU = Resource("cpu", "cpu", 2)


def row(task_type: str, work: float) -> Row:
    return Row(task_type, frozenset({"cpu"}), frozenset(), work)


@pytest.mark.parametrize(
    ("measured", "asked"),
    [
        ("heat/1024", "heat/2048"),
        ("markov/1024/float32", "markov/2048/float32"),
        ("file:Mine/8x8/float32", "file:Mine/16x2/float64"),
    ],
)
def test_another_size_of_the_application_is_scaled_by_work(
    measured: str, asked: str
) -> None:
    table = EstimateTable()
    table.learn(measured, "cpu", seconds=2.0, work=100.0)

    assert table.seconds(row(asked, 150.0), CPU) == pytest.approx(3.0)


def test_the_size_closest_in_work_serves() -> None:
    table = EstimateTable()
    table.learn("heat/64", "cpu", seconds=0.001, work=1.0)
    table.learn("heat/4096", "cpu", seconds=100.0, work=1000.0)

    assert table.seconds(row("heat/2048", 400.0), CPU) == pytest.approx(40.0)


def test_other_applications_and_resources_say_nothing() -> None:
    table = EstimateTable()
    table.learn("heat/64", "gpu0", seconds=0.001, work=1.0)
    table.learn("heater/64", "cpu", seconds=0.001, work=1.0)

    assert table.seconds(row("heat/64", 1.0), CPU) == GUESS_S
