"""Requests about the policy: describe the policies, choose one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.tasks.operator_settings import OperatorSetting
from hetsched.policies import (
    all_policies,
    describe_policy,
    make_policy,
    package_of,
    parameters_of,
)
from libtask import messages as m
from libtask.errors import InputError

if TYPE_CHECKING:
    from hetd.config import ActiveConfig
    from hetd.requests.notes import NoteRequests
    from hetd.requests.permissions import Permissions
    from hetd.runtime import Runtime
    from hetd.transport.router import Peer
    from hetsched.policy import Policy
    from hetsched.scheduler import Scheduler


class PolicyRequests:
    """Handles requests about the policy."""

    def __init__(
        self,
        runtime: Runtime,
        config: ActiveConfig,
        notes: NoteRequests,
        rights: Permissions,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._config = config
        self._scheduler = runtime.scheduler
        self._settings = runtime.settings
        self._notes = notes
        self._rights = rights

    def policies(self, peer: Peer, request: m.Policies) -> m.Message:
        if request.set is not None and request.configured:
            raise InputError("set, configured: expected one of them")
        if request.set is not None:
            self._set_policy(peer, request.set, request)
        elif request.configured:
            self._configured_policy(peer, request)
        policy, setting = self._scheduler.policy, self._settings.policy
        configured, fault = self._config.value.policy, self._runtime.policy_fault
        chosen = setting.policy if setting is not None else configured
        known = all_policies()
        return m.PolicyInfo(
            request.request,
            policy_name(self._scheduler),
            parameters_of(policy),
            {name: describe_policy(kind) for name, kind in known.items()},
            set=setting.describe() if setting is not None else "",
            configured=configured,
            packages={name: package_of(name) for name in known},
            failed=chosen if fault else "",
            fault=fault,
        )

    def _set_policy(self, peer: Peer, name: str, request: m.Policies) -> None:
        self._rights.require_admin(peer)
        parameters = request.parameters
        policy = make_policy(name, parameters)
        now = self._clock.wall()
        told = ", ".join(f"{key}={value}" for key, value in parameters.items())
        text = f"policy {name}" + (f" with {told}" if told else "")
        setting = OperatorSetting(peer.uid, now, name, parameters)
        self._change(peer, request, policy, setting, text)

    def _configured_policy(self, peer: Peer, request: m.Policies) -> None:
        self._rights.require_admin(peer)
        config = self._config.value
        policy = make_policy(config.policy, config.policy_parameters)
        text = f"policy {config.policy}, the configured one"
        self._change(peer, request, policy, None, text)

    def _change(
        self,
        peer: Peer,
        request: m.Policies,
        policy: Policy,
        setting: OperatorSetting | None,
        text: str,
    ) -> None:
        """Change the policy, unless hetd started again because this request did so before."""
        if self._settings.has_failed(request.key):
            return
        self._settings.choose(setting, request.key)
        self._notes.write(peer, "policy-set", text)
        self._runtime.change_policy(policy)  # may note that the policy failed


def policy_name(scheduler: Scheduler) -> str:
    """Return the name of the active policy."""
    kind = type(scheduler.policy)
    return next(name for name, known in all_policies().items() if known is kind)
