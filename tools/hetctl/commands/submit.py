"""`hetctl submit`: a task of an application, its parameters as options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from hetctl.options import assignments, connect, shared
from hetctl.output import emit
from hetctl.selectors import selected, split
from hetctl.units import Duration
from hetctl.waiting import Manner, wait_for

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskSpec
    from libtask.task import Task

MOST = 1_000_000


class Submit(click.Command):
    """Tells with `submit APP --help` what the application takes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and {"-h", "--help"} & set(args):
            click.echo(usage(args[0]))
            ctx.exit()
        return super().parse_args(ctx, args)


@click.command("submit", cls=Submit, context_settings={"ignore_unknown_options": True})
@click.argument("app")
@click.argument(
    "rest", nargs=-1, type=click.UNPROCESSED, metavar="[--PARAMETER VALUE]..."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A parameter."
)
@click.option(
    "--priority", type=int, default=0, help="Higher runs first within a queue."
)
@click.option(
    "--after", multiple=True, metavar="SELECTOR", help="Start when these completed."
)
@click.option("--hold", is_flag=True, help="Wait for `hetctl release`.")
@click.option(
    "--on", "resources", multiple=True, metavar="RESOURCE", help="Only there."
)
@click.option("--strip", type=click.IntRange(1), help="Iterations between checkpoints.")
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
    "--wait", "waiting", is_flag=True, help="Wait for the end; a line tells it."
)
@click.option("--follow", is_flag=True, help="Wait, with live progress on a terminal.")
@click.option("--timeout", type=Duration(), help="Wait no longer, e.g. 90s or 15min.")
@shared
def submit_command(app: str, rest: tuple[str, ...], **given: Any) -> int:
    """Submit a task of APP: an installed application, or path/to/file.py:Class.

    Parameters of the application are options: hetctl submit heat --n 4096 --steps 100.
    One that has the name of an option here is given as --set name=value.
    hetctl submit heat --help tells which there are.
    """
    task = _task(app, rest, given["settings"])
    split(given["after"])
    with connect(given["socket"]) as client:
        spec = _spec(client, app, task, given)
        handles = client.submit_specs([spec] * given["count"])
        return finish(client, handles, given)


def finish(client: Client, handles: list[TaskHandle], given: dict[str, Any]) -> int:
    """Say what was submitted; wait where that is asked for."""
    waits = given["waiting"] or given["follow"] or given["timeout"] is not None
    if not given["as_json"]:
        click.echo(said(handles))
    elif not waits:
        emit({"format": "hetctl/submitted-1", "ids": [handle.id for handle in handles]})
    if not waits:
        return 0
    manner = Manner(given["timeout"], given["follow"], given["as_json"])
    return wait_for(client, handles, manner)


def said(handles: list[TaskHandle]) -> str:
    """Name the tasks in a few words, in a form that is a selector too."""
    if not handles:
        return "no tasks submitted"
    if len(handles) == 1:
        return f"task {handles[0].id} submitted"
    return f"tasks {handles[0].id}-{handles[-1].id} submitted"


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


def _task(app: str, rest: tuple[str, ...], settings: tuple[str, ...]) -> Task:
    from libtask.apps import build, resolve
    from libtask.parameters import parameters

    app_class = resolve(app)
    flags = {each.name for each in parameters(app_class).values() if each.type is bool}
    texts = natural(rest, flags) | assignments(settings)
    return build(app_class, texts, text=True)


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


def _spec(client: Client, app: str, task: Task, given: dict[str, Any]) -> TaskSpec:
    from libtask.apps import Options, describe

    resources = [
        name.strip() for text in given["resources"] for name in text.split(",")
    ]
    options = Options(
        priority=given["priority"],
        after=tuple(selected(client, given["after"], live=True)),
        hold=given["hold"],
        resources=tuple(resources),
        strip=given["strip"],
        name=given["name"],
        deadline_s=given["deadline"],
        overrun=given["overrun"],
    )
    return describe(task, app, options)
