"""The demo's graph of tasks: blur -> two correlations -> a Markov step, on a photograph.

The photograph is blurred; the brightness of the blurred columns is correlated on the left
and on the right half; the coefficients, scaled to probabilities, are the transitions of a
chain of image columns, whose steady state says which columns resemble all others most. Small
functions between the applications bring each file into the form that the next one reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GaussianBlur
from hetapps.images import read_planes
from hetapps.markov import Markov
from hetdemo.batch import Job

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle

JOB = "pipeline"
"""Name of the graph, for `hetctl graph`."""
SIGMA = 12.0
STAY = 0.5
"""Probability to stay in a state: no chain swings for ever."""
LEAST = 1e-3
"""Added to each coefficient before the scaling, so that every state is reached."""
ITERATIONS = 3000


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The submitted tasks.

    Attributes:
        steps: all tasks, in the order in which they were submitted.
        jobs: the applications among them with the files that they read, for the checks.

    """

    steps: list[TaskHandle]
    jobs: dict[int, Job]


def submit_pipeline(client: Client, photograph: Path, folder: Path) -> Pipeline:
    """Submit the graph; its files go into `folder`.

    Args:
        client: connection to the daemon.
        photograph: a grey image.
        folder: exists.

    """
    files = {name: str(folder / f"{name}.npy") for name in NAMES}
    picture = str(folder / "soft.png")
    soft = GaussianBlur(input=str(photograph), output=picture, sigma=SIGMA)
    with client.graph(JOB):
        blurred = client.submit(soft, name="blur")
        steps, jobs = [blurred], {blurred.id: Job("blur", soft)}
        matrices: list[TaskHandle] = []
        for side in SIDES:
            table = files[f"{side}-columns"]
            cut = client.submit(cut_half, blurred, side, table, name=f"cut-{side}")
            output = files[f"{side}-correlations"]
            parameters = {"input": cut, "output": output}
            matrix = client.submit("correlation", parameters, name=f"correlate-{side}")
            steps += [cut, matrix]
            jobs[matrix.id] = Job(
                f"correlate-{side}", Correlation(input=table, output=output)
            )
            matrices.append(matrix)
        chain = files["chain"]
        made = client.submit(make_chain, *matrices, chain, name="make-chain")
        steady: dict[str, Any] = {"output": files["steady"], "iterations": ITERATIONS}
        walk = client.submit("markov", {"input": made, **steady}, name="markov")
        jobs[walk.id] = Job("markov", Markov(input=chain, **steady))
    return Pipeline([*steps, made, walk], jobs)


SIDES = ("left", "right")
NAMES = (
    *(f"{side}-{what}" for side in SIDES for what in ("columns", "correlations")),
    "chain",
    "steady",
)
"""Names of the NPY files of the graph."""


def cut_half(blurred: dict[str, Any], side: str, table: str) -> str:
    """Write one half of a blurred image as a table of its columns; return the file.

    Args:
        blurred: result of `gaussian-blur`.
        side: `left` or `right`.
        table: NPY file to write.

    """
    (image,) = read_planes(blurred["output"])
    middle = image.shape[1] // 2
    half = image[:, :middle] if side == "left" else image[:, -middle:]
    np.save(table, np.ascontiguousarray(half, np.float32))
    return table


def make_chain(left: dict[str, Any], right: dict[str, Any], chain: str) -> str:
    """Write a Markov chain between image columns that resemble each other; return the file.

    Args:
        left: result of `correlation`; `right`: another of the same shape.
        chain: NPY file to write.

    """
    weights = sum(np.abs(np.load(each["output"])) for each in (left, right))
    weights = np.nan_to_num(weights.astype(np.float64)) + LEAST
    weights *= (1.0 - STAY) / weights.sum(axis=1, keepdims=True)
    weights[np.diag_indices(len(weights))] += STAY
    np.save(chain, weights)
    return chain


def resembling(steady: Path, count: int = 3) -> list[int]:
    """Return the columns of a half that resemble all others most, by the steady state."""
    order = np.argsort(-np.load(steady), kind="stable")
    return [int(column) for column in order[:count]]
