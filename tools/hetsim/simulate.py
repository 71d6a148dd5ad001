"""Run one scenario under one policy and sum it up."""

from __future__ import annotations

import gc
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from hetsched.policies import make_policy
from hetsim.bound import lower_bound_of
from hetsim.result import summarize
from hetsim.simulation import Simulation
from hetsim.workload import expected_seconds, resources_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from hetsim.result import Result
    from hetsim.scenario import Scenario


def simulate(  # noqa: PLR0913  what a user of `hetsim run` may choose
    scenario: Scenario,
    policy: str,
    parameters: dict[str, Any] | None = None,
    *,
    noise: float = 0.0,
    seed: int = 0,
    correct: bool = False,
) -> Result:
    """Run a scenario.

    Args:
        scenario: what arrives where.
        policy: name of the policy; `parameters`: of it.
        noise: the scheduler's expectations are wrong by up to this share.
        seed: of the errors, of other programs' loads, and of the noise of counters.
        correct: strips correct the expectations while they run, as in the daemon.

    Raises:
        InputError: no such policy or parameter.

    """
    decider = make_policy(policy, parameters or {})
    expected = expected_seconds(scenario, noise, random.Random(seed))
    simulation = Simulation(scenario, decider, expected, correct=correct, seed=seed)
    with _without_collector():
        began = time.perf_counter()
        simulation.run()
        took = time.perf_counter() - began
    resources = resources_of(scenario)
    events = simulation.agenda.handled
    result = summarize(policy, resources, simulation.jobs, events, took)
    return _beside_measured(result, scenario.measured_makespan)


def _beside_measured(result: Result, measured: float | None) -> Result:
    """Compare with what the real node took, where that is known."""
    if measured is None:
        return result
    error = result.makespan / measured - 1.0
    return msgspec.structs.replace(
        result, measured_makespan=measured, makespan_error=error
    )


def with_bound(result: Result, scenario: Scenario) -> Result:
    """Add the lower bound of the makespan."""
    return msgspec.structs.replace(result, lower_bound=lower_bound_of(scenario))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the cycle collector out: it walks all waiting tasks again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
