"""Requests about what was measured: add, list and delete times and loads."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import msgspec

from hetd.devices.circuits import MOST_TOLD
from hetd.requests.pages import AnswerPage
from hetd.requests.resources import resource_named
from hetd.requests.slices import LOOKS, chunks
from hetd.tasks.stored_profiles import forget_profiles
from hetd.tasks.task_types import installed_applications
from hetsched import events as e
from hetsched.estimates.point import (
    Figures,
    owner_of,
    refuse_nonsense,
    shared_type,
)
from hetsched.estimates.table import application
from libtask import messages as m
from libtask.apps import short_name
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Generator

    from hetd.devices.node_devices import NodeDevices
    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Steps
    from hetd.runtime import Runtime
    from hetd.transport.router import Peer
    from hetsched.breaker import Pair
    from hetsched.estimates.point import Key
    from hetsched.estimates.table import EstimateTable


class ModelRequests:
    """Handles requests about the estimates.

    Samples of a task type are visible to the users whose tasks were measured and to
    administrators; samples of installed applications are visible to all users.
    """

    def __init__(
        self,
        runtime: Runtime,
        devices: NodeDevices,
        estimates: EstimateTable,
        rights: Permissions,
    ) -> None:
        self._runtime = runtime
        self._journal = runtime.journal
        self._devices = devices.infos
        self._circuits = devices.circuits
        self._loads = devices.loads
        self._estimates = estimates
        self._rights = rights
        self._installed = installed_applications()

    def learn(self, peer: Peer, request: m.AddSamples) -> Steps:
        self._rights.require_admin(peer)
        named = [each.resource for each in request.samples]
        for name in (*named, *(each.resource for each in request.loads)):
            resource_named(self._devices, name)
        self._loads.check(request.loads)
        samples = [Figures(*msgspec.structs.astuple(each)) for each in request.samples]
        for known in samples:
            refuse_nonsense(known)
        self._loads.learn(request.loads)
        for number, some in enumerate(chunks(samples)):
            if number:
                yield
            for known in some:
                self._journal.batch.keep(self._estimates.enter(known))
            self._journal.forget_samples(self._estimates)
        return m.Done(request.request)

    def models(self, peer: Peer, request: m.Models) -> Steps:
        if not 0 < request.limit <= m.MAX_SAMPLES:
            text = f"limit: expected 1 to {m.MAX_SAMPLES}, got {request.limit}"
            raise InputError(text)
        page: AnswerPage[m.Sample] = AnswerPage(request.limit)
        place = request.after
        last = (place.type, place.resource, place.grain) if place else None
        following: m.SamplePlace | None = None
        hidden = 0
        while following is None:
            keys = self._estimates.keys_after(last, LOOKS)
            for key in keys:
                if not self._is_shown(peer, key[0]):
                    hidden += 1
                elif not page.take(self._sample(peer, key)):
                    following = m.SamplePlace(*last) if last else None
                    break
                last = key
            if len(keys) < LOOKS:
                break
            yield
        owner = self._rights.whose(peer, mine=False)
        first = request.after is None
        return m.ModelList(
            request.request,
            page.parts,
            following,
            hidden,
            avoided=self._circuits.told(owner) if first else [],
            loads=self._visible_loads(peer) if first else [],
        )

    def _visible_loads(self, peer: Peer) -> list[m.LearnedLoad]:
        """Return the loads of installed applications; administrators see all."""
        if self._rights.is_admin(peer.uid):
            return self._loads.all()
        public = self._installed
        return [
            msgspec.structs.replace(
                load,
                slowdowns={a: s for a, s in load.slowdowns.items() if a in public},
            )
            for load in self._loads.all()
            if load.app in public
        ]

    def _is_shown(self, peer: Peer, task_type: str) -> bool:
        owner = owner_of(task_type)
        if owner is not None:
            return owner == peer.uid or self._rights.is_admin(peer.uid)
        if application(task_type) in self._installed:
            return True
        measurers = self._journal.measurers.get(task_type, ())
        return peer.uid in measurers or self._rights.is_admin(peer.uid)

    def _sample(self, peer: Peer, key: Key) -> m.Sample:
        """Describe a measurement; users see their own types as they named them."""
        sample = m.Sample(*astuple(self._estimates.figures_of(key)))
        if owner_of(sample.type) != peer.uid:
            return sample
        return msgspec.structs.replace(sample, type=shared_type(sample.type))

    def forget(self, peer: Peer, request: m.DeleteSamples) -> Steps:
        """Delete samples, learned loads and failures; users only their own failures."""
        avoided = self._own_failures(peer, request)
        count = loads = 0
        if not avoided or self._rights.is_admin(peer.uid):
            self._rights.require_admin(peer)
            loads = self._forget_loads(request)
            count = yield from self._forget_samples(request)
        gone: list[m.AvoidedPair] = []
        while avoided:
            gone += avoided
            self._forget_failures(peer, avoided)
            yield
            avoided = self._own_failures(peer, request)
        return m.DeletedSamples(request.request, count, gone[:MOST_TOLD], loads)

    def _forget_loads(self, request: m.DeleteSamples) -> int:
        names, resources = set(request.names), set(request.resources)
        return self._loads.forget(
            lambda load: (
                (not names or load.app in names)
                and (not resources or load.resource in resources)
            )
        )

    def _forget_samples(self, request: m.DeleteSamples) -> Generator[None, None, int]:
        names, resources = set(request.names), set(request.resources)
        last: Key | None = None
        count = 0
        while keys := self._estimates.keys_after(last, LOOKS):
            last = keys[-1]
            chosen = [
                key
                for key in keys
                if (not names or _names(key[0]) & names)
                and (not resources or key[1] in resources)
            ]
            count += len(chosen)
            self._estimates.forget(chosen)
            self._journal.forget_samples(self._estimates)
            types = {key[0] for key in chosen}
            forget_profiles(self._estimates.profiles, types, self._journal)
            if len(keys) == LOOKS:
                yield
        return count

    def _own_failures(
        self, peer: Peer, request: m.DeleteSamples
    ) -> list[m.AvoidedPair]:
        """List some of the selected failures that a user may delete."""
        names, resources = set(request.names), set(request.resources)
        owner = self._rights.whose(peer, mine=False)

        def chosen(pair: Pair) -> bool:
            named = not names or bool({pair.app, short_name(pair.app)} & names)
            return named and (not resources or pair.resource in resources)

        return self._circuits.told(owner, chosen)

    def _forget_failures(self, peer: Peer, avoided: list[m.AvoidedPair]) -> None:
        apps = frozenset(each.app for each in avoided)
        resources = frozenset(each.resource for each in avoided)
        owner = self._rights.whose(peer, mine=False)
        self._runtime.dispatch(e.FailuresForgotten(owner, apps, resources))


def _names(kept: str) -> set[str]:
    """Return what a type may be called in a request, with its user or without."""
    shared = shared_type(kept)
    return {kept, application(kept), shared, application(shared)}
