"""Settings of the pool's parts: those of the engine and of the broker.

`hetpool.setup.config` reads a user's `pool.toml` and makes these values of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from libtask.errors import InputError, NotAllowedError


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the parts of a pool reach each other.

    Attributes:
        scheduler: address of the scheduler, `tls://head:8786`.
        ca, cert, key: certificate files, all None without encryption, which only tests use.
        patience_s: seconds without an answer or a heartbeat after which a node is lost.
            At least 11: with less, a pause of a machine cuts its connections.

    """

    scheduler: str
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    patience_s: float = 12.0


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How jobs are placed, and when they are placed elsewhere.

    Attributes:
        planner: name of the planner of batches.
        share: share of the measured rate of a link that plans use.
        window_s: seconds for which jobs are gathered into a batch, where others came lately.
        lease_s: seconds without the scheduler after which a node holds the pool's jobs.
        replace_s: seconds after the loss of a node after which its jobs run elsewhere.
        group_s: jobs that are expected to be shorter travel in groups.
        group_size: jobs in a group at most.
        deviation: share by which a job may deviate from the plan before all that has not
            begun is planned again.
        copy_s: seconds between two copies of a job's snapshot to another node; 0: as
            often as pays, by Young and Daly, with `node_mtbf_s`.
        node_mtbf_s: mean time between failures of a node, seconds.

    """

    planner: str = "ncjm"
    share: float = 0.95
    window_s: float = 0.05
    lease_s: float = 10.0
    replace_s: float = 25.0
    group_s: float = 0.5
    group_size: int = 50
    deviation: float = 0.2
    copy_s: float = 0.0
    node_mtbf_s: float = 30 * 86_400.0

    def __post_init__(self) -> None:
        if self.replace_s < self.lease_s:
            raise InputError(
                f"replace_s: expected at least lease_s ({self.lease_s:g}), got "
                f"{self.replace_s:g}: jobs would run on two nodes at once"
            )


def refuse_root(*, allowed: bool) -> None:
    """Refuse to run as root: everyone with a certificate would be root on every node.

    Raises:
        NotAllowedError: this process is root's, and that is not allowed.

    """
    if os.geteuid() == 0 and not allowed:
        raise NotAllowedError(
            "a pool does not run as root, as it runs the code of everyone who has one of "
            "its certificates; start it as another user, or a private one with --allow-root"
        )
