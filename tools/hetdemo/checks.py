"""Checks: every result of the demo against a float64 reference.

Reading of inputs aside, the references share no code with what they check. They run
in processes of their own, as many as there are processors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GaussianBlur
from hetapps.heat import Heat
from hetapps.markov import Markov
from hetsim.processes import process_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray

    from libtask.task import Task

GREY_LEVELS = 0.6
"""Half a level is the rounding to whole ones; the rest is float32 sums of 16 bits."""

DEGREES = 0.01
"""Of a plate at 20 to 100 degrees, after up to 100,000 float32 steps."""

PROBABILITY = 1e-4
"""L1 distance after the same number of steps. A step rounds by some 1e-7, and a chain
that stays put with 0.995 forgets only 0.005 of that in each: 2e-5, and some room."""

COEFFICIENT = 2e-5
"""Of a correlation matrix in float32; BLAS adds up thousands of rows in its own order."""

DOUBLE_COEFFICIENT = 1e-11
"""Of one in float64."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The deviation of a result from its reference.

    Attributes:
        error: largest deviation; infinite if the result has another shape or
            other undefined values than the reference.
        tolerance: largest allowed deviation.

    """

    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance

    def __str__(self) -> str:
        word = "right" if self.passed else "wrong"
        return f"{word}: deviates by {self.error:.1e}, of {self.tolerance:g} allowed"


def check_all(
    done: Sequence[tuple[Task, dict[str, Any]]],
) -> Generator[Verdict, None, None]:
    """Check tasks with their results; yield the verdicts in their order.

    A caller that does not take all verdicts closes the iterator, which ends the processes.
    """
    workers = min(len(os.sched_getaffinity(0)), max(1, len(done)))
    with process_pool(workers) as pool:
        calls = [pool.submit(check, task, result) for task, result in done]
        for call in calls:
            yield call.result()


def check(task: Task, result: dict[str, Any]) -> Verdict:
    """Compare a task's output file with the reference.

    Args:
        task: with the parameters that it was submitted with; not loaded.
        result: what it returned.

    """
    return CHECKS[type(task)](task, result)


def _check_blur(task: GaussianBlur, result: dict[str, Any]) -> Verdict:
    from hetdemo.spectral import blur

    sharp, blurred = (read_planes(Path(file)) for file in (task.input, task.output))
    exact = blur(sharp, task.sigma, task.truncate)
    return Verdict(_deviation(blurred, exact), GREY_LEVELS)


def read_planes(path: Path) -> NDArray[Any]:
    """Read an image as (planes, rows, columns), without the application's code."""
    import cv2
    import tifffile

    if path.suffix in {".tif", ".tiff"}:
        image: NDArray[Any] = tifffile.imread(path)
    else:
        # blue, green, red; the order of planes is the same for both that are compared
        image = np.asarray(cv2.imread(str(path), cv2.IMREAD_UNCHANGED))
    return np.moveaxis(np.atleast_3d(image), -1, 0)


def _check_heat(task: Heat, result: dict[str, Any]) -> Verdict:
    from hetdemo.spectral import heat_after

    task.load()
    insulated = task.edges == "insulated"
    exact = heat_after(task.grid, task.alpha, insulated=insulated, steps=task.steps)
    return Verdict(_deviation(np.load(task.output), exact), DEGREES)


def _check_markov(task: Markov, result: dict[str, Any]) -> Verdict:
    from hetkernels.markov.reference import power_iteration

    exact = power_iteration(_transitions(task), result["iterations"])
    steady = np.load(task.output)
    error = float(np.abs(steady - exact).sum()) if result["converged"] else np.inf
    return Verdict(error, PROBABILITY)


def _transitions(task: Markov) -> Any:
    """Read or generate the matrix in float64, dense or scipy.sparse."""
    import scipy.sparse

    if task.input.endswith(".npz"):
        return scipy.sparse.load_npz(task.input)
    if task.input:
        return np.load(task.input)
    task.load()
    n = task.chain.n
    if task.chain.form == "dense":
        return task.chain.arrays[0].astype(np.float64)
    offsets, rows, values = task.chain.arrays
    return scipy.sparse.csc_array(
        (values.astype(np.float64), rows.astype(np.int64), offsets.astype(np.int64)),
        shape=(n, n),
    )


def _check_correlation(task: Correlation, result: dict[str, Any]) -> Verdict:
    from hetkernels.correlation.reference import correlation

    exact = correlation(_table(task).astype(np.float64))
    error = _deviation(np.load(task.output), exact)
    single = task.dtype == "float32"
    return Verdict(error, COEFFICIENT if single else DOUBLE_COEFFICIENT)


def _table(task: Correlation) -> NDArray[Any]:
    from hetapps.tables import generate_table

    if task.input.endswith(".csv"):
        return np.loadtxt(task.input, delimiter=",", skiprows=1)
    if task.input:
        table: NDArray[Any] = np.load(task.input)
        return table
    return generate_table(task.rows, task.columns, task.seed).values


CHECKS: dict[type[Task], Callable[[Any, dict[str, Any]], Verdict]] = {
    GaussianBlur: _check_blur,
    Heat: _check_heat,
    Markov: _check_markov,
    Correlation: _check_correlation,
}


def _deviation(result: NDArray[Any], exact: NDArray[np.float64]) -> float:
    """Return the largest deviation; both must be undefined (NaN) at the same places."""
    if result.shape != exact.shape:
        return np.inf
    undefined = np.isnan(exact)
    if not np.array_equal(undefined, np.isnan(result)):
        return np.inf
    distance = np.abs(result.astype(np.float64) - exact)
    return float(np.max(distance, initial=0.0, where=~undefined))
