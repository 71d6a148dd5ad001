"""What users ask of the node as a whole: its resources, its policy, its end."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import msgspec

from hetd.core import events as e
from hetd.policies import POLICIES, describe_policy, make_policy, parameters_of
from libtask import messages as m
from libtask.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.node import Node
    from hetd.service.permissions import Permissions
    from hetd.transport.router import Peer


class NodeDesk:
    """Answers what users ask of the node.

    Args:
        stop: called when a user who may asks the daemon to stop.

    """

    def __init__(
        self, node: Node, rights: Permissions, stop: Callable[[], None]
    ) -> None:
        self._node = node
        self._rights = rights
        self._stop = stop

    def devices(self, peer: Peer, request: m.Devices) -> m.Message:
        return m.DeviceList(
            request.request, [self._device_info(name) for name in self._node.devices]
        )

    def _device_info(self, name: str) -> m.DeviceInfo:
        state = self._node.scheduler.system.states[name]
        condition = "lost" if not state.up else "draining" if state.draining else "up"
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
        return m.Done(request.request)

    def policies(self, peer: Peer, request: m.Policies) -> m.Message:
        if request.set is not None:
            self._rights.demand_rule(peer)
            policy = make_policy(request.set, request.parameters)
            self._node.happen(e.PolicyChanged(policy))
        policy = self._node.scheduler.policy
        name = policy_name(self._node)
        available = {n: describe_policy(kind) for n, kind in POLICIES.items()}
        return m.PolicyInfo(request.request, name, parameters_of(policy), available)

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
