"""Accuracy of expected times: sizes that were never measured, after a quick characterisation.

A fresh daemon, its installed applications characterised with `quick`. Then the daemon is
asked what it expects of other sizes on every resource, and only then these are run: warm
up first, then three times; their median counts. The aim is a median error of 25 %. How
far the same sizes are off when they are characterised again says what the machine's own
noise is: no expectation can be better.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GaussianBlur
from hetapps.heat import Heat
from hetapps.markov import Markov
from libtask.apps import name_of
from libtask.characterisation import characterise, execution_seconds
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.client.client import Client
    from libtask.messages import Sample
    from libtask.task import Task

RUNS = 3
LONGEST_S = 8.0
"""Longer tasks are left out: a slow emulation would take the bench hours."""

OTHERS: tuple[Task, ...] = (
    Heat(n=384, steps=1024),
    Heat(n=512, steps=256),
    Heat(n=768, steps=512),
    Heat(n=1536, steps=128),
    GaussianBlur(n=512, sigma=2.0),
    GaussianBlur(n=768, sigma=4.0),
    GaussianBlur(n=1536, sigma=3.0),
    Markov(n=1280, stay=0.99, tolerance=1e-7, iterations=48),
    Markov(n=1536, stay=0.99, tolerance=1e-7, iterations=96),
    Markov(n=2560, stay=0.99, tolerance=1e-7, iterations=32),
    Correlation(rows=1500, columns=400),
    Correlation(rows=1500, columns=700),
    Correlation(rows=3000, columns=1500),
)
"""None of these sizes is among the samples that the applications offer."""


def run() -> list[dict[str, Any]]:
    """Measure; one row a size and resource, and the medians by application and in all."""
    with private_daemon() as client:
        apps = sorted({name_of(type(task)) for task in OTHERS})
        measured = characterise(client, apps, quick=True)
        expectations = [(task, _expected(client, task)) for task in OTHERS]
        rows = [
            row
            for task, expected in expectations
            for row in _compared(client, task, expected)
        ]
        again = characterise(client, apps, quick=True)
    medians = [_median(rows, app) for app in apps] + [_median(rows, None)]
    return [*medians, _noise(measured, again), *rows]


def _noise(first: list[Sample], second: list[Sample]) -> dict[str, Any]:
    """Compare two characterisations of the same sizes."""
    times = {(each.type, each.work, each.resource): each.seconds for each in first}
    errors = [
        abs(times[each.type, each.work, each.resource] - each.seconds) / each.seconds
        for each in second
        if (each.type, each.work, each.resource) in times
    ]
    return {
        "app": "the same sizes again",
        "comparisons": len(errors),
        "median_error": round(statistics.median(errors), 3),
        "within_25_percent": sum(error <= 0.25 for error in errors),
    }


def _expected(client: Client, task: Task) -> dict[str, tuple[float, float]]:
    """Ask what is expected, by resource: seconds and confidence."""
    held = client.submit(task, hold=True)
    prospects = client.explain(held.id).prospects
    held.cancel()
    return {
        each.resource: (each.remaining_s, each.confidence or 0.0)
        for each in prospects
        if each.remaining_s is not None
    }


def _compared(
    client: Client, task: Task, expected: dict[str, tuple[float, float]]
) -> Iterator[dict[str, Any]]:
    for resource, (seconds, confidence) in expected.items():
        if seconds > LONGEST_S:
            continue
        took = _measure(client, task, resource)
        yield {
            "app": name_of(type(task)),
            "task": repr(task)[:60],
            "resource": resource,
            "expected_s": round(seconds, 5),
            "took_s": round(took, 5),
            "error": round(abs(seconds - took) / took, 3),
            "confidence": round(confidence, 2),
        }


def _measure(client: Client, task: Task, resource: str) -> float:
    times = []
    for _ in range(1 + RUNS):
        handle = client.submit(task, resources=[resource])
        handle.result(300)
        times.append(execution_seconds(handle.info()))
    return statistics.median(times[1:])


def _median(rows: list[dict[str, Any]], app: str | None) -> dict[str, Any]:
    errors = [row["error"] for row in rows if app in (None, row["app"])]
    return {
        "app": app or "all",
        "comparisons": len(errors),
        "median_error": round(statistics.median(errors), 3) if errors else None,
        "within_25_percent": sum(error <= 0.25 for error in errors),
    }
