"""`hetctl submit`: a task of an application, its parameters as options."""

from __future__ import annotations

import dataclasses
import inspect
import secrets
from typing import TYPE_CHECKING, Any

import click

from hetctl.completing import applications, resources
from hetctl.options import assignments, connect, submitting
from hetctl.output import emit
from hetctl.selectors import selected, split
from hetctl.terminal import say
from hetctl.units import Duration, Whole
from hetctl.variants import filled, indexes, member
from hetctl.waiting import Manner, wait_for

if TYPE_CHECKING:
    from hetctl.documents.tasks import Submitted
    from libtask.apps import Options
    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskSpec
    from libtask.task import Task

MOST = 1_000_000


class Submit(click.Command):
    """Tells with `submit APP --help` what the application takes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and {"-h", "--help"} & set(args):
            say(usage(args[0]))
            ctx.exit()
        return super().parse_args(ctx, args)


@click.command("submit", cls=Submit, context_settings={"ignore_unknown_options": True})
@click.argument("app", shell_complete=applications)
@click.argument(
    "rest", nargs=-1, type=click.UNPROCESSED, metavar="[--PARAMETER VALUE]..."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A parameter."
)
@click.option(
    "--priority", type=Whole(), default=0, help="Higher runs first within a queue."
)
@click.option(
    "--after", multiple=True, metavar="SELECTOR", help="Start when these completed."
)
@click.option("--hold", is_flag=True, help="Wait for `hetctl release`.")
@click.option(
    "--on",
    "resources",
    multiple=True,
    metavar="RESOURCE",
    shell_complete=resources,
    help="Only there.",
)
@click.option("--strip", type=Whole(1), help="Iterations between checkpoints.")
@click.option(
    "--deadline", type=Duration(), help="Due so long after submission, e.g. 5s."
)
@click.option(
    "--overrun",
    type=click.Choice(["continue", "stop"]),
    default="continue",
    help="What to do at the deadline.  [default: continue]",
)
@click.option("--name", default="", help="A label of your own.")
@click.option(
    "--count", type=click.IntRange(1, MOST), default=1, help="So many of them."
)
@click.option(
    "--array",
    metavar="INDEXES",
    help="One for each index, e.g. 0-99; {index} stands for it in values and names.",
)
@submitting
def submit_command(app: str, rest: tuple[str, ...], **given: Any) -> int:
    """Submit a task of APP: an installed application, or path/to/file.py:Class.

    Parameters of the application are options: hetctl submit heat --n 4096 --steps 100.
    One that has the name of an option here is given as --set name=value.
    hetctl submit heat --help tells which there are. The tasks of an array share a name,
    and @NAME selects them all: hetctl cancel @NAME.
    """
    texts = _texts(app, rest, given["settings"])
    variants = _variants(given["array"])
    name = given["name"] or (_own_name(app) if given["array"] else "")
    tasks = [(each, _task(app, filled(texts, each))) for each in variants]
    split(given["after"])
    with connect(given["socket"], start=given["start"]) as client:
        options = _options(client, given)
        specs = [
            describe_one(app, task, options, member(name, each, each.get("index")))
            for each, task in tasks
        ]
        handles = client.submit_specs(
            [spec for spec in specs for _ in range(given["count"])]
        )
        given["label"] = name if given["array"] else None
        return finish(client, handles, given)


def finish(client: Client, handles: list[TaskHandle], given: dict[str, Any]) -> int:
    """Say what was submitted; wait where that is asked for."""
    waits = given["waiting"] or given["follow"] or given["timeout"] is not None
    if not given["as_json"]:
        label = given.get("label")
        say(said(handles) + (f"; select them as @{label}" if label else ""))
    elif not waits:
        emit(submitted(handles, given.get("label")))
    if not waits:
        return 0
    manner = Manner(given["timeout"], given["follow"], given["as_json"])
    return wait_for(client, handles, manner)


def submitted(handles: list[TaskHandle], label: str | None) -> Submitted:
    """Write what was submitted; `label`: the name that an array has in common."""
    ids = [handle.id for handle in handles]
    return {"format": "hetctl/submitted-1", "ids": ids, "name": label}


def said(handles: list[TaskHandle]) -> str:
    """Name the tasks in a few words, in a form that is a selector too."""
    if not handles:
        return "no tasks submitted"
    if len(handles) == 1:
        return f"task {handles[0].id} submitted"
    return f"tasks {','.join(ranges([handle.id for handle in handles]))} submitted"


def ranges(ids: list[int]) -> list[str]:
    """Write ids as ranges; between two messages, other users' tasks may have come."""
    found: list[list[int]] = []
    for task in ids:
        if found and task == found[-1][-1] + 1:
            found[-1][1:] = [task]
        else:
            found.append([task])
    return ["-".join(str(task) for task in each) for each in found]


def usage(app: str) -> str:
    """Describe an application and its parameters."""
    from libtask.apps import resolve
    from libtask.parameters import parameters

    app_class = resolve(app)
    story = inspect.cleandoc(app_class.__doc__ or "")
    if story.startswith(f"{app_class.__name__}("):
        story = ""  # what dataclass puts where its author wrote nothing
    options = [
        f"  --{each.name.replace('_', '-')}  {each}".replace(f"  {each.name}: ", "  ")
        for each in parameters(app_class).values()
    ]
    head = f"Usage: hetctl submit {app} [--PARAMETER VALUE]... [OPTIONS]"
    tail = "Options of every task: hetctl submit --help"
    parts = (head, story, "\n".join(["Parameters:", *options]), tail)
    return "\n\n".join(part for part in parts if part)


def _variants(array: str | None) -> list[dict[str, Any]]:
    """Return what `{index}` is for each task; one without an index where none is asked."""
    if array is None:
        return [{}]
    try:
        return [{"index": index} for index in indexes(array)]
    except ValueError as error:
        raise click.UsageError(f"--array: {error}") from error


def _own_name(app: str) -> str:
    """Make up a name for an array, by which its tasks can be selected."""
    from libtask.apps import short_name

    return f"{short_name(app).rpartition(':')[2]}-{secrets.token_hex(3)}"


def _texts(
    app: str, rest: tuple[str, ...], settings: tuple[str, ...]
) -> dict[str, str]:
    """Read the parameters as they were written."""
    from libtask.apps import resolve
    from libtask.parameters import parameters

    known = parameters(resolve(app)).values()
    flags = {each.name for each in known if each.type is bool}
    return natural(rest, flags) | assignments(settings)


def _task(app: str, texts: dict[str, str]) -> Task:
    from libtask.apps import build, resolve

    return build(resolve(app), texts, text=True)


def natural(words: tuple[str, ...], flags: set[str]) -> dict[str, str]:
    """Read `--n 4096 --edge=fixed --wide --no-wide`; `flags` may go without a value.

    Raises:
        click.UsageError: a word that is no option, or an option without its value.

    """
    found: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--") or word == "--":
            raise click.UsageError(
                f"unexpected argument {word!r}; parameters are --name value"
            )
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if equals:
            found[name] = value
        elif left and not left[0].startswith("--"):
            found[name] = left.pop(0)
        else:
            found |= _flag(name, flags)
    return found


def _flag(name: str, flags: set[str]) -> dict[str, str]:
    if name in flags:
        return {name: "true"}
    if name.removeprefix("no_") in flags:
        return {name.removeprefix("no_"): "false"}
    raise click.UsageError(f"option --{name.replace('_', '-')} needs a value")


def describe_one(app: str, task: Task, options: Options, name: str) -> TaskSpec:
    """Describe a task under a name of its own."""
    from libtask.apps import describe

    return describe(task, app, dataclasses.replace(options, name=name))


def _options(client: Client, given: dict[str, Any]) -> Options:
    from libtask.apps import Options

    resources = [
        name.strip() for text in given["resources"] for name in text.split(",")
    ]
    return Options(
        priority=given["priority"],
        after=tuple(selected(client, given["after"], live=True)),
        hold=given["hold"],
        resources=tuple(resources),
        strip=given["strip"],
        deadline_s=given["deadline"],
        overrun=given["overrun"],
    )
