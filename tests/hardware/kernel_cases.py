"""Small runs of every kernel: what is computed, in which strips, and what is right.

Results of `exact` cases have the same bits on every device, after any moves; the others
are within a tolerance of the reference. Sizes are odd on purpose: edges of tiles, blocks,
vectors and strips lie inside the data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GRANULE, GaussianBlur
from hetapps.heat import Heat
from hetapps.markov import Markov
from hetapps.tables import generate_table
from hetkernels.correlation import cpu as correlation_cpu
from hetkernels.correlation import opencl as correlation_opencl
from hetkernels.correlation import plan as correlation_plan
from hetkernels.correlation.finish import finish
from hetkernels.correlation.reference import correlation as correlation_reference
from hetkernels.gaussian_blur import opencl as blur_opencl
from hetkernels.gaussian_blur.reference import blur_float64
from hetkernels.heat import opencl as heat_opencl
from hetkernels.heat.reference import heat_reference
from hetkernels.markov.layout import distribution
from hetkernels.markov.reference import power_iteration

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from numpy.typing import NDArray

    from hetkernels.markov.layout import Chain
    from libtask.task import Task

Extent = Literal["trial", "brief", "usual", "large", "compiled"]
EXTENTS: tuple[Extent, ...] = get_args(Extent)
"""How much is run; each has all of those before. trial: whether a driver works; brief: each
kernel once or twice; usual: moves, too; large: what takes minutes where kernels are
interpreted; compiled: what takes too long there."""

APPS = ("heat", "gaussian-blur", "markov", "correlation")

CORRELATION_ACCURACY = {"float32": 1e-5, "float64": 1e-12}
MARKOV_ACCURACY = {"float32": 1e-6, "float64": 1e-14}
"""Of a probability; chains here have up to some hundred states."""


@dataclass(frozen=True)
class Case:
    """One run of an application.

    Attributes:
        app: the application, one of `APPS`.
        name: tells the case from others of the application.
        make: makes the task, loaded; twice the same.
        arrays: the results on the host.
        verify: compares the results with the reference.
        strip: iterations of a strip.
        exact: whether all devices give the same bits.
        small_tiles: whether the host's constants are those of `small_tiles`.
        move_every: iterations after which the task moves on; 0: only one device.
        extent: the smallest extent of a run that has the case.

    """

    app: str
    name: str
    make: Callable[[], Any]
    arrays: Callable[[Any], list[NDArray[Any]]]
    verify: Callable[[Any], None]
    strip: int
    exact: bool = True
    small_tiles: bool = False
    move_every: int = 0
    extent: Extent = "usual"

    def digest(self, task: Task) -> str:
        """Return a digest of the results; empty where bits may differ."""
        if not self.exact:
            return ""
        content = b"".join(array.tobytes() for array in self.arrays(task))
        return hashlib.sha256(content).hexdigest()


SMALL_TILES: tuple[tuple[ModuleType, dict[str, Any]], ...] = (
    (heat_opencl, {"TILE": 16, "CELLS": 4, "BLOCK": 4, "GPU_STEPS": (4, 6)}),
    (
        blur_opencl,
        {"WIDTH": 8, "HEIGHT": 4, "EACH": 2, "CHUNK": 4, "INNER": 2}
        | {"SUMS_PIXELS": 500},
    ),
    (correlation_plan, {"ONE_BLOCK": 64, "BLOCK": 64, "DEPTH": 32, "RUN": 16}),
    (correlation_opencl, {"DEPTH": 32, "RUN": 16}),
    (correlation_cpu, {"DEPTH": 32}),
)
"""Constants of the host's code that kernels get as macros, smaller: a few cells then make
several tiles, blocks, chunks and bands. Those of Markov are compiled into its CPU kernel."""


@dataclass
class SmallTiles:
    """Sets the constants of `SMALL_TILES` for the time of a block."""

    _kept: list[tuple[ModuleType, str, Any]] = field(default_factory=list)

    def __enter__(self) -> None:
        for module, constants in SMALL_TILES:
            for name, value in constants.items():
                self._kept.append((module, name, getattr(module, name)))
                setattr(module, name, value)

    def __exit__(self, *_error: object) -> None:
        while self._kept:
            setattr(*self._kept.pop())


# ---------------------------------------------------------------- heat


def heat_task(rows: int, columns: int, edges: str, steps: int = 45) -> Heat:
    """Make a loaded heat task of random temperatures from 0 to 1."""
    task = Heat(steps=steps, edges=edges)
    task.n = 1
    task.load()
    random = np.random.default_rng(rows + columns)
    task.grid = random.random((rows, columns), dtype=np.float32)
    task.plate = type(task.plate)(rows, columns, task.alpha, task.plate.insulated)
    return task


def _heat(shape: tuple[int, int], edges: str, steps: int, **how: Any) -> Case:
    def make() -> Heat:
        return heat_task(*shape, edges, steps)

    def verify(task: Heat) -> None:
        insulated = edges == "insulated"
        grid = make().grid
        exact = heat_reference(grid, task.alpha, insulated=insulated, steps=steps)
        np.testing.assert_allclose(task.grid, exact, atol=2e-6)

    name = f"{shape[0]}x{shape[1]} {edges} {steps} steps"
    return Case("heat", name, make, lambda task: [task.grid], verify, **how)


# ---------------------------------------------------------------- Gaussian blur


def blur_task(shape: tuple[int, int, int], dtype: str, sigma: float) -> GaussianBlur:
    """Make a loaded blur of a random image of (planes, rows, columns)."""
    task = GaussianBlur(sigma=sigma, n=1)
    task.load()
    scale = {"uint8": 255, "uint16": 65535}.get(dtype, 1)
    random = np.random.default_rng(sum(shape))
    task.image = (random.random(shape) * scale).astype(dtype)
    task.blurred = np.zeros_like(task.image)
    task.dtype = task.image.dtype
    return task


def verify_blur(task: GaussianBlur) -> None:
    """Compare with the reference: integers are the nearest, or as good as."""
    exact = blur_float64(task.image, task.sigma, task.truncate)
    if task.dtype.kind == "f":
        np.testing.assert_allclose(task.blurred, exact, atol=1e-6)
    else:
        near_half = 0.5 + 1e-6 * np.iinfo(task.dtype).max
        assert np.abs(task.blurred - exact).max() <= near_half


def _blur(shape: tuple[int, int, int], dtype: str, sigma: float, **how: Any) -> Case:
    name = f"{'x'.join(map(str, shape))} {dtype} sigma {sigma:g}"
    return Case(
        "gaussian-blur",
        name,
        lambda: blur_task(shape, dtype, sigma),
        lambda task: [task.blurred],
        verify_blur,
        GRANULE,
        **how,
    )


# ---------------------------------------------------------------- Markov chains


def markov_task(**parameters: Any) -> Markov:
    """Make a loaded power iteration of a generated chain."""
    task = Markov(**parameters)
    task.load()
    return task


def verify_markov(task: Markov) -> None:
    """Compare with as many steps of the reference; the iteration must have converged."""
    assert task.walk.status[1], "has not converged"
    exact = power_iteration(_matrix(task.chain), int(task.walk.status[0]))
    accuracy = MARKOV_ACCURACY[task.dtype]
    np.testing.assert_allclose(distribution(task.walk), exact, rtol=0, atol=accuracy)


def _matrix(chain: Chain) -> Any:
    if chain.form == "dense":
        return chain.arrays[0].astype(np.float64)
    import scipy.sparse

    offsets, rows, values = chain.arrays
    columns = (values.astype(np.float64), rows, offsets)
    return scipy.sparse.csc_array(columns, shape=(chain.n, chain.n))


def _markov(n: int, dtype: str, density: float = 1.0, **how: Any) -> Case:
    tolerance = {"float32": 1e-5, "float64": 1e-8}[dtype]
    parameters = {"n": n, "dtype": dtype, "density": density, "stay": 0.3}
    return Case(
        "markov",
        f"{n} states, density {density:g} {dtype}",
        lambda: markov_task(**parameters, tolerance=tolerance),
        lambda task: list(task.walk),
        verify_markov,
        3,
        **how,
    )


# ---------------------------------------------------------------- correlation


def correlation_task(**parameters: Any) -> Correlation:
    """Make a loaded correlation of a generated table."""
    task = Correlation(**parameters)
    task.load()
    return task


def verify_correlation(task: Correlation) -> None:
    """Compare the finished matrix with the reference; what the task has is kept."""
    matrix = task.matrix.copy()
    finish(matrix, task.constant)
    table = generate_table(task.rows, task.columns, task.seed)
    accuracy = CORRELATION_ACCURACY[task.dtype]
    exact = correlation_reference(table.values)
    np.testing.assert_allclose(matrix, exact, rtol=0, atol=accuracy)


def _correlation(shape: tuple[int, int], dtype: str, **how: Any) -> Case:
    rows, columns = shape
    return Case(
        "correlation",
        f"{rows}x{columns} {dtype}",
        lambda: correlation_task(rows=rows, columns=columns, dtype=dtype),
        lambda task: [task.matrix],
        verify_correlation,
        1,
        exact=False,
        **how,
    )


# ---------------------------------------------------------------- the cases

SMALL: dict[str, Any] = {"small_tiles": True}
BRIEF: dict[str, Any] = {"small_tiles": True, "extent": "brief"}
MOVED: dict[str, Any] = {"small_tiles": True, "move_every": 1}
TRIAL: dict[str, Any] = {"extent": "trial"}
LARGE: dict[str, Any] = {"extent": "large"}
COMPILED: dict[str, Any] = {"extent": "compiled"}

CASES: tuple[Case, ...] = (
    _heat((3, 5), "fixed", 3, strip=8, **TRIAL),
    _heat((1, 1), "insulated", 2, strip=8, **SMALL),
    _heat((1, 19), "fixed", 5, strip=8, **SMALL),
    _heat((9, 35), "insulated", 13, strip=8, **BRIEF),
    _heat((21, 17), "fixed", 12, strip=4, **MOVED),
    _heat((57, 113), "insulated", 3, strip=8, **LARGE),
    _heat((9, 1030), "fixed", 3, strip=8, **LARGE),
    _blur((1, 5, 7), "uint8", 1.0, **TRIAL),
    _blur((1, 1, 1), "uint8", 1.9, **SMALL),
    _blur((2, 11, 37), "uint8", 1.0, **BRIEF),
    _blur((1, 9, 21), "uint16", 1.9, **SMALL),
    _blur((1, 9, 13), "float32", 0.1, **BRIEF),
    _blur((1, 21, 5), "float32", 1.9, **SMALL),
    _blur((1, 199, 6), "uint8", 0.6, **MOVED),
    _blur((1, 200, 70), "uint16", 1.0, **LARGE),
    _blur((1, 33, 600), "uint8", 5.1, **LARGE),
    _blur((1, 70, 9), "uint8", 64.0, **COMPILED),
    _markov(1, "float32", **TRIAL),
    _markov(11, "float32"),
    _markov(135, "float32", move_every=3, extent="brief"),
    _markov(19, "float64"),
    _markov(67, "float32", 0.2),
    _markov(261, "float64", 0.1, move_every=3, extent="brief"),
    _markov(300, "float64", **LARGE),
    _markov(1100, "float32", **COMPILED),
    _correlation((5, 1), "float32", small_tiles=True, **TRIAL),
    _correlation((21, 65), "float64", **BRIEF),
    _correlation((70, 131), "float32", **MOVED),
    _correlation((100, 70), "float64", **LARGE),
    _correlation((2100, 33), "float32", move_every=1, **LARGE),
)


def cases(app: str, extent: Extent) -> list[Case]:
    """List the cases of an application."""
    wanted = EXTENTS[: EXTENTS.index(extent) + 1]
    return [case for case in CASES if case.app == app and case.extent in wanted]
