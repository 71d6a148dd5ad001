"""Settings of operators: drained resources and the policy, in force until changed.

They are stored, so that neither a crash nor an upgrade puts a broken board back into use.
Settings for an absent resource or policy are kept: the next configuration may have it
again. The runtime calls this at the start; later, requests change them.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from hetsched import events as e
from hetsched.policies import make_policy
from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from hetd.tasks.journal import Journal
    from hetsched.policy import Policy

log = logging.getLogger("hetd")


class OperatorSetting(msgspec.Struct, frozen=True):
    """One setting of an operator.

    Attributes:
        by: uid of the operator.
        at: time of the change, seconds since the epoch.
        policy: name of the policy, with its `parameters`; empty for a drained resource.

    """

    by: int
    at: float
    policy: str = ""
    parameters: dict[str, Any] = {}

    def describe(self) -> str:
        """Describe the uid and the time of the change."""
        return f"by uid {self.by} on {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M} UTC"


class PolicyFault(msgspec.Struct, frozen=True):
    """Why a policy of another package must not decide until one is set.

    Attributes:
        policy: its name.
        text: what it did.
        key: idempotency key of the request that set it, which may be repeated.

    """

    policy: str
    text: str
    key: str = ""


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(OperatorSetting).decode
decode_fault = msgspec.msgpack.Decoder(PolicyFault).decode


class OperatorSettings:
    """The settings of operators.

    Attributes:
        drained: resource -> its setting; includes absent resources.
        policy: the policy that an operator set, or None for the configured policy.

    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.drained: dict[str, OperatorSetting] = {}
        self.policy: OperatorSetting | None = None
        self._key = ""
        """Idempotency key of the last request that chose the policy."""
        self._fault: PolicyFault | None = None

    # ------------------------------------------------------------ while hetd runs

    def drain(self, resource: str, setting: OperatorSetting) -> None:
        """Store that a resource is drained; the first setting is kept."""
        if resource not in self.drained:
            self.drained[resource] = setting
            self._journal.batch.settings["drained", resource] = _encode(setting)

    def resume(self, resource: str) -> None:
        """Delete the drain setting of a resource."""
        self.drained.pop(resource, None)
        self._journal.batch.settings["drained", resource] = None

    def choose(self, setting: OperatorSetting | None, key: str) -> None:
        """Store the active policy.

        Args:
            setting: None: the configured policy applies.
            key: idempotency key of the request.

        """
        self.policy, self._key, self._fault = setting, key, None
        stored = None if setting is None else _encode(setting)
        self._journal.batch.settings["policy", ""] = stored
        self._journal.batch.settings["policy-fault", ""] = None

    def fail(self, policy: str, text: str) -> None:
        """Store why a policy must not decide until one is chosen."""
        self._fault = PolicyFault(policy, text, self._key)
        self._journal.batch.settings["policy-fault", ""] = _encode(self._fault)

    def fault_of(self, policy: str) -> str:
        """Return why a policy must not decide; empty: it may."""
        fault = self._fault
        return fault.text if fault is not None and fault.policy == policy else ""

    def has_failed(self, key: str) -> bool:
        """Return whether the policy failed that a request with this key chose."""
        return self._fault is not None and bool(key) and self._fault.key == key

    # ------------------------------------------------------------ at the start

    def recall(self) -> Policy | None:
        """Read the stored settings; return the policy, if one is stored."""
        for (what, subject), stored in self._journal.settings().items():
            if what == "drained":
                self.drained[subject] = decode(stored)
            elif what == "policy":
                self.policy = decode(stored)
            elif what == "policy-fault":
                self._fault = decode_fault(stored)
        return self._chosen()

    def _chosen(self) -> Policy | None:
        """Create the stored policy, or return None if it failed or no longer exists."""
        setting = self.policy
        if setting is None or self.fault_of(setting.policy):
            return None
        try:
            policy = make_policy(setting.policy, setting.parameters)
        except HetError as error:
            text = "the policy set %s is not in force: %s; the configured one is"
            log.warning(text, setting.describe(), error)
            self.policy = None
            return None
        log.info("policy %s, set %s, is in force", setting.policy, setting.describe())
        return policy

    def drains(self, here: Container[str]) -> Iterator[e.ResourceDrained]:
        """Return drain events for the drained resources that are present."""
        return (e.ResourceDrained(name) for name in self.drained if name in here)

    def tell(self, here: Container[str]) -> None:
        """Log the drained resources at the start."""
        for name, setting in self.drained.items():
            if name in here:
                log.info("%s is drained, %s", name, setting.describe())
            else:
                text = "%s, drained %s, is not here; it is drained when it is back"
                log.warning(text, name, setting.describe())
