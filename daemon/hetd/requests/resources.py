"""Requests about the node as a whole: resources, policy, notes, stop."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.tasks.operator_settings import OperatorSetting
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
    from hetd.runtime import Runtime
    from hetd.store import Store
    from hetd.transport.router import Peer


MOST_NOTES = 2000
"""Maximum number of notes in one answer."""


class NodeRequests:
    """Handles requests about the node.

    Args:
        stop: called when an administrator asks the daemon to stop.

    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        rights: Permissions,
        stop: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._rights = rights
        self._stop = stop

    def devices(self, peer: Peer, request: m.Devices) -> m.Message:
        return m.DeviceList(
            request.request,
            [self._device_info(peer, name) for name in self._runtime.devices],
        )

    def _device_info(self, peer: Peer, name: str) -> m.DeviceInfo:
        state = self._runtime.scheduler.system.states[name]
        lost = not (state.up and state.slots)
        condition = "lost" if lost else "draining" if state.draining else "up"
        health = self._runtime.watchdog.health
        if health.unusable(name):
            condition = "unusable"
        return msgspec.structs.replace(
            self._runtime.metering.describe(
                self._runtime.devices[name], self._runtime.clock.now()
            ),
            state=condition,
            reason=self._reason(name),
            testing=health.testing(name),
            running=list(state.running),
            queued=len(state.queue),
            avoided=self._runtime.circuits.told(
                self._rights.whose(peer, mine=False),
                lambda pair: pair.resource == name,
            ),
        )

    def _reason(self, name: str) -> str:
        """Return why a resource takes no tasks; empty if it takes tasks."""
        drained = self._runtime.settings.drained.get(name)
        why = [self._runtime.watchdog.health.reason(name)]
        if drained is not None:
            why.append(
                f"drained {drained.describe()}; `hetctl resume {name}` puts it back into service"
            )
        return "; ".join(filter(None, why))

    def drain(self, peer: Peer, request: m.Drain) -> m.Message:
        self._rights.require_admin(peer)
        name = request.resource
        if request.on:
            self._drain(peer, resource_named(self._runtime, name).spec.name)
        elif (
            name in self._runtime.settings.drained and name not in self._runtime.devices
        ):
            self._runtime.settings.resume(name)
        else:
            self._give_back(resource_named(self._runtime, name).spec.name)
        return m.Done(request.request)

    def _drain(self, peer: Peer, name: str) -> None:
        self._runtime.settings.drain(
            name, OperatorSetting(peer.uid, self._runtime.clock.wall())
        )
        self._runtime.dispatch(e.ResourceDrained(name))
        self._note(peer, "drained", f"{name} is drained", name)

    def _give_back(self, name: str) -> None:
        self._runtime.settings.resume(name)
        self._runtime.watchdog.health.trust(name)
        self._runtime.dispatch(e.ResourceReturned(name))

    def test(self, peer: Peer, request: m.TestDevices) -> m.Message:
        """Start self-tests of the named resources, or of all OpenCL devices."""
        self._rights.require_admin(peer)
        every = [
            name
            for name, device in self._runtime.devices.items()
            if device.spec.driver == "opencl"
        ]
        wanted = [resource_named(self._runtime, name) for name in request.resources]
        for name in [device.spec.name for device in wanted] or every:
            self._runtime.watchdog.health.test(name, self._runtime.clock.now())
        return m.Done(request.request)

    def policies(self, peer: Peer, request: m.Policies) -> m.Message:
        if request.set is not None and request.configured:
            raise InputError("set, configured: expected one of them")
        if request.set is not None:
            self._set_policy(peer, request.set, request.parameters)
        elif request.configured:
            self._configured_policy(peer)
        policy, setting = self._runtime.scheduler.policy, self._runtime.settings.policy
        known = all_policies()
        return m.PolicyInfo(
            request.request,
            policy_name(self._runtime),
            parameters_of(policy),
            {name: describe_policy(kind) for name, kind in known.items()},
            set=setting.describe() if setting is not None else "",
            configured=self._runtime.config.policy,
            packages={name: package_of(name) for name in known},
        )

    def _set_policy(self, peer: Peer, name: str, parameters: dict[str, Any]) -> None:
        self._rights.require_admin(peer)
        policy = make_policy(name, parameters)
        now = self._runtime.clock.wall()
        self._runtime.settings.choose(OperatorSetting(peer.uid, now, name, parameters))
        self._runtime.change_policy(policy)
        told = ", ".join(f"{key}={value}" for key, value in parameters.items())
        text = f"policy {name}" + (f" with {told}" if told else "")
        self._note(peer, "policy-set", text)

    def _configured_policy(self, peer: Peer) -> None:
        self._rights.require_admin(peer)
        config = self._runtime.config
        policy = make_policy(config.policy, config.policy_parameters)
        self._runtime.settings.choose_configured()
        self._runtime.change_policy(policy)
        self._note(peer, "policy-set", f"policy {config.policy}, the configured one")

    def notes(self, peer: Peer, request: m.Notes) -> m.Message:
        if not 0 < request.limit <= MOST_NOTES:
            raise InputError(f"limit: expected 1 to {MOST_NOTES}, got {request.limit}")
        found = self._store.notes(request.since, request.limit)
        return m.NoteList(request.request, [m.Note(*each) for each in found])

    def _note(
        self, peer: Peer, what: str, text: str, resource: str | None = None
    ) -> None:
        """Record what an administrator changed, with their uid."""
        told = f"{text}, by uid {peer.uid}"
        self._runtime.journal.record_note(
            self._runtime.clock.wall(), what, resource, told
        )

    def stop(self, peer: Peer, request: m.Stop) -> m.Message:
        self._rights.require_admin(peer)
        self._stop()
        return m.Done(request.request)


def resource_named(runtime: Runtime, name: str) -> m.DeviceInfo:
    """Find a resource by name.

    Raises:
        NotFoundError: there is no resource of this name.

    """
    device = runtime.devices.get(name)
    if device is None:
        near = difflib.get_close_matches(name, runtime.devices, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        offered = ", ".join(runtime.devices)
        raise NotFoundError(f"no resource {name!r}; there are: {offered}{hint}")
    return device


def policy_name(runtime: Runtime) -> str:
    """Return the name of the active policy."""
    kind = type(runtime.scheduler.policy)
    return next(name for name, known in all_policies().items() if known is kind)
