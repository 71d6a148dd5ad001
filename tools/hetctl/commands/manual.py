"""`hetctl doc` and `hetctl completion`: manual pages, JSON schemas, shell completion."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from hetctl.completion_code import register
from hetctl.options import json_option
from hetctl.output import emit, say

if TYPE_CHECKING:
    from hetctl.documents.node import Page


# ------------------------------------------------------------ doc


@click.command("doc")
@click.argument("command", nargs=-1, metavar="[COMMAND]...")
@click.option(
    "--schema",
    metavar="NAME",
    help="Print the JSON Schema of a document such as task-1.",
)
@json_option
@click.pass_context
def doc_command(
    ctx: click.Context, *, command: tuple[str, ...], schema: str | None, as_json: bool
) -> None:
    """Print the manual of a command such as `submit` or `policy set`, by default all of it.

    The manual is Markdown. It names the JSON documents of each command's --json output;
    --schema NAME prints the schema of such a document.
    """
    if schema is not None:
        from hetctl.documents.schemas import schema_of

        say(json.dumps(schema_of(schema), indent=2))
        return
    name = " ".join(command)
    text = _manual_text(ctx.find_root().command, name)
    if as_json:
        page: Page = {"format": "hetctl/doc-1", "command": name, "text": text}
        emit(page)
    else:
        say(text)


def _manual_text(root: click.Command, name: str) -> str:
    from hetctl.reference import commands, manual, page

    if not name:
        return manual(root)
    known = dict(commands(root))
    pages = [
        page(each, found)
        for each, found in known.items()
        if each == name or each.startswith(f"{name} ")
    ]
    if not pages:
        from libtask.wording import suggestion

        raise click.UsageError(f"no command {name!r}{suggestion(name, known)}")
    return "\n".join(pages)


# ------------------------------------------------------------ completion


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion_command(ctx: click.Context, *, shell: str, as_json: bool) -> None:
    """Print shell completion code; for bash: eval "$(hetctl completion bash)"."""
    register()
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    code = kind(ctx.find_root().command, {}, "hetctl", "_HETCTL_COMPLETE").source()
    if as_json:
        emit({"format": "hetctl/completion-1", "shell": shell, "code": code})
    else:
        say(code)
