"""Fig. 8: the gradient of the Bayesian network by belief propagation and by sampling.

One shared resource: m counters whose true values follow the Student-t distribution of
equation 6; its utilisation is the mean of these values to an unknown power theta; a level is
seen with normal noise around it. The gradient is that of -log P(level) by theta. The paper
measures whole trainings; this is the part of them in which the two methods differ.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

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
REFERENCE_DRAWS = 400_000
REPEATS = 15
PAPER_RATIO = 4.0


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
    shape = (draws, len(network.means))
    values = generator.standard_t(SAMPLES - 1, shape)
    values = np.maximum(network.means + np.array(network.errors) * values, LEAST)
    return _gradient(network, values.mean(axis=1), np.full(draws, 1.0 / draws))


def _gradient(network: CounterNetwork, value: Floats, weight: Floats) -> float:
    """Return the gradient of -log P(level) from values of the parents' mean."""
    utilisation = value**network.theta
    off = (network.level - utilisation) / NOISE**2
    density = weight * np.exp(-0.5 * off * off * NOISE**2)
    slope = off * utilisation * np.log(value)
    return float(-(density * slope).sum() / density.sum())


def figure_eight(repeats: int) -> Figure:
    """Tabulate time and error of both methods; `repeats`: sets of time measurements."""
    rows = [row for parents in PARENTS for row in _rows_of(parents, repeats)]
    three = next(row for row in rows if row["parents"] == 3 and row["bins"] == 16)  # noqa: PLR2004
    return Figure(
        "fig8",
        rows,
        [
            Claim(
                "propagation / sampling, 3 parents of 16 bins",
                PAPER_RATIO,
                three["ratio"],
                "times",
            )
        ],
        "Gradient of the Bayesian network: belief propagation and sampling",
        "The paper's 4 is the ratio of whole trainings. The factor grows with the domain of "
        "the parents, so it is a matter of bins and counters.",
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
