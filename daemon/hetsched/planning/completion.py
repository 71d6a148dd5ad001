"""Collaborative filtering of execution times (Delimitrou and Kozyrakis, ASPLOS 2013).

A table of logarithms with unknown entries: row and column effects by ridge regression, then
factors of the residuals by stochastic gradient descent (the paper's "PQ").
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TypeAlias

KnownTable: TypeAlias = "tuple[tuple[float | None, ...], ...]"
"""Rows of known values; None: unknown."""

RIDGE = 0.1
"""Added to the number of values behind each effect."""
SWEEPS = 40
FACTORS = 3
EPOCHS = 400
MOST_STEPS = 16_000
"""Values times epochs at most: the time of a completion does not grow with the table."""
RATE = 0.02
REGULARISATION = 0.05


@lru_cache(maxsize=64)
def completed(table: KnownTable) -> tuple[tuple[float, ...], ...]:
    """Fill the unknown entries of a table; known ones stay.

    A pure function of the table, remembered because policies ask at every reaction.
    """
    cells = [
        (i, j, value)
        for i, row in enumerate(table)
        for j, value in enumerate(row)
        if value is not None
    ]
    width = max((len(row) for row in table), default=0)
    mean, rows, columns = _effects(cells, len(table), width)
    residuals = [(i, j, value - mean - rows[i] - columns[j]) for i, j, value in cells]
    left, right = _factors(residuals, len(table), width)
    return tuple(
        tuple(
            mean
            + rows[i]
            + columns[j]
            + sum(a * b for a, b in zip(left[i], right[j], strict=True))
            if value is None
            else value
            for j, value in enumerate(row)
        )
        for i, row in enumerate(table)
    )


def _effects(
    cells: list[tuple[int, int, float]], height: int, width: int
) -> tuple[float, list[float], list[float]]:
    """Return mean, row effects and column effects, by alternating ridge regression."""
    mean = sum(value for _, _, value in cells) / len(cells) if cells else 0.0
    rows, columns = [0.0] * height, [0.0] * width
    for _ in range(SWEEPS):
        rows = _means([(i, value - mean - columns[j]) for i, j, value in cells], height)
        columns = _means([(j, value - mean - rows[i]) for i, j, value in cells], width)
    return mean, rows, columns


def _means(values: list[tuple[int, float]], count: int) -> list[float]:
    sums, numbers = [0.0] * count, [0] * count
    for index, value in values:
        sums[index] += value
        numbers[index] += 1
    return [s / (n + RIDGE) for s, n in zip(sums, numbers, strict=True)]


def _factors(
    cells: list[tuple[int, int, float]], height: int, width: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Fit low-rank factors to the residuals by stochastic gradient descent."""
    generator = random.Random(1)
    left = [[generator.gauss(0.0, 0.1) for _ in range(FACTORS)] for _ in range(height)]
    right = [[generator.gauss(0.0, 0.1) for _ in range(FACTORS)] for _ in range(width)]
    for _ in range(min(EPOCHS, MOST_STEPS // max(len(cells), 1))):
        for i, j, value in cells:
            a, b, c = left[i]
            x, y, z = right[j]
            # written out, as most of the time is spent here
            error = value - (a * x + b * y + c * z)
            left[i] = [
                a + RATE * (error * x - REGULARISATION * a),
                b + RATE * (error * y - REGULARISATION * b),
                c + RATE * (error * z - REGULARISATION * c),
            ]
            right[j] = [
                x + RATE * (error * a - REGULARISATION * x),
                y + RATE * (error * b - REGULARISATION * y),
                z + RATE * (error * c - REGULARISATION * z),
            ]
    return left, right
