"""Reverse-mode differentiation of the few operations that the network needs.

Operations are recorded on a tape in the order in which they are computed; `gradients` goes
through it backwards. Arrays are those of NumPy, in double precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Indices: TypeAlias = NDArray[np.intp]


class TapeValue:
    """A value on the tape, and the gradient of the result by it."""

    __slots__ = ("grad", "value")

    def __init__(self, value: Floats) -> None:
        self.value = value
        self.grad = np.zeros_like(value)


class Tape:
    """Records operations."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def variable(self, value: Floats) -> TapeValue:
        """Return a value by which the result is differentiated, or a constant."""
        return TapeValue(value)

    def gradients(self, result: TapeValue) -> None:
        """Compute the gradient of a scalar result by all values; once."""
        result.grad = np.ones_like(result.value)
        for step in reversed(self._steps):
            step()

    # ------------------------------------------------------------ operations

    def matmul(self, a: TapeValue, b: TapeValue) -> TapeValue:
        out = TapeValue(a.value @ b.value)

        def back() -> None:
            a.grad += out.grad @ b.value.T
            b.grad += a.value.T @ out.grad

        return self._record(out, back)

    def apply(self, matrix: Any, a: TapeValue) -> TapeValue:
        """Multiply by a constant sparse matrix: sums, means and choices of rows."""
        out = TapeValue(matrix @ a.value)

        def back() -> None:
            a.grad += matrix.T @ out.grad

        return self._record(out, back)

    def add(self, a: TapeValue, b: TapeValue) -> TapeValue:
        """Add values of one shape, or a row to all rows."""
        out = TapeValue(a.value + b.value)

        def back() -> None:
            a.grad += out.grad
            same = b.value.shape == out.value.shape
            b.grad += out.grad if same else out.grad.sum(axis=0)

        return self._record(out, back)

    def multiply(self, a: TapeValue, b: TapeValue) -> TapeValue:
        out = TapeValue(a.value * b.value)

        def back() -> None:
            a.grad += out.grad * b.value
            b.grad += out.grad * a.value

        return self._record(out, back)

    def tanh(self, a: TapeValue) -> TapeValue:
        out = TapeValue(np.tanh(a.value))

        def back() -> None:
            a.grad += out.grad * (1.0 - out.value**2)

        return self._record(out, back)

    def sigmoid(self, a: TapeValue) -> TapeValue:
        out = TapeValue(0.5 * (np.tanh(0.5 * a.value) + 1.0))

        def back() -> None:
            a.grad += out.grad * out.value * (1.0 - out.value)

        return self._record(out, back)

    def exp(self, a: TapeValue) -> TapeValue:
        out = TapeValue(np.exp(a.value))

        def back() -> None:
            a.grad += out.grad * out.value

        return self._record(out, back)

    def rows(self, a: TapeValue, begin: int, end: int) -> TapeValue:
        out = TapeValue(a.value[begin:end])

        def back() -> None:
            a.grad[begin:end] += out.grad

        return self._record(out, back)

    def columns(self, a: TapeValue, begin: int, end: int) -> TapeValue:
        out = TapeValue(a.value[:, begin:end])

        def back() -> None:
            a.grad[:, begin:end] += out.grad

        return self._record(out, back)

    def reshape(self, a: TapeValue, shape: tuple[int, ...]) -> TapeValue:
        out = TapeValue(a.value.reshape(shape))

        def back() -> None:
            a.grad += out.grad.reshape(a.value.shape)

        return self._record(out, back)

    def concatenate(self, parts: Sequence[TapeValue], axis: int) -> TapeValue:
        out = TapeValue(np.concatenate([part.value for part in parts], axis=axis))
        ends = np.cumsum([part.value.shape[axis] for part in parts])[:-1]

        def back() -> None:
            for part, grad in zip(parts, np.split(out.grad, ends, axis), strict=True):
                part.grad += grad

        return self._record(out, back)

    def log_softmax(self, a: TapeValue, groups: Indices, count: int) -> TapeValue:
        """Return the logarithms of the probabilities of scores, by groups of a vector."""
        highest = np.full(count, -np.inf)
        np.maximum.at(highest, groups, a.value)
        shifted = a.value - highest[groups]
        whole = np.bincount(groups, np.exp(shifted), count)
        out = TapeValue(shifted - np.log(whole)[groups])

        def back() -> None:
            sums = np.bincount(groups, out.grad, count)
            a.grad += out.grad - np.exp(out.value) * sums[groups]

        return self._record(out, back)

    def weighted_sum(self, a: TapeValue, weights: Floats) -> TapeValue:
        """Return the sum of values times constants."""
        out = TapeValue(np.asarray((a.value * weights).sum()))

        def back() -> None:
            a.grad += out.grad * weights

        return self._record(out, back)

    def _record(self, out: TapeValue, back: Callable[[], None]) -> TapeValue:
        self._steps.append(back)
        return out
