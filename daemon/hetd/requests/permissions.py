"""Permissions: which user may see and change what.

Users see and control their own tasks. Administrators (root, the daemon's own user, and
members of `admin_group`) control all tasks and shared state: the policy, drained resources
and the estimates.
"""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING

from hetd.users import TRUSTED
from hetsched.system import SECOND
from libtask.errors import NotAllowedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.clock import Clock
    from hetd.config import ActiveConfig
    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer

GROUPS_VALID_NS = 60 * SECOND
"""Lifetime of a user's cached groups: a lookup may query a directory server."""
MOST_CACHED = 10_000
"""Maximum number of users with cached groups."""


def groups_of(uid: int) -> frozenset[str]:
    """Return the names of all groups of a user; empty for an unknown uid."""
    try:
        user = pwd.getpwuid(uid)
        numbers = os.getgrouplist(user.pw_name, user.pw_gid)
    except (KeyError, OSError):
        return frozenset()
    return frozenset(name for name in map(_group_name, numbers) if name)


def names_of(uid: int) -> list[str]:
    """Return the names by which the configuration may refer to a user: login name, uid."""
    try:
        return [pwd.getpwuid(uid).pw_name, str(uid)]
    except (KeyError, OverflowError):
        return [str(uid)]


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


class Permissions:
    """Decides whether a user may do something.

    Args:
        config: names the administrators' group.
        groups: looks up the groups of a user.

    """

    def __init__(
        self,
        config: ActiveConfig,
        journal: Journal,
        clock: Clock,
        groups: Callable[[int], frozenset[str]] = groups_of,
    ) -> None:
        self._config = config
        self._journal = journal
        self._clock = clock
        self._groups = groups
        self._cached_groups: dict[int, tuple[int, frozenset[str]]] = {}

    def is_admin(self, uid: int) -> bool:
        """Whether a user is an administrator."""
        if uid in TRUSTED:
            return True
        group = self._config.value.admin_group
        return bool(group) and group in self._known_groups(uid)

    def require_admin(self, peer: Peer) -> None:
        """Refuse a request that needs an administrator.

        Raises:
            NotAllowedError: the peer is not an administrator.

        """
        if not self.is_admin(peer.uid):
            group = self._config.value.admin_group
            members = f", and members of {group}," if group else ""
            raise NotAllowedError(
                f"only root and the daemon's own user{members} may do that"
            )

    def own(self, peer: Peer, task: int) -> TaskPage:
        """Find a task that the peer may control.

        Raises:
            NotFoundError: there is no task with this id.
            NotAllowedError: the task belongs to another user.

        """
        page = self._journal.find(task)
        if page is None:
            raise NotFoundError(f"no task {task}")
        if not self.may_see(peer, page):
            raise NotAllowedError(f"task {task} belongs to another user")
        return page

    def require_own(self, peer: Peer, task: int) -> None:
        """Refuse a task that the peer may not control, without reading its page.

        Raises:
            NotFoundError, NotAllowedError: as for `own`.

        """
        owner = self._journal.owner_of(task)
        if owner is None:
            raise NotFoundError(f"no task {task}")
        if owner != peer.uid and not self.is_admin(peer.uid):
            raise NotAllowedError(f"task {task} belongs to another user")

    def may_see(self, peer: Peer, page: TaskPage) -> bool:
        """Whether a peer may see a task: its owner and administrators may."""
        return page.owner == peer.uid or self.is_admin(peer.uid)

    def whose(self, peer: Peer, *, mine: bool) -> int | None:
        """Return the uid whose tasks a listing for the peer contains, or None for all users."""
        return None if self.is_admin(peer.uid) and not mine else peer.uid

    def _known_groups(self, uid: int) -> frozenset[str]:
        now = self._clock.now()
        until, groups = self._cached_groups.get(uid, (now, frozenset()))
        if until <= now:
            if len(self._cached_groups) >= MOST_CACHED:
                self._cached_groups.clear()
            groups = self._groups(uid)
            self._cached_groups[uid] = (now + GROUPS_VALID_NS, groups)
        return groups
