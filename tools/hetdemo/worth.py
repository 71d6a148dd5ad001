"""The benefit of migration: the same batch without it, simulated from the measured times.

The simulator runs the daemon's own policies on the tasks as they arrived, with the times
that they took where they ran, and those measured before the batch elsewhere; strips
correct the latter as in the daemon. How far it can be relied on is seen by simulating
the policy that the batch had, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from hetctl.export.scenario import ScenarioWriter
from hetsim.scenario import read_scenario
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from libtask.client.client import Client
    from libtask.messages import DeviceInfo, TaskInfo

WITHOUT = "affinity"
"""The policy that moves nothing: each task on the resource that fits it best."""


@dataclass(frozen=True, slots=True)
class Worth:
    """Makespans of the batch, seconds.

    Attributes:
        policy: the one that it had.
        real: what it took.
        simulated: what the simulator says of that policy.
        without: what it says of `WITHOUT`.

    """

    policy: str
    real: float
    simulated: float
    without: float


def write_scenario(
    client: Client,
    devices: Sequence[DeviceInfo],
    infos: Sequence[TaskInfo],
    path: Path,
) -> bool:
    """Write the batch as a scenario for `hetsim run`; False: not all of it is known."""
    writer = ScenarioWriter(list(devices), client.models(), client.policy())
    document = writer.document(list(infos))
    path.write_bytes(msgspec.json.encode(document))
    completed = all(info.state == "completed" for info in infos)
    return completed and not writer.unknown


def worth_of(scenario: Path) -> Worth:
    """Simulate a batch with the policy that it had, and without migration."""
    batch = read_scenario(scenario)
    policy = batch.policy or ""
    had = simulate(batch, policy, dict(batch.policy_parameters), correct=True)
    without = simulate(batch, WITHOUT, correct=True)
    return Worth(policy, batch.measured_makespan or 0.0, had.makespan, without.makespan)


def worth_lines(worth: Worth) -> Iterator[str]:
    """Write the makespans side by side."""
    error = worth.simulated / worth.real - 1.0 if worth.real else 0.0
    yield (
        f"makespan under {worth.policy!r}: {worth.real:.1f} s; simulated from the times"
        f" that were measured: {worth.simulated:.1f} s ({error:+.0%})"
    )
    gain = 1.0 - worth.simulated / worth.without if worth.without else 0.0
    compared = f"{gain:.0%} less" if gain >= 0 else f"{-gain:.0%} more"
    yield (
        f"the same arrivals under {WITHOUT!r}, without migration, simulated:"
        f" {worth.without:.1f} s; with migration it is {compared}"
    )
