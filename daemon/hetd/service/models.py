"""What users ask of the measured execution times: enter, list, forget."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import msgspec

from hetd.estimates.point import Figures, refuse_nonsense
from hetd.estimates.table import application
from hetd.service.resources import resource_named
from libtask import messages as m

if TYPE_CHECKING:
    from hetd.node import Node
    from hetd.service.permissions import Permissions
    from hetd.transport.router import Peer


class ModelDesk:
    """Answers what users ask of the estimates."""

    def __init__(self, node: Node, rights: Permissions) -> None:
        self._node = node
        self._rights = rights

    def learn(self, peer: Peer, request: m.Learn) -> m.Message:
        self._rights.demand_rule(peer)
        for sample in request.samples:
            resource_named(self._node, sample.resource)
        learnt = [Figures(*msgspec.structs.astuple(each)) for each in request.samples]
        for known in learnt:
            refuse_nonsense(known)
        for known in learnt:
            self._node.journal.batch.keep(self._node.estimates.enter(known))
        return m.Done(request.request)

    def models(self, peer: Peer, request: m.Models) -> m.Message:
        samples = [
            m.Sample(*astuple(known)) for known in self._node.estimates.figures()
        ]
        return m.ModelList(request.request, samples)

    def forget(self, peer: Peer, request: m.Forget) -> m.Message:
        self._rights.demand_rule(peer)
        names, resources = set(request.names), set(request.resources)

        def chosen(known: Figures) -> bool:
            named = {known.type, application(known.type)} & names
            return bool(named or not names) and (
                not resources or known.resource in resources
            )

        gone = self._node.estimates.forget(chosen)
        for known in gone:
            self._node.journal.batch.forget(known)
        samples = [m.Sample(*astuple(known)) for known in gone]
        return m.ModelList(request.request, samples)
