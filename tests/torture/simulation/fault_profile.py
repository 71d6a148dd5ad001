"""The fault profile of a run: enabled faults, their rates, and the users' load.

Each seed draws another one. Many runs have few kinds of faults: what is found then is
found quickly, and not hidden behind other trouble.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hetd.config import Config, LimitsTable, SnapshotsTable
from hetsched.policies import POLICIES
from libtask import messages as m
from libtask.documents import ALL_CORES
from torture.simulation.world import EPOCH

if TYPE_CHECKING:
    from random import Random

STRIPS_S = ((0.001, 0.01), (0.01, 0.1), (0.001, 0.01, 0.1, 1.0))
"""Seconds that an iteration takes."""

RATES = {
    "crash": 0.4,
    "crash_at_step": 1.0,
    "power_cut": 0.05,
    "worker_killed": 1.5,
    "worker_stopped": 0.2,
    "worker_stuck": 0.5,
    "launcher_killed": 0.15,
    "launcher_stopped": 0.1,
    "client_killed": 0.3,
    "connection_broken": 0.3,
    "disk_full": 0.15,
    "disk_error": 0.05,
    "wall_jump": 0.2,
    "slow_network": 0.2,
}
"""Mean rate of each fault, where it is enabled, per second of simulated time."""


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """The parameters of a run.

    Attributes:
        rates: fault -> times a second; absent: it does not happen.
        users, clients: how many; a client belongs to one of the users, or rules.
        pause_s: mean time between two things that a client does, seconds.
        deadlines, dependencies, endless, device_failures, application_failures: shares
            of tasks.
        strips_s: seconds that iterations take.

    """

    rates: dict[str, float]
    users: int
    clients: int
    pause_s: float
    deadlines: float
    dependencies: float
    endless: float
    device_failures: float
    application_failures: float
    strips_s: tuple[float, ...]


def draw_fault_profile(chance: Random) -> FaultProfile:
    """Draw a fault profile."""
    faults = sorted(chance.sample(sorted(RATES), chance.randint(0, len(RATES))))
    return FaultProfile(
        rates={fault: RATES[fault] * chance.uniform(0.3, 2) for fault in faults},
        users=chance.randint(1, 3),
        clients=chance.randint(1, 4),
        pause_s=chance.choice((0.02, 0.1, 0.5)),
        deadlines=chance.choice((0.0, 0.3)),
        dependencies=chance.choice((0.0, 0.3)),
        endless=chance.choice((0.0, 0.05)),
        device_failures=chance.choice((0.0, 0.1)),
        application_failures=chance.choice((0.0, 0.1)),
        strips_s=chance.choice(STRIPS_S),
    )


def draw_config(chance: Random) -> Config:
    """Draw a configuration of the daemon."""
    return Config(
        policy=chance.choice(sorted(POLICIES)),
        stage=chance.choice((0, 1, 1, 2)),
        attempts=chance.choice((3, 3, 100)),
        cancel_grace_s=chance.choice((0.2, 5.0)),
        restore_grace_s=chance.choice((0.5, 5.0)),
        queue_limit=chance.choice((0, 3)),
        probing=chance.choice((1.0, 0.5)),
        strip_limit_s=chance.choice((5.0, 60.0)),
        setup_limit_s=chance.choice((20.0, 600.0)),
        meters=False,
        snapshots=SnapshotsTable(kept_s=0.0),
    )


def with_needs(config: Config, chance: Random) -> Config:
    """Count cores and memory in a configuration, and limit users' running tasks."""
    running: Any = chance.choice(("unlimited", "unlimited", 1, 2))
    return replace(
        config,
        cores=chance.choice((2, 4, 8)),
        task_memory_mb=16,
        limits=LimitsTable(running=running),
    )


def draw_needs(chance: Random) -> dict[str, Any]:
    """Draw what a task needs: fields of its description."""
    at_once = chance.choice((0, 0, 2, 5))
    limited, begins = chance.random() < 0.2, chance.random() < 0.2
    return {
        "cores": chance.choice((0, 0, 1, 1, 2, ALL_CORES)),
        "memory_bytes": chance.choice((0, 0, 1 << 20, 12 << 20)),
        "device_bytes": chance.choice((0, 0, 1 << 20)),
        "time_limit_s": chance.uniform(0.5, 30) if limited else None,
        "retries": chance.choice((0, 0, 1, 3)),
        "array": f"of {at_once}",
        "at_once": at_once,
        "begin": EPOCH + chance.uniform(-5, 30) if begins else None,
    }


def draw_devices(chance: Random) -> list[m.DeviceInfo]:
    """Draw the resources of a node: the CPU, and some of the others."""
    slots = chance.choice((1, 2, 4))
    devices = [m.DeviceInfo(m.DeviceSpec("cpu", "cpu", "null"), slots=slots)]
    for kind in ("gpu", "fpga"):
        devices += [
            m.DeviceInfo(m.DeviceSpec(f"{kind}{number}", kind, "null"))
            for number in range(chance.choice((0, 1, 1, 2)))
        ]
    return devices
