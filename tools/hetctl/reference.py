"""The manual: one page per command, generated from the command itself.

`hetctl doc` prints pages, and the documentation contains them all.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import click

from hetctl.documents.schemas import PRINTED, documents

if TYPE_CHECKING:
    from collections.abc import Iterator

STATUSES = """\
| exit status | means |
|---|---|
| 0 | done |
| 1 | the command failed |
| 2 | bad usage or bad input |
| 3 | the daemon, or the scheduler of the pool, cannot be reached |
| 4 | not found |
| 5 | not allowed, or a certificate is refused |
| 10 | all tasks waited for have ended, some failed |
| 11 | all tasks waited for have ended, some were cancelled or dropped |
| 124 | the time limit of `wait` passed |
| 141 | the reader of its output has closed the pipe |
"""
SELECTORS = """\
A SELECTOR names tasks: an id, a range `3-9`, `last`, `all`, `mine`, `@NAME` (the newest
submission of tasks or of an array with that name; `*` and `?` are wildcards),
`@NAME:all` (every submission with that name), `job:NAME` (the tasks of a job), or a comma
list of these.
A DURATION is `90s`, `15min`, `2h`; a bare number is seconds.
"""


def commands(
    root: click.Command, name: str = ""
) -> Iterator[tuple[str, click.Command]]:
    """Iterate over the commands below `root` with their full names, without groups."""
    if not isinstance(root, click.Group):
        yield name, root
        return
    context = click.Context(root, info_name=name or None)
    for each in root.list_commands(context):
        found = root.get_command(context, each)
        if found is not None:
            yield from commands(found, f"{name} {each}".strip())


def page(name: str, command: click.Command) -> str:
    """Return the page of one command as Markdown."""
    context = click.Context(command, info_name=f"hetctl {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [
        f"## hetctl {name}",
        f"    hetctl {name} {usage}",
        _story(command),
        _options(command, context),
        _documents(name),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def manual(root: click.Command) -> str:
    """Return all pages, after the parts that they share."""
    head = "# hetctl\n\nEvery command takes `--json`, also before its name, and `--socket PATH`, but for those of `pool`."
    pages = [page(name, command) for name, command in commands(root)]
    return "\n\n".join([head, STATUSES, SELECTORS, *pages])


def _story(command: click.Command) -> str:
    """Return the docstring with indentation in place of click's mark before listings."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(_paragraph(each) for each in paragraphs)


def _paragraph(text: str) -> str:
    if not text.startswith("\b"):
        return text
    return "\n".join(f"    {line}" for line in text.splitlines()[1:])


def _options(command: click.Command, context: click.Context) -> str:
    records = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)  # the usage line shows the others
        and (record := parameter.get_help_record(context)) is not None
    ]
    rows = [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in records]
    return "\n".join(["| option | |", "|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()


def _documents(name: str) -> str:
    printed = PRINTED.get(name, ())
    known = documents()
    rows = [f"- `{each}`: {known[each].__doc__}" for each in printed]
    return "\n".join(["JSON documents:", "", *rows]) if rows else ""
