"""Names of task types: those of users' own programs are known for their users alone.

Expected times decide where tasks run, and workers report them. Workers are processes of the
users: they may report anything. So what the tasks of a user report of their own programs is
kept under a name with their uid. What is measured of installed applications is shared: the
first task of a user is then placed as well as that of another.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.metadata import entry_points

from hetd.users import TRUSTED
from hetsched.estimates.point import own_type
from hetsched.estimates.table import application

GROUP = "libtask.apps"
"""Entry point group of the applications; see `libtask.apps`."""


@cache
def installed_applications() -> frozenset[str]:
    """Return the names of the installed applications, without importing them.

    Their names and sizes are public.
    """
    return frozenset(each.name for each in entry_points(group=GROUP))


@lru_cache(1024)
def kept_type(task_type: str, app: str, owner: int) -> str:
    """Return the name under which the times of a task are kept.

    Args:
        task_type: as its user named it; empty: that of its application.
        app: its application; one that is not installed has no type of one that is.
        owner: its user.

    """
    name = task_type or app
    installed = application(name) == app and app in installed_applications()
    return name if installed or owner in TRUSTED else own_type(owner, name)
