"""What users ask of the node as a whole: its resources, its policy, its end."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.tasks.operator_settings import Setting
from hetsched import events as e
from hetsched.policies import (
    all_policies,
    describe_policy,
    make_policy,
    package_of,
    parameters_of,
)
from libtask import messages as m
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.requests.permissions import Permissions
    from hetd.runtime import Node
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
            request.request,
            [self._device_info(peer, name) for name in self._node.devices],
        )

    def _device_info(self, peer: Peer, name: str) -> m.DeviceInfo:
        state = self._node.scheduler.system.states[name]
        lost = not (state.up and state.slots)
        condition = "lost" if lost else "draining" if state.draining else "up"
        health = self._node.watchdog.health
        if health.unusable(name):
            condition = "unusable"
        return msgspec.structs.replace(
            self._node.metering.describe(
                self._node.devices[name], self._node.clock.now()
            ),
            state=condition,
            reason=self._reason(name),
            testing=health.testing(name),
            running=list(state.running),
            queued=len(state.queue),
            avoided=self._node.circuits.told(
                self._rights.whose(peer, mine=False),
                lambda pair: pair.resource == name,
            ),
        )

    def _reason(self, name: str) -> str:
        """Say why a resource takes no tasks; empty: it does."""
        drained = self._node.settings.drained.get(name)
        why = [self._node.watchdog.health.reason(name)]
        if drained is not None:
            why.append(
                f"drained {drained.told()}; `hetctl resume {name}` gives it back"
            )
        return "; ".join(filter(None, why))

    def occupy(self, peer: Peer, request: m.Drain) -> m.Message:
        self._rights.demand_rule(peer)
        name = request.resource
        if request.on:
            self._drain(peer, resource_named(self._node, name).spec.name)
        elif name in self._node.settings.drained and name not in self._node.devices:
            self._node.settings.resume(name)
        else:
            self._give_back(resource_named(self._node, name).spec.name)
        return m.Done(request.request)

    def _drain(self, peer: Peer, name: str) -> None:
        self._node.settings.drain(name, Setting(peer.uid, self._node.clock.wall()))
        self._node.happen(e.ResourceDrained(name))
        self._note(peer, "drained", f"{name} is drained", name)

    def _give_back(self, name: str) -> None:
        self._node.settings.resume(name)
        self._node.watchdog.health.trust(name)
        self._node.happen(e.ResourceReturned(name))

    def test(self, peer: Peer, request: m.TestDevices) -> m.Message:
        """Begin self-tests: of the named resources, or of all with a driver to test."""
        self._rights.demand_rule(peer)
        every = [
            name
            for name, device in self._node.devices.items()
            if device.spec.driver == "opencl"
        ]
        wanted = [resource_named(self._node, name) for name in request.resources]
        for name in [device.spec.name for device in wanted] or every:
            self._node.watchdog.health.test(name, self._node.clock.now())
        return m.Done(request.request)

    def policies(self, peer: Peer, request: m.Policies) -> m.Message:
        if request.set is not None and request.configured:
            raise InputError("set, configured: expected one of them")
        if request.set is not None:
            self._set_policy(peer, request.set, request.parameters)
        elif request.configured:
            self._configured_policy(peer)
        policy, setting = self._node.scheduler.policy, self._node.settings.policy
        known = all_policies()
        return m.PolicyInfo(
            request.request,
            policy_name(self._node),
            parameters_of(policy),
            {name: describe_policy(kind) for name, kind in known.items()},
            set=setting.told() if setting is not None else "",
            configured=self._node.config.policy,
            packages={name: package_of(name) for name in known},
        )

    def _set_policy(self, peer: Peer, name: str, parameters: dict[str, Any]) -> None:
        self._rights.demand_rule(peer)
        policy = make_policy(name, parameters)
        now = self._node.clock.wall()
        self._node.settings.choose(Setting(peer.uid, now, name, parameters))
        self._node.change_policy(policy)
        told = ", ".join(f"{key}={value}" for key, value in parameters.items())
        text = f"policy {name}" + (f" with {told}" if told else "")
        self._note(peer, "policy-set", text)

    def _configured_policy(self, peer: Peer) -> None:
        self._rights.demand_rule(peer)
        config = self._node.config
        policy = make_policy(config.policy, config.policy_parameters)
        self._node.settings.choose_configured()
        self._node.change_policy(policy)
        self._note(peer, "policy-set", f"policy {config.policy}, the configured one")

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
    return next(name for name, known in all_policies().items() if known is kind)
