"""What each user may have at once, from the names in the configuration to uids."""

from __future__ import annotations

import logging
import pwd
from typing import TYPE_CHECKING

from hetsched.limits import Quota, Quotas

if TYPE_CHECKING:
    from hetd.config import Count, LimitsTable, UserTable

log = logging.getLogger("hetd")

MIB = 1 << 20


def quotas(table: LimitsTable) -> Quotas:
    """Tell the scheduler what users' tasks may take at once."""
    everybody = Quota(_number(table.running), table.share)
    single = {
        uid: Quota(
            _number(table.running if user.running is None else user.running),
            table.share if user.share is None else user.share,
        )
        for uid, user in _users(table).items()
    }
    return Quotas(everybody, single)


class Allowed:
    """One limit, for everybody and for single users.

    Args:
        table: of the configuration.
        name: of the limit in it.
        unit: what its numbers count.

    """

    def __init__(self, table: LimitsTable, name: str, unit: int = 1) -> None:
        self._everybody = _in_units(getattr(table, name), unit)
        self._single = {
            uid: _in_units(getattr(user, name), unit)
            for uid, user in _users(table).items()
            if getattr(user, name) is not None
        }

    def of(self, uid: int) -> int | None:
        """Return the limit of a user; None: there is none."""
        return self._single.get(uid, self._everybody)


class UserLimits:
    """What each user may have, besides what the scheduler sees to.

    Attributes:
        tasks: that have not ended.
        stored: bytes that are kept on disk; `unended`: those of tasks that have not ended.
        priority: the highest, and with a minus the lowest, that a user may give.

    """

    def __init__(self, table: LimitsTable) -> None:
        self.tasks = Allowed(table, "tasks")
        self.stored = Allowed(table, "stored_mb", MIB)
        self.unended = Allowed(table, "unended_mb", MIB)
        self.priority = Allowed(table, "priority")


def _users(table: LimitsTable) -> dict[int, UserTable]:
    found = {uid_of(name): user for name, user in table.user.items()}
    return {uid: user for uid, user in found.items() if uid is not None}


def uid_of(name: str) -> int | None:
    """Find a user by login name or number; None, and a word in the log: there is none."""
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        log.warning("limits.user.%s: there is no such user; ignored", name)
        return None


def _in_units(count: Count, unit: int) -> int | None:
    number = _number(count)
    return None if number is None else number * unit


def _number(count: Count) -> int | None:
    return None if count == "unlimited" else count
