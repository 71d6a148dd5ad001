"""The gradient of the Bayesian network by its ancestors' parameters: equations 3 to 5.

Needed where parents of a variable have parameters, and where they have an ancestor in common
(the paper's N), so that they are independent only given its value. On the polytree of the
paper's section 4 there is none, and the parents of utilisation are counters without parameters:
there equation 2 is all of it (`gradient`). Here a network that has both, small enough to
enumerate, shows that the equations hold, and how equation 3 has to be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Places: TypeAlias = NDArray[np.intp]

NOISE = 0.2
"""Standard deviation of the level around the mean of the parents' values."""


@dataclass(frozen=True, slots=True)
class CommonAncestor:
    """A variable with several parents, which depend on one ancestor.

    A parent has the value g on a grid from 0 to 1, given the ancestor's value c from -1 to 1,
    with a probability proportional to exp(theta c g).

    Attributes:
        prior: probability of each value of the ancestor; one value: there is none.
        thetas: parameter of each parent.
        bins: values of a parent.
        level: value of the variable.

    """

    prior: tuple[float, ...]
    thetas: tuple[float, ...]
    bins: int = 8
    level: float = 0.6

    @property
    def grid(self) -> Floats:
        """Return the values of a parent."""
        return np.linspace(0.0, 1.0, self.bins)

    def conditionals(self) -> tuple[Floats, Floats]:
        """Return Pr(P_j = g | N = c) and its derivative by theta_j: (j, c, g)."""
        causes = (
            np.linspace(-1.0, 1.0, len(self.prior)) if len(self.prior) > 1 else [1.0]
        )
        slopes = np.outer(causes, self.grid)
        weights = np.exp(np.multiply.outer(np.array(self.thetas), slopes))
        chances = weights / weights.sum(axis=2, keepdims=True)
        mean = (chances * slopes).sum(axis=2, keepdims=True)
        return chances, chances * (slopes - mean)

    def density(self, places: Places) -> Floats:
        """Return f(level, y) for values of the parents; `places`: (samples, j)."""
        off = (self.level - self.grid[places].mean(axis=1)) / NOISE
        density: Floats = np.exp(-0.5 * off * off) / (NOISE * np.sqrt(2.0 * np.pi))
        return density


def gradient_by_enumeration(network: CommonAncestor) -> Floats:
    """Return the derivatives of Pr(X = level) by each theta, summed over all values."""
    shape = (network.bins,) * len(network.thetas)
    places = np.indices(shape).reshape(len(network.thetas), -1).T
    slopes = _gradient_of_parents(network, places, np.array(network.prior))
    return _weighed(network, places, slopes)


def gradient_by_samples(
    network: CommonAncestor,
    draws: int,
    generator: np.random.Generator,
    *,
    as_printed: bool = False,
) -> Floats:
    """Return the derivatives by equations 3 and 5, from draws of ancestor and parents.

    Equation 3 is an integral over the parents' values: they are drawn evenly, and each
    counts the same.

    Args:
        network: the network.
        draws: number of samples S.
        generator: of the draws.
        as_printed: draw the parents from the network and weigh by f alone, as the paper
            prints it: frequent values count twice, as samples and in the gradient.

    """
    count, states = len(network.thetas), len(network.prior)
    drawn = generator.choice(states, draws, p=network.prior)
    frequencies = np.bincount(drawn, minlength=states) / draws
    if as_printed:
        chances, _ = network.conditionals()
        cumulated = chances.cumsum(axis=2)[:, drawn]
        even = generator.random((count, draws, 1))
        places = (even > cumulated).sum(axis=2).clip(max=network.bins - 1).T
        weight = 1.0 / draws
    else:
        places = generator.integers(network.bins, size=(draws, count))
        weight = float(network.bins) ** count / draws
    slopes = _gradient_of_parents(network, places, frequencies)
    return weight * _weighed(network, places, slopes)


def _weighed(network: CommonAncestor, places: Places, slopes: Floats) -> Floats:
    total: Floats = (network.density(places)[:, None] * slopes).sum(axis=0)
    return total


def _gradient_of_parents(
    network: CommonAncestor, places: Places, frequencies: Floats
) -> Floats:
    """Return the derivatives of Pr(parents = y) by each theta, equation 5: (samples, theta).

    Equation 4 is the product of the parents' probabilities given the ancestor, averaged over
    its draws; this is its product rule. The conditional probabilities are known functions:
    they are used as they are, in place of frequencies of samples.
    """
    chances, slopes = network.conditionals()
    parents = range(len(network.thetas))
    seen = [chances[j][:, places[:, j]] for j in parents]
    columns = []
    for own in parents:
        product = slopes[own][:, places[:, own]]
        for other in parents:
            if other != own:
                product = product * seen[other]
        columns.append(frequencies @ product)
    return np.stack(columns, axis=1)
