"""What users ask of the node as a whole: its resources, its policy, its end."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import msgspec

from hetd.core import events as e
from hetd.policies import POLICIES, describe_policy, make_policy, parameters_of
from libtask import messages as m
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.node import Node
    from hetd.service.permissions import Permissions
    from hetd.store import Store
    from hetd.transport.router import Peer


MOST_NOTES = 2000
"""Notes in one answer; their texts are short."""


class NodeDesk:
    """Answers what users ask of the node.

    Args:
        stop: called when a user who may asks the daemon to stop.

    """

    def __init__(
        self, node: Node, store: Store, rights: Permissions, stop: Callable[[], None]
    ) -> None:
        self._node = node
        self._store = store
        self._rights = rights
        self._stop = stop

    def devices(self, peer: Peer, request: m.Devices) -> m.Message:
        return m.DeviceList(
            request.request, [self._device_info(name) for name in self._node.devices]
        )

    def _device_info(self, name: str) -> m.DeviceInfo:
        state = self._node.scheduler.system.states[name]
        lost = not (state.up and state.slots)
        condition = "lost" if lost else "draining" if state.draining else "up"
        return msgspec.structs.replace(
            self._node.metering.describe(
                self._node.devices[name], self._node.clock.now()
            ),
            state=condition,
            reason=self._node.discipline.health.reason(name),
            running=list(state.running),
            queued=len(state.queue),
        )

    def occupy(self, peer: Peer, request: m.Occupy) -> m.Message:
        self._rights.demand_rule(peer)
        resource_named(self._node, request.resource)
        change = e.ResourceDrained if request.drain else e.ResourceReturned
        if not request.drain:
            self._node.discipline.health.trust(request.resource)
        self._node.happen(change(request.resource))
        if request.drain:
            text = f"{request.resource} is drained"
            self._note(peer, "drained", text, request.resource)
        return m.Done(request.request)

    def policies(self, peer: Peer, request: m.Policies) -> m.Message:
        if request.set is not None:
            self._rights.demand_rule(peer)
            policy = make_policy(request.set, request.parameters)
            self._node.happen(e.PolicyChanged(policy))
            told = ", ".join(f"{k}={v}" for k, v in request.parameters.items())
            text = f"policy {request.set}" + (f" with {told}" if told else "")
            self._note(peer, "policy-set", text)
        policy = self._node.scheduler.policy
        name = policy_name(self._node)
        available = {n: describe_policy(kind) for n, kind in POLICIES.items()}
        return m.PolicyInfo(request.request, name, parameters_of(policy), available)

    def notes(self, peer: Peer, request: m.Notes) -> m.Message:
        if not 0 < request.limit <= MOST_NOTES:
            raise InputError(f"limit: expected 1 to {MOST_NOTES}, got {request.limit}")
        found = self._store.notes(request.since, request.limit)
        return m.NoteList(request.request, [m.Note(*each) for each in found])

    def _note(
        self, peer: Peer, what: str, text: str, resource: str | None = None
    ) -> None:
        """Keep what a user did to the node; who it was is for those who read it."""
        told = f"{text}, by uid {peer.uid}"
        self._node.journal.note(self._node.clock.wall(), what, resource, told)

    def stop(self, peer: Peer, request: m.Stop) -> m.Message:
        self._rights.demand_rule(peer)
        self._stop()
        return m.Done(request.request)


def resource_named(node: Node, name: str) -> m.DeviceInfo:
    """Find a resource of the node.

    Raises:
        NotFoundError: there is none of that name.

    """
    device = node.devices.get(name)
    if device is None:
        near = difflib.get_close_matches(name, node.devices, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        offered = ", ".join(node.devices)
        raise NotFoundError(f"no resource {name!r}; there are: {offered}{hint}")
    return device


def policy_name(node: Node) -> str:
    """Name the policy in force."""
    kind = type(node.scheduler.policy)
    return next(name for name, known in POLICIES.items() if known is kind)
