"""The least makespan that tasks could have had, from `hetsim bound`.

The simulator knows how to bound a schedule, and is a program of its own: it is asked
with the scenario that `hetctl trace` would write.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from hetctl.scenario import ScenarioWriter
from libtask.errors import HetError

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.messages import TaskInfo

COMMAND = (sys.executable, "-m", "hetsim", "bound", "/dev/stdin", "--json")


def lower_bound(client: Client, tasks: list[TaskInfo]) -> float | None:
    """Return the bound in seconds from the first submission; None: it cannot be told.

    It takes measured times where tasks ran, and expected ones elsewhere.

    Raises:
        HetError: the simulator failed.

    """
    if any(info.state != "completed" for info in tasks):
        return None  # what was not completed needs no time in any schedule
    writer = ScenarioWriter(client.devices(), client.models(), client.policy())
    document = writer.document(tasks)
    return None if writer.unknown else _asked(msgspec.json.encode(document))


def _asked(scenario: bytes) -> float:
    done = subprocess.run(COMMAND, input=scenario, capture_output=True, check=False)  # noqa: S603  our own interpreter and module
    if done.returncode != 0:
        raise HetError(f"hetsim bound: {done.stderr.decode(errors='replace').strip()}")
    bound: float = msgspec.json.decode(done.stdout)["lower_bound"]
    return bound
