"""`hetctl completion`: shell code that completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hetctl.options import json_option
from hetctl.output import emit
from hetctl.terminal import say


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion_command(ctx: click.Context, *, shell: str, as_json: bool) -> None:
    """Print completion code; for bash: eval "$(hetctl completion bash)"."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    code = kind(ctx.find_root().command, {}, "hetctl", "_HETCTL_COMPLETE").source()
    if as_json:
        emit({"format": "hetctl/completion-1", "shell": shell, "code": code})
    else:
        say(code)
