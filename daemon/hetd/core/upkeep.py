"""The upkeep of resources: what is lost, back, drained, blocked, and what that means.

As the intake, one method an event; the intake calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.core import events as e

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.core.ledger import Ledger
    from hetd.core.system import ResourceState


class Upkeep:
    """Takes events of resources into the ledger.

    Attributes:
        handlers: event type -> what takes it in.

    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.system = ledger.system
        self.handlers: dict[type, Callable[..., None]] = {
            e.ResourceLost: self._on_resource_lost,
            e.ResourceReturned: self._on_resource_returned,
            e.ResourceRecovered: self._on_resource_recovered,
            e.SlotsBlocked: self._on_slots_blocked,
            e.ResourceDrained: self._on_resource_drained,
            e.NodeStopping: self._on_node_stopping,
        }

    def _on_resource_lost(self, event: e.ResourceLost) -> None:
        state = self.system.states[event.resource]
        state.up = False
        self._send_away(state)
        reason = f"{event.resource} was lost: {event.reason}"
        for task in reversed(state.riding.copy().values()):
            self.ledger.release_worker(task)
            self.ledger.give_back(task, reason)
        for task in list(state.running.values()):
            self.ledger.release_worker(task)
            if task.unbegun:
                self.ledger.give_back(task, reason)
            else:
                self.ledger.lose(task, reason)

    def _on_resource_returned(self, event: e.ResourceReturned) -> None:
        state = self.system.states[event.resource]
        state.up = True
        state.draining = False
        self._may_work_again(event.resource)

    def _on_resource_recovered(self, event: e.ResourceRecovered) -> None:
        self.system.states[event.resource].up = True
        self._may_work_again(event.resource)

    def _may_work_again(self, resource: str) -> None:
        """Let tasks come; of those that avoid the resource, let one try it soon."""
        self.system.resources_changed()
        self.ledger.gate.reopen()
        self.system.breaker.expire(resource, self.system.now)

    def _on_slots_blocked(self, event: e.SlotsBlocked) -> None:
        state = self.system.states[event.resource]
        state.slots = state.resource.slots - event.slots
        self.system.resources_changed()
        if not state.slots:
            self.ledger.unplace(state)
            self.ledger.keep_out_unfit()
        self.ledger.gate.reopen()

    def _on_resource_drained(self, event: e.ResourceDrained) -> None:
        state = self.system.states[event.resource]
        state.draining = True
        self._send_away(state)
        for task in list(state.running.values()):
            # What can run nowhere else goes on to its end; what leaves, leaves.
            if not task.preempting and self.system.affinities(task.row):
                self.ledger.preempt(task.id, None)

    def _on_node_stopping(self, event: e.NodeStopping) -> None:
        for state in self.system.states.values():
            state.draining = True
        self.system.resources_changed()
        for state in self.system.states.values():
            self.ledger.unplace(state)
            for task in state.running.values():
                self.ledger.preempt(task.id, None)
        self.ledger.keep_out_unfit()

    def _send_away(self, state: ResourceState) -> None:
        """Let what waits for a resource that is out of use wait for another."""
        self.system.resources_changed()
        self.ledger.unplace(state)
        self.ledger.keep_out_unfit()
