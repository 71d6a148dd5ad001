"""Equations 3 to 5 of Banerjee et al.: gradients by ancestors' parameters from samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hetpapers.banerjee.ancestors import (
    CommonAncestor,
    gradient_by_enumeration,
    gradient_by_samples,
)

COMMON = CommonAncestor((0.5, 0.2, 0.3), (1.5, -0.8))
TREE = CommonAncestor((1.0,), (1.5, -0.8, 0.4))
DRAWS = 100_000


def probability(network: CommonAncestor) -> float:
    """Return Pr(X = level), in the simplest way."""
    chances, _ = network.conditionals()
    total = 0.0
    for state, prior in enumerate(network.prior):
        for places in np.ndindex((network.bins,) * len(network.thetas)):
            chance = np.prod([chances[j, state, p] for j, p in enumerate(places)])
            total += prior * chance * network.density(np.array([places]))[0]
    return total


@pytest.mark.parametrize("network", [COMMON, TREE], ids=["common", "tree"])
def test_enumeration_gives_the_differences(network: CommonAncestor) -> None:
    step = 1e-5
    found = gradient_by_enumeration(network)

    for number, theta in enumerate(network.thetas):
        ends = []
        for sign in (-1.0, 1.0):
            thetas = list(network.thetas)
            thetas[number] = theta + sign * step
            ends.append(probability(replace(network, thetas=tuple(thetas))))
        assert found[number] == pytest.approx(
            (ends[1] - ends[0]) / (2 * step), rel=1e-6
        )


@pytest.mark.parametrize("network", [COMMON, TREE], ids=["common", "tree"])
def test_samples_give_the_gradient(network: CommonAncestor) -> None:
    exact = gradient_by_enumeration(network)

    found = gradient_by_samples(network, DRAWS, np.random.default_rng(3))

    assert found == pytest.approx(exact, rel=0.05, abs=2e-3)


def test_as_printed_frequent_values_count_twice() -> None:
    network = replace(TREE, thetas=(4.0, 4.0))
    exact = gradient_by_enumeration(network)

    printed = gradient_by_samples(
        network, DRAWS, np.random.default_rng(3), as_printed=True
    )

    # not even up to a factor: it depends on where the network puts its weight
    scaled = printed * network.bins ** len(network.thetas)
    assert np.abs(scaled / exact - 1.0).max() > 0.5
