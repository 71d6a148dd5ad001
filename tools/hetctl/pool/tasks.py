"""`hetctl pool list`, `show`, `wait`, `cancel`, `logs`, `explain`, `move`, `get`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hetctl.output import emit, now, say, table
from hetctl.pool.connection import complete_nodes, open_pool, pooled
from hetctl.pool.shown import (
    HEADINGS,
    detail_of,
    progress_of,
    reason_of,
    resource_of,
    row,
    tasks_part,
)
from hetctl.units import Duration, Whole, readable_duration
from hetctl.views.columns import parsable_option
from hetctl.views.explanation import PROSPECT_HEADINGS, prospect_rows, reasons
from hetctl.views.places import marked
from hetctl.waiting import EXIT_SOME_CANCELLED, EXIT_SOME_FAILED, EXIT_TIMEOUT
from libtask.errors import HetError, InputError, NotFoundError
from libtask.output_files import check_replaceable
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetctl.pool.gathering import Gathered, TaskView
    from hetpool.client.pool import Pool, PoolTask
    from hetpool.inquiry import AskFile

DAY_S = 86_400.0
LOOK_S = 0.5
"""Seconds between two looks whether tasks have ended."""
LONGEST_REASON = 1000

tasks_argument = click.argument(
    "selectors", nargs=-1, required=True, metavar="SELECTOR..."
)


def gather(pool: Pool, selectors: Sequence[str]) -> tuple[Gathered, list[TaskView]]:
    """Return the pool's tasks, and those that the selectors name."""
    from hetctl.pool.gathering import chosen, gathered

    found = gathered(pool)
    views = chosen(found, selectors)
    report_unanswered(found)
    return found, views


def report_unanswered(found: Gathered) -> None:
    """Report the nodes whose tasks may be missing."""
    for node, why in sorted(found.unanswered.items()):
        say(
            one_line(f"hetctl: {node}: {why}; its tasks are not listed completely"),
            err=True,
        )


# ------------------------------------------------------------ list, show


@click.command("list")
@click.argument("selectors", nargs=-1, metavar="[SELECTOR]...")
@click.option(
    "--all", "every", is_flag=True, help="List also tasks that ended over a day ago."
)
@click.option(
    "-n",
    "--limit",
    type=Whole(1),
    default=200,
    show_default=True,
    help="Most tasks to list.",
)
@parsable_option
@pooled
def list_command(
    *, selectors: tuple[str, ...], config: str | None, as_json: bool, **given: Any
) -> None:
    """List the pool's tasks, newest first: unfinished ones, and those of the last day.

    A SELECTOR is NODE:NUMBER, the first digits of a job's id, last, or all.
    """
    from hetctl.pool.gathering import chosen, gathered

    since = None if given["every"] or selectors else now() - DAY_S
    with open_pool(config) as pool:
        found = gathered(pool, since=since)
    views = chosen(found, selectors) if selectors else found.tasks
    shown = views[: given["limit"]]
    if as_json:
        emit(tasks_part(shown, found))
    else:
        table(
            HEADINGS, [row(view, found) for view in shown], parsable=given["parsable"]
        )
        if len(shown) < len(views):
            say(
                f"hetctl: showing {len(shown)} of {len(views)}; --limit shows more",
                err=True,
            )
    report_unanswered(found)


@click.command("show")
@tasks_argument
@pooled
def show_command(
    *, selectors: tuple[str, ...], config: str | None, as_json: bool
) -> None:
    """Show the details of tasks, from all nodes that they were on."""
    with open_pool(config) as pool:
        found, views = gather(pool, selectors)
    if as_json:
        details = [detail_of(view, found) for view in views]
        emit({"format": "hetctl/pool-task-1", "tasks": details})
        return
    for view in views:
        _print_task(view, found)


def _print_task(view: TaskView, found: Gathered) -> None:
    say(one_line(f"task {view.id}  {view.app}  {view.state}"))
    say(f"  job         {view.job}")
    facts = [
        ("progress", f"{100 * progress_of(view):.1f} %"),
        ("reason", reason_of(view)),
    ]
    for name, value in facts:
        if value:
            say(f"  {name:<12}{one_line(value)}")
    if not view.attempts:
        return
    say("")
    rows = [
        (
            f"{node}:{info.id}",
            marked(each.resource, found.emulated(node)),
            readable_duration((each.finish or now()) - each.start),
            str(each.strips),
        )
        for node, info in view.attempts
        for each in info.segments
    ]
    table(("task", "on", "took", "strips"), rows)
    say(f"\nhetctl show on {view.attempts[-1][0]} has all the rest of it")


# ------------------------------------------------------------ wait


@click.command("wait")
@tasks_argument
@click.option("--timeout", type=Duration(), help="Wait at most this long, e.g. 90s.")
@pooled
def wait_command(
    *,
    selectors: tuple[str, ...],
    timeout: float | None,
    config: str | None,
    as_json: bool,
) -> int:
    """Wait for tasks to end, and print a line for each."""
    with open_pool(config) as pool:
        _, views = gather(pool, selectors)
        return wait_for(pool, [view.job for view in views], timeout, as_json=as_json)


def wait_for(
    pool: Pool,
    jobs: Sequence[str],
    timeout: float | None,
    *,
    as_json: bool,
    own: Sequence[PoolTask] = (),
) -> int:
    """Wait until jobs have ended; return the exit status of `hetctl wait`.

    The nodes and the broker are asked, not a future: the jobs may be another client's. Of
    its own tasks, this client knows those that were never sent.
    """
    from hetctl.pool.gathering import TaskView, gathered

    deadline = None if timeout is None else time.monotonic() + timeout
    left = set(jobs)
    while True:
        ended = [task for task in own if task.done()]
        found = gathered(pool)
        mine = [view for view in found.tasks if view.job in set(jobs)]
        seen = {view.job for view in mine}
        mine += [
            TaskView(task.id, status=task.status())
            for task in ended
            if task.id not in seen
        ]
        for view in reversed(mine):
            if view.job in left and view.ended:
                left.discard(view.job)
                if not as_json:
                    say(one_line(ended_line(view, found)))
        if not left or (deadline is not None and time.monotonic() > deadline):
            break
        time.sleep(LOOK_S)
    if as_json:
        emit(tasks_part(mine, found))
    if left:
        say(f"hetctl: {len(left)} of {len(jobs)} tasks have not ended", err=True)
        return EXIT_TIMEOUT
    return status_of({view.state for view in mine})


def ended_line(view: TaskView, found: Gathered) -> str:
    """Return a line about a task that has ended."""
    resource, reason = resource_of(view), reason_of(view)
    where = f" on {marked(resource, found.emulated(view.node))}" if resource else ""
    moves = (
        f", moved {view.moves} times" if view.moves > 1 else ", moved once" * view.moves
    )
    return f"task {view.id} {view.state}{where}{moves}" + (
        f": {reason}" if reason else ""
    )


def status_of(states: set[str]) -> int:
    """Return the exit status for the states of ended tasks."""
    if "failed" in states:
        return EXIT_SOME_FAILED
    return EXIT_SOME_CANCELLED if states & {"cancelled", "dropped"} else 0


# ------------------------------------------------------------ cancel, move


@click.command("cancel")
@tasks_argument
@click.option("--reason", default="", help="Reason, recorded with the tasks.")
@pooled
def cancel_command(
    *, selectors: tuple[str, ...], reason: str, config: str | None, as_json: bool
) -> None:
    """Cancel tasks; running ones end at their next checkpoint."""
    if len(reason) > LONGEST_REASON:
        raise click.UsageError(f"--reason: at most {LONGEST_REASON} characters")
    with open_pool(config) as pool:
        _, views = gather(pool, selectors)
        live = [view for view in views if not view.ended]
        if live:
            pool.cancel(*[view.job for view in live], reason=reason)
    _report_control("cancel", [v.id for v in live], "cancelled", as_json=as_json)
    for view in views:
        if view.ended:
            say(f"task {view.id} has already ended", err=True)


@click.command("move")
@click.argument("task")
@click.argument("node", shell_complete=complete_nodes)
@pooled
def move_command(*, task: str, node: str, config: str | None, as_json: bool) -> None:
    """Move TASK to NODE; a running one continues there from its snapshot."""
    with open_pool(config) as pool:
        _, views = gather(pool, [task])
        if len(views) != 1:
            raise InputError(f"{task}: expected one task, {len(views)} are selected")
        (view,) = views
        if view.ended:
            raise InputError(f"task {view.id} has already ended")
        if view.node == node:
            raise InputError(f"task {view.id} is on {node} already")
        _check_node(pool, node)
        pool.move(view.job, node)
    _report_control("move", [view.id], f"moves to {node}", as_json=as_json)


def _check_node(pool: Pool, name: str) -> None:
    there = sorted(node.name for node in pool.nodes() if node.present and node.slots)
    if name not in there:
        from libtask.wording import suggestion

        hint = suggestion(name, there)
        raise NotFoundError(
            f"no node {name!r}{hint} that runs tasks; there are: {', '.join(there)}"
        )


def _report_control(verb: str, names: list[str], done: str, *, as_json: bool) -> None:
    if as_json:
        emit({"format": "hetctl/pool-control-1", "verb": verb, "ids": names})
        return
    for name in names:
        say(f"task {name} {done}")


# ------------------------------------------------------------ logs, explain


@click.command("logs")
@tasks_argument
@click.option(
    "-n", "--lines", type=Whole(0), help="Print only the last N lines of each."
)
@pooled
def logs_command(
    *,
    selectors: tuple[str, ...],
    lines: int | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Print the output of tasks, from all nodes that they were on."""
    from hetpool.inquiry import AskOutput, TaskOutput

    with open_pool(config) as pool:
        _, views = gather(pool, selectors)
        for view in views:
            for node, info in view.attempts:
                question = AskOutput(info.id, lines)
                found = pool.inquire(node, question, TaskOutput)
                _print_output(f"{node}:{info.id}", found, len(views), as_json=as_json)


def _print_output(name: str, found: Any, count: int, *, as_json: bool) -> None:
    if as_json:
        head = {"format": "hetctl/pool-log-1", "id": name}
        emit(head | {"text": found.text, "cut": found.cut})
        return
    if count > 1:
        say(f"==> task {name} <==")
    if found.cut:
        say("[the beginning is left out]", err=True)
    click.echo(found.text, nl=False)


@click.command("explain")
@tasks_argument
@pooled
def explain_command(
    *, selectors: tuple[str, ...], config: str | None, as_json: bool
) -> None:
    """Explain why tasks wait or run where they do: the pool's part, and their node's."""
    with open_pool(config) as pool:
        found, views = gather(pool, selectors)
        for view in views:
            _explain(pool, view, found, as_json=as_json)


def _explain(pool: Pool, view: TaskView, found: Gathered, *, as_json: bool) -> None:
    from hetpool.inquiry import AskExplanation
    from libtask.messages import Explained

    known = None
    if view.info is not None and not view.ended and not view.hidden:
        question = AskExplanation(view.info.id)
        known = pool.inquire(view.node, question, Explained)
    why = known.why if known is not None else _outside(view)
    if as_json:
        emit(
            {
                "format": "hetctl/pool-explanation-1",
                "id": view.id,
                "node": view.node or None,
                "why": why,
                "rule": (known.rule or None) if known is not None else None,
                "policy": (known.policy or None) if known is not None else None,
            }
        )
        return
    if known is None:
        say(one_line(f"task {view.id} {why}"))
        return
    say(f"on {view.node}, where the pool's plan put it:")
    for line in reasons(known):
        say(one_line(line))
    rows = prospect_rows(known.prospects, found.emulated(view.node), known.resource)
    if rows:
        say("")
        table(PROSPECT_HEADINGS, rows)


def _outside(view: TaskView) -> str:
    """Say what happens to a task that no hetd has, or that has ended."""
    if view.ended:
        reason = reason_of(view)
        return f"has ended: {view.state}" + (f": {reason}" if reason else "")
    why = reason_of(view) or "no node that is present can run it now"
    return {
        "waiting": f"waits: {why}",
        "transferring": f"is placed on {view.node}: its input files are on their way",
        "unreachable": f"is on a node that does not answer: {why}",
        "moving": f"moves to another node; it was on {view.node or 'none'}",
    }.get(view.state, view.state)


# ------------------------------------------------------------ get


@click.command("get")
@click.argument("task")
@click.option(
    "--parameter",
    default="output",
    show_default=True,
    help="Parameter of the task with the file's path on its node.",
)
@click.option(
    "--file",
    "name",
    default="",
    metavar="NAME",
    help="A file in the folder of a program instead.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write.  [default: its name there, in this folder]",
)
@pooled
def get_command(
    *, task: str, output: Path | None, config: str | None, as_json: bool, **given: str
) -> None:
    """Fetch a file that TASK wrote on its node, such as the output of a heat task.

    The folder of a program stays for two weeks after its end, and with it all files that it
    left there.
    """
    from hetpool.inquiry import AskFile

    if output is not None:
        check_replaceable(output)
    with open_pool(config) as pool:
        _, views = gather(pool, [task])
        if len(views) != 1:
            raise InputError(f"{task}: expected one task, {len(views)} are selected")
        (view,) = views
        if view.hidden:
            raise HetError(f"task {view.id} {_outside(view)}")
        if view.info is None:
            raise NotFoundError(f"task {view.id} has not begun on any node")
        question = AskFile(view.info.id, given["parameter"], name=given["name"])
        path, size = _fetched(pool, view.node, question, output)
    if as_json:
        document = {"format": "hetctl/pool-file-1", "id": view.id}
        emit(document | {"file": str(path), "bytes": size})
    else:
        say(f"{path}: {size} bytes of {view.id}")


def _fetched(
    pool: Pool, node: str, question: AskFile, output: Path | None
) -> tuple[Path, int]:
    """Fetch a file piece by piece; it has its name only when all of it is here."""
    from hetpool.inquiry import FilePart

    part = pool.inquire(node, question, FilePart)
    path = output or Path(Path(part.name).name)
    if output is None and path.exists():
        raise InputError(f"{path} exists; name another file with --output")
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as file:
            file.write(part.content)
            while file.tell() < part.size:
                further = msgspec.structs.replace(question, offset=file.tell())
                piece = pool.inquire(node, further, FilePart).content
                if not piece:
                    raise HetError(f"{part.name}: it became shorter meanwhile")
                file.write(piece)
        draft.replace(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return path, part.size
