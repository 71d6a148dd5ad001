"""Waiting for tasks, for `wait`, `submit --wait` and `batch --wait`.

With `follow` on a terminal, it shows live progress bars; otherwise it prints a line when
a task ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hetctl.output import emit, on_terminal, say, short_type, tasks_document
from hetctl.views.jobs import NOT_NEEDED
from hetctl.views.places import emulated_names, marked
from libtask.apps import short_name
from libtask.client.client import Selection
from libtask.errors import HetError
from libtask.messages import ENDED
from libtask.plaintext import one_line
from libtask.results import has_pickled, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskChanged, TaskInfo

EXIT_SOME_FAILED = 10
EXIT_SOME_CANCELLED = 11
EXIT_TIMEOUT = 124
UNUSUAL_S = 1.5
"""Seconds without an ended task after which the reasons for waiting are printed."""
MOST_TOLD = 3
"""Most tasks whose reasons are printed."""
LONGEST_RESULT = 400
"""Most characters of a result in a line; `hetctl result` prints all of it."""
SHOWN_RESULTS = 20
REFRESH = 0.25
"""Seconds between two updates of the progress bars."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How to wait.

    Attributes:
        timeout: seconds; None: wait until all tasks have ended.
        follow: show progress bars on a terminal.
        as_json: print the tasks as JSON at the end, and nothing before.

    """

    timeout: float | None = None
    follow: bool = True
    as_json: bool = False


def wait_for(client: Client, handles: list[TaskHandle], manner: Manner) -> int:
    """Wait until the tasks have ended; return the exit status."""
    try:
        _wait_in(client, handles, manner)
    except KeyboardInterrupt:
        _report_going_on(handles)
        raise
    return _status(handles, as_json=manner.as_json)


def _wait_in(client: Client, handles: list[TaskHandle], manner: Manner) -> None:
    if manner.as_json:
        _wait(handles, manner.timeout, lambda _: None)
        ids = tuple(handle.id for handle in handles)
        found = client.tasks(Selection(ids=ids, detail=True))
        emit(tasks_document(reversed(found), emulated_names(client)))
    elif manner.follow and on_terminal():
        _wait_live(client, handles, manner.timeout)
        for handle in handles[:SHOWN_RESULTS]:
            if handle.done() and (text := _result(handle.ended.result())):
                say(one_line(f"task {handle.id}{text}"))
        _report_warnings(client, handles)
    else:
        emulated = emulated_names(client)
        with _watched(client, handles):
            _wait(handles, manner.timeout, lambda each: _report_ended(each, emulated))
        _report_warnings(client, handles)


def _report_warnings(client: Client, handles: list[TaskHandle]) -> None:
    """Report the parts of results that are stored pickled."""
    ended = [handle for handle in handles if handle.done()]
    ids = [each.id for each in ended if has_pickled(each.ended.result().result)]
    if not ids:
        return
    for info in client.tasks(Selection(ids=tuple(ids[:SHOWN_RESULTS])))[::-1]:
        for warning in info.warnings:
            say(one_line(f"hetctl: task {info.id}: {warning}"), err=True)


def _report_going_on(handles: list[TaskHandle]) -> None:
    """Report, after Ctrl-C, that the tasks go on."""
    left = [handle.id for handle in handles if not handle.done()]
    if not left:
        return
    tasks = ",".join(ranges(left))
    one = len(left) == 1
    say(
        f"hetctl: task{'s' * (not one)} {tasks} {'goes' if one else 'go'} on; hetctl wait "
        f"{tasks} waits again, hetctl cancel {tasks} ends {'it' if one else 'them'}",
        err=True,
    )


@contextlib.contextmanager
def _watched(client: Client, handles: list[TaskHandle]) -> Iterator[None]:
    """Print the reasons for waiting on standard error if no task ends for a while."""
    timer = threading.Timer(UNUSUAL_S, _report_unusual, (client, handles))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _report_unusual(client: Client, handles: list[TaskHandle]) -> None:
    """Print the reasons why the first unfinished tasks wait, if they are unusual."""
    left = [handle.id for handle in handles if not handle.done()][:MOST_TOLD]
    try:
        for info in reversed(client.tasks(Selection(ids=tuple(left), detail=True))):
            line = _unusual(client, info)
            if line:
                say(one_line(f"hetctl: task {info.id} {line}"), err=True)
    except HetError:
        return  # the waiting thread reports the error


def _unusual(client: Client, info: TaskInfo) -> str:
    """Return what a task waits for; empty: nothing unusual."""
    if info.state in ENDED:
        return ""
    last = info.segments[-1] if info.segments else None
    if info.state != "running" or last is None:
        return client.explain(info.id).why
    if last.strips or last.computing is not None or info.progress > 0:
        return ""
    app = short_name(info.app)
    return (
        f"is being set up on {last.resource}: it loads its input, or it is compiling {app} for "
        f"{last.resource}, which is needed once on this machine"
    )


def ranges(ids: list[int]) -> list[str]:
    """Format ids as ranges; ids of one submission may have gaps."""
    found: list[list[int]] = []
    for task in ids:
        if found and task == found[-1][-1] + 1:
            found[-1][1:] = [task]
        else:
            found.append([task])
    return ["-".join(str(task) for task in each) for each in found]


def _hint(handles: list[TaskHandle], *, as_json: bool) -> None:
    """Print the command that shows the output of failed tasks."""
    failed = [handle.id for handle in handles if handle.wait(0) == "failed"]
    if not as_json:
        others = f", and {len(failed) - 1} others" if len(failed) > 1 else ""
        say(f"hetctl: for its output: hetctl logs {failed[0]}{others}", err=True)


def _status(handles: list[TaskHandle], *, as_json: bool) -> int:
    """Return the exit status by the tasks' states; raise errors of the connection."""
    left = sum(not handle.done() for handle in handles)
    if left:
        say(f"hetctl: {left} of {len(handles)} tasks have not ended", err=True)
        return EXIT_TIMEOUT
    states = {handle.wait(0) for handle in handles if not _was_not_needed(handle)}
    if "failed" in states:
        _hint(handles, as_json=as_json)
        return EXIT_SOME_FAILED
    return EXIT_SOME_CANCELLED if states & {"cancelled", "dropped"} else 0


def _was_not_needed(handle: TaskHandle) -> bool:
    """Whether a task was cancelled because no other one failed."""
    reason = handle.last.reason if handle.last is not None else None
    return (reason or "").startswith(NOT_NEEDED)


def _wait(
    handles: list[TaskHandle], timeout: float | None, say: Callable[[TaskHandle], None]
) -> None:
    by_future = {handle.ended: handle for handle in handles}
    deadline = None if timeout is None else time.monotonic() + timeout
    left = set(by_future)
    while left:
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        done, left = wait(left, remaining, FIRST_COMPLETED)
        if not done:
            return
        for future in sorted(done, key=lambda future: by_future[future].id):
            say(by_future[future])


def _report_ended(handle: TaskHandle, emulated: frozenset[str]) -> None:
    change = handle.ended.result()
    where = f" on {marked(change.resource, emulated)}" if change.resource else ""
    reason = f": {change.reason}" if change.reason else _result(change)
    say(one_line(f"task {handle.id} {change.state}{where}{reason}"))


def _result(change: TaskChanged) -> str:
    """Format the result of a completed task, shortened to fit a line."""
    if change.state != "completed" or change.result is None:
        return ""
    text = msgspec.json.encode(told(change.result), enc_hook=str).decode()
    return f": {text if len(text) <= LONGEST_RESULT else text[:LONGEST_RESULT] + '...'}"


def _wait_live(
    client: Client, handles: list[TaskHandle], timeout: float | None
) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    emulated = emulated_names(client)
    ids = tuple(handle.id for handle in handles)
    deadline = None if timeout is None else time.monotonic() + timeout

    def look() -> Any:
        found = client.tasks(Selection(ids=ids))
        return _bars(found[::-1], emulated, console.height - 4)

    with Live(look(), console=console, auto_refresh=False) as live:
        while not all(handle.done() for handle in handles):
            left = [handle.ended for handle in handles if not handle.done()]
            wait(left, REFRESH)
            live.update(look(), refresh=True)
            if deadline is not None and time.monotonic() > deadline:
                return
        live.update(look(), refresh=True)


def _bars(found: list[TaskInfo], emulated: frozenset[str], room: int) -> Any:
    """Draw one line per task; running tasks come first if there is no room for all."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    ordered = found if len(found) <= room else sorted(found, key=_urgency)
    for info in ordered[: max(room, 1)]:
        bar = ProgressBar(total=1.0, completed=_share(info), width=30)
        where = marked(info.resource, emulated) if info.resource else ""
        moves = f"{info.migrations} moves" if info.migrations else ""
        grid.add_row(
            str(info.id),
            Text(short_type(one_line(info.type))),
            bar,
            f"{100 * _share(info):3.0f} %",
            info.state,
            where,
            moves,
        )
    ended = sum(info.state in ENDED for info in found)
    grid.add_row("", f"{ended} of {len(found)} ended")
    return grid


def _share(info: TaskInfo) -> float:
    return 1.0 if info.state == "completed" else info.progress


def _urgency(info: TaskInfo) -> tuple[int, int]:
    order = {"running": 0, "preempted": 1, "queued": 2, "waiting": 3, "held": 3}
    return order.get(info.state, 4), info.id
