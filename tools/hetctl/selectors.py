"""Selectors: ids, `last`, `all`, `mine`, ranges `3-9`, names `@NAME`, jobs `job:NAME`, comma lists.

`@NAME` means the newest submission with that name, of the caller if they have one, `@NAME:all`
every one. Where no tasks are named, `report`, `gantt` and `trace` take the recent ones: those
since a time, or since the node was idle for an hour.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, TypeVar, get_args

import click

from hetctl.output import now, say
from hetctl.units import Moment
from hetctl.views.jobs import current
from libtask.client.client import Selection
from libtask.errors import InputError, NotFoundError
from libtask.messages import ENDED, NAME_BYTES, TaskState
from libtask.names import array_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from libtask.client.client import Client
    from libtask.messages import TaskInfo


WORDS = ("last", "all", "mine")
JOB = "job:"
"""Begins a selector of the tasks of a job: `job:NAME`."""
NAME = "@"
"""Begins a selector of tasks by name: `@NAME`, its array `@NAME`, or `@train-*`."""
EVERY = ":all"
"""Ends a selector by name that means all submissions with that name."""
UNFINISHED: tuple[TaskState, ...] = tuple(
    state for state in get_args(TaskState) if state not in ENDED
)
MOST = 1_000_000
"""Most tasks in one selector; a longer range is a typing error."""
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
DIGITS = 18
"""Most digits of an id."""

Value = TypeVar("Value")


def selected(
    client: Client,
    selectors: Iterable[str],
    *,
    live: bool = False,
    past_names: bool = False,
) -> list[int]:
    """Return the ids that the selectors name, in order, each once.

    Args:
        client: the connection to the daemon; only words need it.
        selectors: the selectors as the user wrote them.
        live: `all`, `mine` and names mean unfinished tasks only.
        past_names: names mean ended tasks too, even with `live`.

    Raises:
        InputError: a word is not a selector.
        NotFoundError: `last` without any task.

    """
    ids: list[int] = []
    for word in split(selectors):
        if word in WORDS:
            ids += _ids_of(client, word, live=live)
        elif word.startswith(NAME):
            ids += _named(client, word, live=live and not past_names)
        elif word.startswith(JOB):
            found = current(own_job(client, word.removeprefix(JOB)))
            ids += [i.id for i in found if not (live and i.state in ENDED)]
        elif "-" in word:
            ids += _existing(client, ids_in(word))
        else:
            ids += ids_in(word)
    return list(dict.fromkeys(ids))


def listed(
    client: Client, selection: Selection, selectors: Iterable[str]
) -> list[TaskInfo]:
    """List the selected tasks; without selectors, those of the selection."""
    words = split(selectors)
    if not words or words == ["all"]:
        return client.tasks(selection)
    ids = tuple(selected(client, words))
    return client.tasks(Selection(ids=ids, detail=selection.detail)) if ids else []


def split(selectors: Iterable[str]) -> list[str]:
    """Split comma lists into single selectors, and check each.

    Raises:
        InputError: a word is not a selector.

    """
    words = [word.strip() for text in selectors for word in text.split(",")]
    for word in words:
        if word not in WORDS and not word.startswith((NAME, JOB)):
            ids_in(word)
    return words


def ids_in(word: str) -> range:
    """Parse an id or a range of ids.

    Raises:
        InputError: the word is neither.

    """
    found = _RANGE.fullmatch(word)
    if found is None:
        raise InputError(
            f"selector {word!r}: expected an id, a range such as 3-9, last, all, mine"
            ", @NAME, @NAME:all or job:NAME"
        )
    if max(len(found[1]), len(found[2] or "")) > DIGITS:
        raise NotFoundError(f"selector {_cut(word)!r}: no task has such a large id")
    first = int(found[1])
    last = int(found[2]) if found[2] else first
    if first < 1:
        raise InputError(f"selector {word!r}: ids begin at 1")
    if last < first:
        raise InputError(f"selector {word!r}: a range must go upwards")
    if last - first >= MOST:
        raise InputError(f"selector {word!r}: more than {MOST} tasks")
    return range(first, last + 1)


def _cut(word: str) -> str:
    return word if len(word) <= 2 * DIGITS else f"{word[:DIGITS]}…"


def _ids_of(client: Client, word: str, *, live: bool) -> list[int]:
    if word == "last":
        return [_last(client)]
    states: tuple[TaskState, ...] = UNFINISHED if live else ()
    found = client.iterate(Selection(mine=word == "mine", limit=MOST, states=states))
    return sorted(info.id for info in found)


def _named(client: Client, word: str, *, live: bool) -> list[int]:
    wanted = word.removeprefix(NAME)
    if wanted.endswith(EVERY):
        found = _of_name(client, wanted.removesuffix(EVERY))
    else:  # administrators see those of others, who may choose the same name
        own = _of_name(client, wanted, mine=True)
        found = newest_submissions(own or _of_name(client, wanted))
    if not found:
        raise NotFoundError(f"selector {word!r}: no task of that name")
    return sorted(i.id for i in found if not (live and i.state in ENDED))


def own_job(client: Client, name: str) -> list[TaskInfo]:
    """Return the tasks of a job in the order of their ids; the caller's own job if they have one.

    Raises:
        NotFoundError: there is no job with this name.

    """
    for mine in (True, False) if _can_be_a_name(name) else ():
        every = client.iterate(Selection(mine=mine, limit=MOST, job=name))
        found = [info for info in every if info.job == name]
        owners = sorted({info.owner for info in found})
        if len(owners) > 1:
            raise InputError(f"job {name!r}: several users have one; select by ids")
        if found:
            return sorted(found, key=lambda info: info.id)
    raise NotFoundError(f"no job {_cut(name)!r}")


def _of_name(client: Client, wanted: str, *, mine: bool = False) -> list[TaskInfo]:
    if not _can_be_a_name(wanted):
        return []
    return client.tasks(Selection(limit=MOST, name=wanted, mine=mine))


def _can_be_a_name(wanted: str) -> bool:
    return 0 < len(wanted.encode()) <= NAME_BYTES


def newest_submissions(tasks: Iterable[TaskInfo]) -> list[TaskInfo]:
    """Keep the newest submission of the tasks with each name.

    The tasks of an array count under one name, without their numbers.
    """
    newest: dict[str, list[TaskInfo]] = {}
    for info in sorted(tasks, key=lambda info: info.id, reverse=True):
        some = newest.setdefault(array_of(info.name), [])
        if not some or info.submission == some[0].submission:
            some.append(info)
    return [info for some in newest.values() for info in some]


def _existing(client: Client, ids: range) -> list[int]:
    """Return the tasks in a range, without deleted ones and those of other users."""
    selection = Selection(before=ids[-1] + 1, limit=len(ids))
    newest_first = (info.id for info in client.iterate(selection))
    found = list(itertools.takewhile(lambda task: task >= ids[0], newest_first))
    if not found:
        newest = client.tasks(Selection(limit=1))
        top = newest[0].id if newest else 0
        raise NotFoundError(f"no tasks {ids[0]}-{ids[-1]}; the newest is {top}")
    return found[::-1]


def _last(client: Client) -> int:
    newest = client.tasks(Selection(mine=True, limit=1))
    if not newest:
        raise NotFoundError("last: you have no tasks")
    return newest[0].part_of or newest[0].id


# ------------------------------------------------------------ recent tasks

IDLE_S = 3600.0
"""Length of the pause that separates recent tasks from older ones."""
RECENT = 10_000
"""Tasks that are looked at, at most, where none is named: a node can run as many in a second."""

since_option = click.option(
    "--since",
    type=Moment(),
    help="Leave out tasks that ended before this time (14:30) or duration ago (2h).  "
    "[default: the last hour without any task]",
)


def lately(
    client: Client,
    selectors: tuple[str, ...],
    since: float | None,
    *,
    mine: bool = False,
) -> list[TaskInfo]:
    """Return the full records of the selected tasks, by default of the recent ones.

    Args:
        client: the connection to the daemon.
        selectors: the selectors as the user wrote them; none: recent tasks; `all`: all.
        since: seconds since the epoch; None: since the last idle hour, of the newest
            `RECENT` tasks, which is reported where there are more.
        mine: return only the caller's own tasks.

    """
    if selectors:
        every = Selection(detail=True, limit=MOST, mine=mine)
        found = listed(client, every, selectors)
        return [info for info in found if since is None or _end_or_now(info) >= since]
    if since is None:
        newest_first = client.iterate(Selection(limit=RECENT + 1, mine=mine))
        ids = tuple(info.id for info in after_idling(newest_first))
        ids = of_newest(ids)
        return client.tasks(Selection(ids=ids, detail=True, mine=mine)) if ids else []
    return client.tasks(Selection(detail=True, limit=MOST, mine=mine, since=since))


def of_newest(tasks: Sequence[Value]) -> tuple[Value, ...]:
    """Keep the first `RECENT`, and report on standard error that there are more."""
    if len(tasks) > RECENT:
        text = f"hetctl: the newest {RECENT} tasks; --since, ids or `all` select others"
        say(text, err=True)
    return tuple(tasks[:RECENT])


def after_idling(newest_first: Iterable[TaskInfo]) -> list[TaskInfo]:
    """Keep the tasks since the last hour without any task.

    The tasks are given in reverse order of submission. A task that was submitted long
    before the others but ended among them is left out.
    """
    kept: list[TaskInfo] = []
    earliest = None
    for info in newest_first:
        if earliest is not None and earliest - _end_or_now(info) > IDLE_S:
            break
        kept.append(info)
        earliest = info.submitted if earliest is None else min(earliest, info.submitted)
    return kept


def _end_or_now(info: TaskInfo) -> float:
    """Return the end of a task, or the present time if it has not ended."""
    if info.state not in ENDED:
        return now()
    return info.submitted if info.finished is None else info.finished
