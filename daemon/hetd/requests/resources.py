"""Requests about the resources: describe, drain, test them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from hetd.tasks.operator_settings import OperatorSetting
from hetsched import events as e
from hetsched.policy import uses_belief
from hetsched.system import SECOND
from libtask import messages as m
from libtask.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hetd.devices.node_devices import NodeDevices
    from hetd.requests.notes import NoteRequests
    from hetd.requests.permissions import Permissions
    from hetd.runtime import Runtime
    from hetd.transport.router import Peer
    from hetsched.crowding import Crowding


Condition: TypeAlias = Literal["up", "draining", "lost", "unusable"]


class ResourceRequests:
    """Handles requests about the resources."""

    def __init__(
        self,
        runtime: Runtime,
        devices: NodeDevices,
        notes: NoteRequests,
        rights: Permissions,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._system = runtime.scheduler.system
        self._settings = runtime.settings
        self._devices = devices.infos
        self._metering = devices.metering
        self._circuits = devices.circuits
        self._health = devices.health
        self._counters = devices.counters
        self._notes = notes
        self._rights = rights

    def devices(self, peer: Peer, request: m.Devices) -> m.Message:
        return m.DeviceList(
            request.request,
            [self._device_info(peer, name) for name in self._devices],
            shared_loads(self._system.crowding, self._clock.now()),
            uses_belief(self._scheduler.policy),
            [] if self._counters is None else self._counters.describe(),
            loads_of(self._system.crowding, request.types, list(self._devices)),
        )

    def states(self) -> list[m.ResourceChanged]:
        """Return which resources take tasks, for their watchers."""
        states = self._system.states
        return [
            m.ResourceChanged(
                name,
                self._condition(name),
                states[name].own_slots if states[name].usable else 0,
                self._reason(name),
            )
            for name in self._devices
        ]

    def _condition(self, name: str) -> Condition:
        """Return the state of a resource, as `DeviceInfo` has it."""
        state = self._system.states[name]
        if self._health.unusable(name):
            return "unusable"
        if not (state.up and state.own_slots):
            return "lost"
        return "draining" if state.draining else "up"

    def _device_info(self, peer: Peer, name: str) -> m.DeviceInfo:
        state, health = self._system.states[name], self._health
        return msgspec.structs.replace(
            self._metering.describe(self._devices[name], self._clock.now()),
            state=self._condition(name),
            reason=self._reason(name),
            testing=health.testing(name),
            running=list(state.running),
            queued=len(state.queue) + len(state.trailing),
            avoided=self._circuits.told(
                self._rights.whose(peer, mine=False),
                lambda pair: pair.resource == name,
            ),
        )

    def _reason(self, name: str) -> str:
        """Return why a resource takes no tasks; empty if it takes tasks."""
        drained = self._settings.drained.get(name)
        why = [self._health.reason(name)]
        if drained is not None:
            why.append(
                f"drained {drained.describe()}; `hetctl resume {name}` puts it back into service"
            )
        return "; ".join(filter(None, why))

    def drain(self, peer: Peer, request: m.Drain) -> m.Message:
        self._rights.require_admin(peer)
        name = request.resource
        if request.on:
            self._drain(peer, resource_named(self._devices, name).spec.name)
        elif name in self._settings.drained and name not in self._devices:
            self._settings.resume(name)
        else:
            self._give_back(resource_named(self._devices, name).spec.name)
        return m.Done(request.request)

    def _drain(self, peer: Peer, name: str) -> None:
        self._settings.drain(name, OperatorSetting(peer.uid, self._clock.wall()))
        self._runtime.dispatch(e.ResourceDrained(name))
        self._notes.write(peer, "drained", f"{name} is drained", name)

    def _give_back(self, name: str) -> None:
        self._settings.resume(name)
        self._health.trust(name)
        self._runtime.dispatch(e.ResourceReturned(name))

    def test(self, peer: Peer, request: m.TestDevices) -> m.Message:
        """Start self-tests of the named resources, or of all OpenCL devices."""
        self._rights.require_admin(peer)
        every = [
            name
            for name, device in self._devices.items()
            if device.spec.driver == "opencl"
        ]
        wanted = [resource_named(self._devices, name) for name in request.resources]
        for name in [device.spec.name for device in wanted] or every:
            self._health.test(name, self._clock.now())
        return m.Done(request.request)


def shared_loads(crowding: Crowding | None, now: int) -> list[m.SharedLoad]:
    """Describe the belief about what the resources share; empty: it is not modelled."""
    if crowding is None:
        return []
    model, belief = crowding.model, crowding.belief
    return [
        m.SharedLoad(
            name,
            shared.kind,
            [each for each, kinds in model.uses.items() if name in kinds.values()],
            crowding.demand[name],
            list(belief.levels[name]),
            list(belief.probabilities(name, now)),
            belief.expected_level(name, now),
            belief.slowdown(name, crowding.demand[name], now),
            [
                m.LoadEvidence(source, each.value, each.count, (now - each.at) / SECOND)
                for (which, source), each in crowding.evidence.items()
                if which == name
            ],
            shared.bytes_per_s,
        )
        for name, shared in model.shared.items()
    ]


def loads_of(
    crowding: Crowding | None, types: Iterable[str], resources: Iterable[str]
) -> list[m.TypeLoad]:
    """Describe what tasks of some types are taken to load on each resource."""
    if crowding is None:
        return []
    return [
        m.TypeLoad(task_type, resource, load.shared, load.demand, load.bound)
        for task_type in types
        for resource in resources
        for load in crowding.model.loads_of(task_type, resource)
    ]


def resource_named(devices: Mapping[str, m.DeviceInfo], name: str) -> m.DeviceInfo:
    """Find a resource by name.

    Raises:
        NotFoundError: there is no resource of this name.

    """
    device = devices.get(name)
    if device is None:
        near = difflib.get_close_matches(name, devices, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        offered = ", ".join(devices)
        raise NotFoundError(f"no resource {name!r}; there are: {offered}{hint}")
    return device
