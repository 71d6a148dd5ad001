"""Fig. 8: the gradient of the Bayesian network by belief propagation and by sampling.

One shared resource: m counters whose true values follow the Student-t distribution of
equation 6; its utilisation is the mean of these values to an unknown power theta; a level is
seen with normal noise around it. The gradient is that of -log P(level) by theta. The paper
measures whole trainings; this is the part of them in which the two methods differ.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.special import stdtrit

from hetpapers.figures import Claim, Figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hetpapers.figures import Row

    Floats: TypeAlias = NDArray[np.float64]

SAMPLES = 8
"""Samples of a counter between two decisions."""
NOISE = 0.1
"""Standard deviation of a level around the utilisation."""
LEAST = 1e-3
"""Least value of a counter: a utilisation of 0 has no power."""
PARENTS = (2, 3, 4)
BINS = {2: (16, 32, 64), 3: (16, 32), 4: (16, 24)}
"""Number of counters -> bins of each, for belief propagation."""
DRAWS = 256
QUANTILES: Floats = stdtrit(SAMPLES - 1, (np.arange(4096) + 0.5) / 4096)
"""Of Student's t distribution: to draw one of them takes half as long as one of its variates."""
REFERENCE_DRAWS = 400_000
REPEATS = 15
PAPER_RATIO = 4.0
FIRST_THETA, TRUE_THETA = 0.7, 1.4
"""The power before a fit, and that of the readings."""
INSTANTS = 64
"""Readings of an update."""
RATE, MOST_UPDATES = 0.05, 400
PATIENCE, SETTLED = 10, 0.02
"""A fit ends when the last few powers are within this share of each other."""
FITS = ((2, 16), (3, 16), (3, 32))


@dataclass(frozen=True, slots=True)
class CounterNetwork:
    """The network of one resource.

    Attributes:
        means, errors: of each counter: mean of its samples, S / sqrt(N).
        level: seen; `theta`: the power.

    """

    means: tuple[float, ...]
    errors: tuple[float, ...]
    level: float = 0.35
    theta: float = 1.4


def a_network(parents: int) -> CounterNetwork:
    """Return a network with this number of counters."""
    means = tuple(0.55 + 0.1 * number for number in range(parents))
    return CounterNetwork(means, (0.05,) * parents)


def gradient_by_propagation(network: CounterNetwork, bins: int) -> float:
    """Sum over all combinations of the parents' values, each on a grid of `bins`.

    The cost grows with bins ** parents, the domain of the joint parents.
    """
    grids, weights = [], []
    for mean, error in zip(network.means, network.errors, strict=True):
        grid = np.maximum(mean + error * np.linspace(-6.0, 6.0, bins), LEAST)
        density = (1.0 + ((grid - mean) / error) ** 2 / (SAMPLES - 1)) ** (-SAMPLES / 2)
        grids.append(grid)
        weights.append(density / density.sum())
    shape = len(grids)
    mean_value = np.zeros((1,) * shape)
    weight = np.ones((1,) * shape)
    for axis in range(shape):
        along = tuple(bins if other == axis else 1 for other in range(shape))
        mean_value = mean_value + grids[axis].reshape(along) / shape
        weight = weight * weights[axis].reshape(along)
    return _gradient(network, mean_value, weight)


def gradient_by_sampling(
    network: CounterNetwork, draws: int, generator: np.random.Generator
) -> float:
    """Draw the parents' values, and weigh the gradients by the density of the level.

    The score-function form of equations 2 and 3: a sum over draws with weights f(x, y).
    """
    parents = len(network.means)
    values = _draw(generator, (draws, parents))
    values *= network.errors
    values += network.means
    np.maximum(values, LEAST, out=values)
    return _gradient(network, values.dot(np.full(parents, 1.0 / parents)), 1.0 / draws)


def _draw(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw from Student's t distribution, by its quantiles."""
    places = generator.integers(0, len(QUANTILES), shape, dtype=np.uint16)
    return QUANTILES.take(places)


def _gradient(network: CounterNetwork, value: Floats, weight: Floats | float) -> float:
    """Return the gradient of -log P(level) from values of the parents' mean."""
    utilisation = value**network.theta
    off = (network.level - utilisation) / NOISE**2
    density = weight * np.exp(-0.5 * off * off * NOISE**2)
    slope = off * utilisation * np.log(value)
    return float(-(density * slope).sum() / density.sum())


@dataclass(frozen=True, slots=True)
class RecordedReadings:
    """Readings of one resource's counters at many instants, with the level seen at each.

    Attributes:
        means, errors: of the counters: instants by counters.

    """

    means: Floats
    errors: Floats
    levels: Floats


def draw_readings(
    parents: int, count: int, theta: float, seed: int
) -> RecordedReadings:
    """Draw readings of a resource whose power is `theta`."""
    generator = np.random.default_rng(seed)
    shape = (count, parents)
    true = generator.uniform(0.3, 0.95, shape)
    means = true + generator.normal(0.0, NOISE / np.sqrt(SAMPLES), shape)
    squares = generator.chisquare(SAMPLES - 1, shape) / (SAMPLES - 1)
    levels = true.mean(axis=1) ** theta + generator.normal(0.0, NOISE, count)
    return RecordedReadings(means, NOISE * np.sqrt(squares / SAMPLES), levels)


def batch_by_propagation(readings: RecordedReadings, theta: float, bins: int) -> float:
    """Return the mean gradient; the parents' values are summed over a grid of all."""
    count, parents = readings.means.shape
    places = np.linspace(-6.0, 6.0, bins)
    density = (1.0 + places**2 / (SAMPLES - 1)) ** (-SAMPLES / 2)
    value = np.zeros((count, *(1,) * parents))
    weight = np.ones((1,) * (parents + 1))
    for axis in range(parents):
        grid = readings.means[:, axis, None] + readings.errors[:, axis, None] * places
        along = [bins if other == axis else 1 for other in range(parents)]
        value = value + np.maximum(grid, LEAST).reshape(count, *along) / parents
        weight = weight * (density / density.sum()).reshape(1, *along)
    flat = np.broadcast_to(weight, value.shape).reshape(count, -1)
    return _mean_gradient(readings, theta, value.reshape(count, -1), flat)


def batch_by_sampling(
    readings: RecordedReadings, theta: float, generator: np.random.Generator
) -> float:
    """Return the mean gradient; the parents' values are drawn."""
    count, parents = readings.means.shape
    values = _draw(generator, (count, DRAWS, parents))
    values *= readings.errors[:, None]
    values += readings.means[:, None]
    np.maximum(values, LEAST, out=values)
    value = values.dot(np.full(parents, 1.0 / parents))
    return _mean_gradient(readings, theta, value, 1.0 / DRAWS)


def _mean_gradient(
    readings: RecordedReadings, theta: float, value: Floats, weight: Floats | float
) -> float:
    utilisation = value**theta
    off = (readings.levels[:, None] - utilisation) / NOISE**2
    density = weight * np.exp(-0.5 * off * off * NOISE**2)
    slope = off * utilisation * np.log(value)
    return float(-((density * slope).sum(axis=1) / density.sum(axis=1)).mean())


def fit(gradient: Callable[[float], float]) -> tuple[float, int]:
    """Descend until the power is as good as known; return it, and the updates needed."""
    theta, recent = FIRST_THETA, [0.0] * PATIENCE
    for update in range(1, MOST_UPDATES + 1):
        step = RATE * gradient(theta)
        theta -= step
        recent = [*recent[1:], theta]
        if update >= PATIENCE and max(recent) - min(recent) < SETTLED * theta:
            return sum(recent) / PATIENCE, update
    return theta, MOST_UPDATES


def fit_rows() -> list[Row]:
    """Fit the power by each method, and measure how long that takes."""
    rows: list[Row] = []
    for parents, bins in FITS:
        readings = draw_readings(parents, INSTANTS, TRUE_THETA, parents)
        generator = np.random.default_rng(3)
        by_grid = partial(batch_by_propagation, readings, bins=bins)
        by_draws = partial(batch_by_sampling, readings, generator=generator)
        for method, gradient in (("propagation", by_grid), ("sampling", by_draws)):
            began = time.process_time()
            theta, updates = fit(gradient)
            rows.append(
                {
                    "fit by": method,
                    "parents": parents,
                    "bins": bins,
                    "updates": updates,
                    "seconds": time.process_time() - began,
                    "power found": theta,
                }
            )
    return rows


def figure_eight(repeats: int) -> Figure:
    """Tabulate time and error of both methods; `repeats`: sets of time measurements."""
    rows = [row for parents in PARENTS for row in _rows_of(parents, repeats)]
    three = next(row for row in rows if row["parents"] == 3 and row["bins"] == 16)  # noqa: PLR2004
    fits = fit_rows()
    return Figure(
        "fig8",
        [*rows, *fits],
        [
            Claim(
                "whole fit, propagation / sampling, 3 parents of 16 bins",
                PAPER_RATIO,
                fits[2]["seconds"] / fits[3]["seconds"],
                "times",
            ),
            Claim(
                "one gradient, propagation / sampling, 3 parents of 16 bins",
                PAPER_RATIO,
                three["ratio"],
                "times",
            ),
        ],
        "Gradient of the Bayesian network: belief propagation and sampling",
        "The paper's 4 is the ratio of whole trainings. Fits: the power of the utilisation, from "
        f"{INSTANTS} simulated readings in each update, processor time. The factor grows with the domain of "
        "the parents, so it is a matter of bins and counters.",
        "measured on this machine",
    )


def _rows_of(parents: int, repeats: int) -> list[Row]:
    network = a_network(parents)
    exact = gradient_by_sampling(network, REFERENCE_DRAWS, np.random.default_rng(1))
    generator = np.random.default_rng(2)
    sampled = [gradient_by_sampling(network, DRAWS, generator) for _ in range(200)]
    error = float(np.sqrt(np.mean((np.array(sampled) - exact) ** 2)))
    by_sampling = _milliseconds(
        lambda: gradient_by_sampling(network, DRAWS, generator), repeats
    )
    rows: list[Row] = []
    for bins in BINS[parents]:
        found = gradient_by_propagation(network, bins)
        milliseconds = _milliseconds(
            lambda bins=bins: gradient_by_propagation(network, bins),  # type: ignore[misc]  # a default binds the loop's value
            repeats,
        )
        rows.append(
            {
                "parents": parents,
                "bins": bins,
                "propagation, ms": milliseconds,
                "error, %": 100.0 * abs(found / exact - 1.0),
                f"sampling {DRAWS}, ms": by_sampling,
                "its error, %": 100.0 * abs(error / exact),
                "ratio": milliseconds / by_sampling,
            }
        )
    return rows


def _milliseconds(call: Callable[[], float], repeats: int) -> float:
    """Return the least time of a call: others on the machine only add to it."""
    times = []
    for _ in range(REPEATS * repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1000.0 * min(times)
