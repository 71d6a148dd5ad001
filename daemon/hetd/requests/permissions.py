"""Permissions: which user may see and do what.

A user sees and touches his own tasks. Rulers (root, the daemon's own user, members of
the administrators' group) see and touch all, and change what is everybody's: the
policy, drained resources, the estimates.
"""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING

from hetsched.system import SECOND
from libtask.errors import NotAllowedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.runtime import Runtime
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer

BELIEVED_NS = 60 * SECOND
"""How long a look into the groups of a user holds: it may have to ask a directory."""
MOST_BELIEVED = 10_000
"""Users whose groups are remembered; more are asked for again."""


def groups_of(uid: int) -> frozenset[str]:
    """Look up the names of all groups of a user; nobody knows him: none."""
    try:
        user = pwd.getpwuid(uid)
        numbers = os.getgrouplist(user.pw_name, user.pw_gid)
    except (KeyError, OSError):
        return frozenset()
    return frozenset(name for name in map(_group_name, numbers) if name)


def names_of(uid: int) -> list[str]:
    """Return what a user is called in the configuration: the login name and the number."""
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
    """Answers who may what.

    Args:
        node: whose configuration names the administrators' group.
        groups: looks up the groups of a user.

    """

    def __init__(
        self, runtime: Runtime, groups: Callable[[int], frozenset[str]] = groups_of
    ) -> None:
        self._runtime = runtime
        self._groups = groups
        self._believed: dict[int, tuple[int, frozenset[str]]] = {}

    def is_admin(self, uid: int) -> bool:
        """Whether this user may touch what is not his own."""
        if uid in (0, os.getuid()):
            return True
        group = self._runtime.config.admin_group
        return bool(group) and group in self._known_groups(uid)

    def require_admin(self, peer: Peer) -> None:
        """Refuse who may not rule.

        Raises:
            NotAllowedError: who asks is no ruler.

        """
        if not self.is_admin(peer.uid):
            group = self._runtime.config.admin_group
            members = f", and members of {group}," if group else ""
            raise NotAllowedError(
                f"only root and the daemon's own user{members} may do that"
            )

    def own(self, peer: Peer, task: int) -> TaskPage:
        """Find a task that the peer may touch.

        Raises:
            NotFoundError: there is none with that number.
            NotAllowedError: it is another user's.

        """
        page = self._runtime.journal.find(task)
        if page is None:
            raise NotFoundError(f"no task {task}")
        if not self.may_see(peer, page):
            raise NotAllowedError(f"task {task} is another user's")
        return page

    def require_own(self, peer: Peer, task: int) -> None:
        """Refuse a task that the peer may not touch; does not read its page.

        Raises:
            NotFoundError, NotAllowedError: as for `own`.

        """
        owner = self._runtime.journal.owner_of(task)
        if owner is None:
            raise NotFoundError(f"no task {task}")
        if owner != peer.uid and not self.is_admin(peer.uid):
            raise NotAllowedError(f"task {task} is another user's")

    def may_see(self, peer: Peer, page: TaskPage) -> bool:
        """Whether a task is the peer's; a ruler sees all."""
        return page.owner == peer.uid or self.is_admin(peer.uid)

    def whose(self, peer: Peer, *, mine: bool) -> int | None:
        """Say whose tasks a listing for the peer has; None: everybody's."""
        return None if self.is_admin(peer.uid) and not mine else peer.uid

    def _known_groups(self, uid: int) -> frozenset[str]:
        now = self._runtime.clock.now()
        until, groups = self._believed.get(uid, (now, frozenset()))
        if until <= now:
            if len(self._believed) >= MOST_BELIEVED:
                self._believed.clear()
            groups = self._groups(uid)
            self._believed[uid] = (now + BELIEVED_NS, groups)
        return groups
