"""A batch of jobs and what there is to compute them on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats, Ints

ANYWHERE = -1
"""The requester of jobs whose data meets no egress limit."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A rate that an earlier batch was given; `requester` may be `ANYWHERE`."""

    responder: int
    requester: int
    start: float
    finish: float
    rate: float


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The capacity of the network interfaces, in units a second; infinite = no limit.

    Attributes:
        ingress: one a responder.
        egress: one a requester.
        promised: what earlier batches still use of both.

    """

    ingress: Floats
    egress: Floats
    promised: tuple[Promise, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A batch. Jobs, accelerators, responders and requesters are numbered from 0.

    Attributes:
        seconds: of each job on each accelerator, (jobs, accelerators); infinite = cannot.
        sizes: of the jobs' data, in any unit; 0 = nothing to transfer.
        requesters: where the data of each job comes from, or `ANYWHERE`.
        responders: which responder each accelerator is in.
        free_at: when each accelerator is done with earlier batches, seconds.
        links: the network.

    """

    seconds: Floats
    sizes: Floats
    requesters: Ints
    responders: Ints
    free_at: Floats
    links: Links = field(repr=False)

    @property
    def jobs(self) -> int:
        return len(self.sizes)

    @property
    def accelerators(self) -> int:
        return len(self.free_at)

    def only(self, jobs: Ints) -> Problem:
        """Keep some jobs."""
        return replace(
            self,
            seconds=self.seconds[jobs],
            sizes=self.sizes[jobs],
            requesters=self.requesters[jobs],
        )

    def ingress_of(self) -> Floats:
        """Rate into each accelerator's responder, (accelerators,)."""
        return self.links.ingress[self.responders]

    def egress_of(self) -> Floats:
        """Rate out of each job's requester, (jobs,)."""
        known = self.requesters != ANYWHERE
        rates = np.full(self.jobs, np.inf)
        rates[known] = self.links.egress[self.requesters[known]]
        return rates

    def transfer_seconds(self) -> Floats:
        """Time of each transfer with both links to itself, (jobs, accelerators)."""
        rates = np.minimum(self.egress_of()[:, None], self.ingress_of()[None, :])
        return np.asarray(self.sizes[:, None] / rates, dtype=np.float64)
