"""Names of tasks, as selections match them: members of arrays, and patterns."""

from __future__ import annotations

from fnmatch import fnmatchcase


def array_of(name: str) -> str:
    """Return the name of the task's array; of a single task, its own name."""
    array, _, number = name.rpartition(".")
    return array if array and number.isdigit() else name


def bears(name: str, wanted: str) -> bool:
    """Return whether a name matches: exactly, as a member of an array, or by pattern."""
    array, _, number = name.rpartition(".")
    member = number.isdigit() and array == wanted
    return bool(name) and (member or name == wanted or fnmatchcase(name, wanted))
