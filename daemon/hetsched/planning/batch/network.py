"""The network while a plan is made: the free capacity of each link."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hetsched.planning.batch.problem import ANYWHERE
from hetsched.planning.batch.profile import Profile, end_through

if TYPE_CHECKING:
    from hetsched.planning.batch.arrays import Floats
    from hetsched.planning.batch.problem import Links, Problem

PartResult: TypeAlias = tuple[float, float, float]
"""Start, finish, rate."""

NO_PIECES = np.empty((0, 3))


class Network:
    """Keeps a profile of the free capacity for every responder and requester."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self._ingress = [Profile.constant(rate) for rate in links.ingress]
        self._egress = [Profile.constant(rate) for rate in links.egress]
        into: defaultdict[int, list[PartResult]] = defaultdict(list)
        out_of: defaultdict[int, list[PartResult]] = defaultdict(list)
        for each in links.promised:
            into[each.responder].append((each.start, each.finish, each.rate))
            out_of[each.requester].append((each.start, each.finish, each.rate))
        out_of.pop(ANYWHERE, None)
        _promise(self._ingress, into, links.ingress)
        _promise(self._egress, out_of, links.egress)

    def between(self, responder: int, requester: int) -> Profile | None:
        """Return the free capacity for a transfer; None = no limit."""
        limited = []
        if np.isfinite(self.links.ingress[responder]):
            limited.append(self._ingress[responder])
        if requester != ANYWHERE and np.isfinite(self.links.egress[requester]):
            limited.append(self._egress[requester])
        if not limited:
            return None
        return limited[0] if len(limited) == 1 else limited[0].least(limited[1])

    def end(self, responder: int, requester: int, size: float) -> float:
        """Return when a transfer of `size` would be done if it started at once, in seconds."""
        if size <= 0:
            return 0.0
        into = self._ingress[responder]
        if requester == ANYWHERE:
            return end_through(into, into, size)
        return end_through(into, self._egress[requester], size)

    def into(self, responder: int) -> Profile:
        """Return the free capacity of a responder's link."""
        return self._ingress[responder]

    def out_of(self, requester: int) -> Profile:
        """Return the free capacity of a requester's link."""
        return self._egress[requester]

    def take(self, pieces: Floats, responder: int, requester: int) -> None:
        """Use these rates on both sides."""
        limit = float(self.links.ingress[responder])
        if np.isfinite(limit) and len(pieces):
            self._ingress[responder] = self._ingress[responder].without(pieces, limit)
        if requester == ANYWHERE or not len(pieces):
            return
        limit = float(self.links.egress[requester])
        if np.isfinite(limit):
            self._egress[requester] = self._egress[requester].without(pieces, limit)

    def append(self, size: float, responder: int) -> Floats | None:
        """Transfer at full rate behind all others; None where that is not soonest."""
        left = self._ingress[responder]
        rate, start = float(left.rates[-1]), float(left.times[-1])
        if not np.isfinite(rate) or left.rates[:-1].any():
            return None
        end = start + size / rate
        self._ingress[responder] = Profile(np.array([0.0, end]), np.array([0.0, rate]))
        return np.array([[start, end, rate]])


def _promise(
    left: list[Profile], used: dict[int, list[PartResult]], limits: Floats
) -> None:
    """Take what earlier batches hold, all pieces of a link at once."""
    for host, pieces in used.items():
        if np.isfinite(limits[host]):
            left[host] = left[host].without(np.array(pieces), float(limits[host]))


def send_first(network: Network, problem: Problem, job: int, accelerator: int) -> Floats:  # fmt: skip
    """Transfer a job as soon as can be, with all that is left; return the pieces."""
    responder = int(problem.responders[accelerator])
    requester = int(problem.requesters[job])
    size = float(problem.sizes[job])
    if size <= 0:
        return NO_PIECES
    if requester == ANYWHERE:
        pieces = network.append(size, responder)
        if pieces is not None:
            return pieces
    left = network.between(responder, requester)
    if left is None:
        return NO_PIECES
    pieces = left.first(size)
    network.take(pieces, responder, requester)
    return pieces


def arrival(pieces: Floats) -> float:
    """Return when the last of the data is there, in seconds."""
    return float(pieces[-1, 1]) if len(pieces) else 0.0
