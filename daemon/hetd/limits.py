"""What each user may have at once, from the names in the configuration to uids."""

from __future__ import annotations

import logging
import pwd
from typing import TYPE_CHECKING

from hetd.core.quotas import Quota, Quotas

if TYPE_CHECKING:
    from hetd.config import Count, LimitsTable, UserTable

log = logging.getLogger("hetd")


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


class Unended:
    """How many tasks that have not ended a user may have.

    Args:
        table: of the configuration.

    """

    def __init__(self, table: LimitsTable) -> None:
        self._everybody = _number(table.tasks)
        self._single = {
            uid: _number(user.tasks)
            for uid, user in _users(table).items()
            if user.tasks is not None
        }

    def of(self, uid: int) -> int | None:
        """Return the limit of a user; None: there is none."""
        return self._single.get(uid, self._everybody)


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


def _number(count: Count) -> int | None:
    return None if count == "unlimited" else count
