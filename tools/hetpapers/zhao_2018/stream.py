"""Batches that arrive one after the other, each planned beside what is still going on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetsched.planning.batch.carry_over import after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsched.planning.batch.planners import Planner
    from hetsched.planning.batch.problem import Problem

STEADY = (0.2, 0.8)
"""Throughput is taken between the completions of these shares of all jobs."""


def throughput(planner: Planner, batches: Sequence[Problem], interval: float) -> float:
    """Jobs a second where a batch arrives every `interval` seconds."""
    finishes = []
    state = batches[0]
    for number, batch in enumerate(batches):
        batch_now = replace(batch, free_at=state.free_at, links=state.links)
        plan = planner.plan(batch_now)
        finishes.append(plan.finishes + number * interval)
        state = after(batch_now, plan, interval)
    done = np.sort(np.concatenate(finishes))
    first, last = (int(share * (len(done) - 1)) for share in STEADY)
    return float((last - first) / (done[last] - done[first]))
