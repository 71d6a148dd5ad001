"""Users by name and number."""

from __future__ import annotations

import functools
import pwd

from libtask.errors import InputError

LARGEST_UID = 2**32 - 2


def uid_of(user: str) -> int:
    """Return the number of a user, named or numbered.

    Raises:
        InputError: the user does not exist on this machine.

    """
    if user.isdecimal() and user.isascii():
        if len(user) > len(str(LARGEST_UID)) or int(user) > LARGEST_UID:
            raise InputError("--user: the number is too large")
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise InputError(f"--user: no user {user!r} on this machine") from error


def owner_of(user: str) -> str:
    """Return a user, named or numbered, in the form of tasks' owners.

    Raises:
        InputError: the user does not exist on this machine.

    """
    return f"uid:{uid_of(user)}"


@functools.cache
def shown_owner(owner: str) -> str:
    """Return the name of a task's owner, or the number if this machine has no name."""
    number = owner.removeprefix("uid:")
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, ValueError, OverflowError):
        return number
