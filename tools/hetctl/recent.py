"""Recent tasks: those since a time, or since the node was idle for an hour.

What `report`, `gantt`, `trace` and `events` look at where no tasks are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hetctl.moments import Moment
from hetctl.output import now
from hetctl.selectors import MOST, listed
from libtask.client.client import Selection
from libtask.messages import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libtask.client.client import Client
    from libtask.messages import TaskInfo

IDLE_S = 3600.0
"""An hour without tasks ends what is looked at."""

since_option = click.option(
    "--since",
    type=Moment(),
    help="Tasks that ended since, or have not; 14:30, or 2h ago: 2h.  "
    "[default: since the last hour without any task]",
)


def lately(
    client: Client,
    selectors: tuple[str, ...],
    since: float | None,
    *,
    mine: bool = False,
) -> list[TaskInfo]:
    """Return the full records of tasks that are named, or of the recent ones.

    Args:
        client: asked for them.
        selectors: as the user wrote them; none: the recent ones; `all`: all there are.
        since: seconds since the epoch; None: since the last idle hour.
        mine: only the caller's own.

    """
    if selectors:
        every = Selection(detail=True, limit=MOST, mine=mine)
        found = listed(client, every, selectors)
        return [info for info in found if since is None or _until(info) >= since]
    if since is None:
        newest_first = client.iterate(Selection(limit=MOST, mine=mine))
        ids = tuple(info.id for info in after_idling(newest_first))
        return client.tasks(Selection(ids=ids, detail=True, mine=mine)) if ids else []
    return client.tasks(Selection(detail=True, limit=MOST, mine=mine, since=since))


def after_idling(newest_first: Iterable[TaskInfo]) -> list[TaskInfo]:
    """Keep the tasks after the last hour in which there was none.

    Tasks come in the order of their submission, backwards; one that was submitted long
    before the others, and ended among them, is left out.
    """
    kept: list[TaskInfo] = []
    earliest = None
    for info in newest_first:
        if earliest is not None and earliest - _until(info) > IDLE_S:
            break
        kept.append(info)
        earliest = info.submitted if earliest is None else min(earliest, info.submitted)
    return kept


def _until(info: TaskInfo) -> float:
    """When a task ended; now, where it has not."""
    if info.state not in ENDED:
        return now()
    return info.submitted if info.finished is None else info.finished
