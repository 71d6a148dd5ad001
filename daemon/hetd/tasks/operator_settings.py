"""OperatorSettings: what operators have set, in force until they set something else.

Drained resources and the policy are kept in the store, so that neither a crash nor an
upgrade puts a broken board back into use. What is not there any more, be it a resource
or a policy, is remembered all the same: the next configuration may have it again.
Called by the node at its start, and by the desk of the node.
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
    """Something that an operator has set.

    Attributes:
        by: his uid.
        at: when, seconds since the epoch.
        policy: its name, with its `parameters`; empty where a resource is drained.

    """

    by: int
    at: float
    policy: str = ""
    parameters: dict[str, Any] = {}

    def describe(self) -> str:
        """Say who set it, and when."""
        return f"by uid {self.by} on {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M} UTC"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OperatorSetting).decode


class OperatorSettings:
    """What operators have set.

    Attributes:
        drained: resource -> who drained it; also of those that are not here.
        policy: the one in force that an operator has set; None: it is the configured one.

    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.drained: dict[str, OperatorSetting] = {}
        self.policy: OperatorSetting | None = None

    # ------------------------------------------------------------ while hetd runs

    def drain(self, resource: str, setting: OperatorSetting) -> None:
        """Keep a resource drained; who did so first stays known."""
        if resource not in self.drained:
            self.drained[resource] = setting
            self._journal.batch.settings["drained", resource] = _encode(setting)

    def resume(self, resource: str) -> None:
        """Let a resource not be drained at the next start."""
        self.drained.pop(resource, None)
        self._journal.batch.settings["drained", resource] = None

    def choose(self, setting: OperatorSetting) -> None:
        """Keep a policy in force."""
        self.policy = setting
        self._journal.batch.settings["policy", ""] = _encode(setting)

    def choose_configured(self) -> None:
        """Let the configuration say which policy is in force."""
        self.policy = None
        self._journal.batch.settings["policy", ""] = None

    # ------------------------------------------------------------ at the start

    def recall(self) -> Policy | None:
        """Read what was set before the start; return the policy, if one was."""
        for (what, subject), stored in self._journal.settings().items():
            setting = _decode(stored)
            if what == "drained":
                self.drained[subject] = setting
            else:
                self.policy = setting
        return self._chosen()

    def _chosen(self) -> Policy | None:
        """Make the policy that was set, unless there is no such policy any more."""
        setting = self.policy
        if setting is None:
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
        """Say again which resources are drained, of those that are here."""
        return (e.ResourceDrained(name) for name in self.drained if name in here)

    def tell(self, here: Container[str]) -> None:
        """Say in the log what is drained at the start."""
        for name, setting in self.drained.items():
            if name in here:
                log.info("%s is drained, %s", name, setting.describe())
            else:
                text = "%s, drained %s, is not here; it is drained when it is back"
                log.warning(text, name, setting.describe())
