"""Estimates: an outlier changes nothing, a lasting change is noticed soon."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from builders import a_resource
from hetsched.estimates.regression import Known, predict
from hetsched.estimates.series import Series
from hetsched.estimates.table import EstimateTable
from hetsched.tasks import Row

CPU = a_resource("cpu")
ROW = Row("heat/64", frozenset({"cpu"}), frozenset(), 1.0)

times = st.floats(1e-4, 1e4)
noises = st.lists(st.floats(0.75, 1.3), min_size=20, max_size=20)


def a_fed_table(samples: list[float]) -> EstimateTable:
    table = EstimateTable()
    for seconds in samples:
        table.observe(ROW, CPU, seconds)
    return table


@given(true=times, noise=noises, place=st.integers(0, 20))
def test_one_sample_a_hundred_times_too_long_changes_less_than_5_percent(
    true: float, noise: list[float], place: int
) -> None:
    good = [true * factor for factor in noise]
    bad = [*good[:place], 100 * true, *good[place:]]

    known, poisoned = Series(), Series()
    for seconds in good:
        known.take(seconds)
    for seconds in bad:
        poisoned.take(seconds)

    assert abs(poisoned.center / known.center - 1) < 0.05


@given(true=st.floats(0.01, 1e4), noise=noises)
def test_an_outlier_at_the_end_does_not_reach_what_policies_see(
    true: float, noise: list[float]
) -> None:
    table = a_fed_table([true * factor for factor in noise])
    before = table.seconds(ROW, CPU)

    table.observe(ROW, CPU, 100 * true)

    # told or not told, it is never off by more than what is worth telling, twice
    assert abs(table.seconds(ROW, CPU) / before - 1) < 0.1


@given(
    true=st.floats(0.01, 1e4),
    before=st.integers(5, 200),
    factor=st.sampled_from([0.5, 2.0, 4.0]),
    seed=st.integers(0, 1000),
)
def test_a_resource_twice_as_slow_is_noticed_within_20_strips(
    true: float, before: int, factor: float, seed: int
) -> None:
    draw = random.Random(seed)
    table = a_fed_table([true * draw.uniform(0.85, 1.15) for _ in range(before)])

    for _ in range(20):
        table.observe(ROW, CPU, factor * true * draw.uniform(0.85, 1.15))

    assert 0.8 < table.seconds(ROW, CPU) / (factor * true) < 1.25


@given(seed=st.integers(0, 200))
def test_noise_is_not_reported_as_drift(seed: int) -> None:
    draw = random.Random(seed)
    series = Series()

    drifts = [series.take(draw.lognormvariate(0.0, 0.2)) for _ in range(500)]

    assert drifts == [None] * 500


@given(
    slope=st.floats(0.8, 1.2),
    scale=times,
    works=st.lists(st.floats(1.0, 1e6), min_size=2, max_size=8, unique=True),
    work=st.floats(1.0, 1e6),
)
def test_a_power_law_is_nearer_than_mere_proportion(
    slope: float, scale: float, works: list[float], work: float
) -> None:
    known = [Known(each, scale * each**slope, 0.01) for each in works]
    farthest = max(abs(math.log(each / work)) for each in works)

    expected = predict(known, work)

    error = abs(math.log(expected.seconds / (scale * work**slope)))
    assert error <= abs(slope - 1) * farthest + 0.001
    assert expected.spread > 0
