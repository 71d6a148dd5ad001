"""The demo's batch: what is computed, by which policy, and when each task arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GaussianBlur
from hetapps.heat import Heat
from hetapps.markov import Markov

if TYPE_CHECKING:
    from pathlib import Path

    from hetdemo.inputs import Inputs
    from libtask.task import Task

APPS = ("gaussian-blur", "heat", "markov", "correlation")
"""The applications of the batch, as arguments of `characterise`."""

POLICY = "finish-time"
"""The policy of the daemon: its default."""

GAP_S = 0.25
"""Seconds between the arrivals of one wave."""

WAVE = 5
"""Tasks that arrive shortly after each other: more than the node has slots."""

CALM = 2
"""Unfinished tasks at which the next wave arrives: resources fall idle between waves,
which is when tasks that wait or run in the wrong place move to a better one."""


@dataclass(frozen=True, slots=True)
class Job:
    """A named task of the batch."""

    name: str
    task: Task


def make_batch(inputs: Inputs, folder: Path) -> list[Job]:
    """List the batch in the order of arrival; outputs go into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    lists = [make(inputs, folder) for make in (_blurs, _heats, _markovs, _correlations)]
    return [job for jobs in zip(*lists, strict=True) for job in jobs]


def _blurs(inputs: Inputs, folder: Path) -> list[Job]:
    """Blur photographs: 8-bit colour, 16-bit colour, 16-bit grey."""
    wanted = [
        ("blur-china-large", inputs.china_large, 24.0),
        ("blur-flower-grey", inputs.flower_large, 24.0),
        ("blur-china", inputs.china, 3.0),
        ("blur-china-soft", inputs.china_large, 30.0),
        ("blur-flower", inputs.flower, 8.0),
        ("blur-grey-soft", inputs.flower_large, 30.0),
    ]
    return [
        Job(
            name,
            GaussianBlur(
                input=str(file), output=str(folder / (name + file.suffix)), sigma=sigma
            ),
        )
        for name, file, sigma in wanted
    ]


def _heats(_inputs: Inputs, folder: Path) -> list[Job]:
    """Let heat spread on generated plates, small and large, with both kinds of edges."""
    wanted = [
        ("heat-small", 256, "fixed", 80_000),
        ("heat-medium", 1024, "insulated", 20_000),
        ("heat-large", 2048, "fixed", 6_000),
        ("heat-tiny", 128, "insulated", 100_000),
        ("heat-odd", 999, "fixed", 20_000),
        ("heat-wide", 1500, "insulated", 10_000),
    ]
    return [
        Job(
            name,
            Heat(n=n, edges=edges, steps=steps, seed=n, output=_npy(folder, name)),
        )
        for name, n, edges, steps in wanted
    ]


def _markovs(inputs: Inputs, folder: Path) -> list[Job]:
    """Find steady states of dense and sparse chains, from files and generated."""
    wanted: dict[str, dict[str, Any]] = {
        "markov-dense": {"input": str(inputs.dense_chain)},
        "markov-sparse": {"input": str(inputs.sparse_chain)},
        "markov-1000": {"n": 1000, "stay": 0.995},
        "markov-1800": {"n": 1800, "stay": 0.99},
        "markov-rare": {"n": 60_000, "density": 0.0005, "stay": 0.99},
        "markov-1200": {"n": 1200, "stay": 0.99},
    }
    return [
        Job(name, Markov(output=_npy(folder, name), iterations=3000, **parameters))
        for name, parameters in wanted.items()
    ]


def _correlations(inputs: Inputs, folder: Path) -> list[Job]:
    """Correlate the columns of real tables, and of a generated one."""
    wanted: dict[str, dict[str, Any]] = {
        "corr-digit-pairs": {"input": str(inputs.digit_pairs)},
        "corr-cancer": {"input": str(inputs.cancer)},
        "corr-generated": {"rows": 20_000, "columns": 2000},
        "corr-digits": {"input": str(inputs.digits)},
        "corr-double": {"input": str(inputs.digit_pairs), "dtype": "float64"},
        "corr-tall": {"rows": 50_000, "columns": 500, "seed": 1},
    }
    return [
        Job(name, Correlation(output=_npy(folder, name), **parameters))
        for name, parameters in wanted.items()
    ]


def _npy(folder: Path, name: str) -> str:
    return str(folder / f"{name}.npy")


class Arrivals:
    """Says when the next task of the batch arrives.

    Args:
        count: tasks in the batch.

    """

    def __init__(self, count: int) -> None:
        self._left = count
        self._in_wave = 0
        self._next_at = 0.0

    @property
    def over(self) -> bool:
        """Return whether all tasks have arrived."""
        return self._left == 0

    def due(self, now: float, unfinished: int) -> bool:
        """Return whether the next task arrives now; if so, count it as arrived.

        Args:
            now: seconds of any steady clock.
            unfinished: tasks that arrived and have not ended.

        """
        if self.over or now < self._next_at:
            return False
        if self._in_wave == WAVE:
            if unfinished > CALM:
                return False
            self._in_wave = 0
        self._in_wave += 1
        self._left -= 1
        self._next_at = now + GAP_S
        return True
