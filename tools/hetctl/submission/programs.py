"""Programs: commands after `hetctl submit --`, as tasks of the application `command`.

The environment and a script's text go into the user's attachments, never into a message.
Called by `submit` and `run`.
"""

from __future__ import annotations

import os
import shlex
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetctl.submission.variants import filled
from hetctl.units import Duration
from libtask.attachments import FOLDER, Attachments
from libtask.client.origins import Export
from libtask.commands.command import FIELDS, Command, label_of, split
from libtask.commands.environment import packed
from libtask.endpoint import launcher_folder
from libtask.errors import InputError
from libtask.origin import exported
from libtask.wording import one_line, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from libtask.client.client import Client

KINDS = ("cpu", "gpu", "fpga")
SCRIPT_BYTES = 1 << 20
"""Maximum bytes of a script."""


class Signal(click.ParamType[int]):
    """The name or number of a signal: TERM, SIGUSR1, 10."""

    name = "signal"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        if value.isdecimal() and 0 < int(value) < signal.NSIG:
            return int(value)
        word = value.upper()
        word = word if word.startswith("SIG") else f"SIG{word}"
        try:
            return int(signal.Signals[word])
        except KeyError:
            self.fail(f"expected a signal such as TERM or USR1, got {value!r}")


def _options(export: str) -> list[Callable[[Any], Any]]:
    """Return the options of programs; `export`: the default of that option."""
    own = [
        click.option(
            f"--{kind}",
            f"on_{kind}",
            metavar="COMMAND",
            help=f"Command line for resources of kind {kind}, as one argument.",
        )
        for kind in KINDS
    ]
    return [
        *own,
        click.option(
            "--input",
            metavar="FILE",
            default="",
            help="File for standard input, e.g. part-{index}.txt.  [default: empty]",
        ),
        click.option(
            "--output",
            metavar="FILE",
            default="",
            help="File for the output, e.g. log-{id}.txt.  [default: the task's log]",
        ),
        click.option(
            "--error",
            metavar="FILE",
            default="",
            help="File for standard error.  [default: the same as the output]",
        ),
        *_environment_options(export),
        click.option(
            "--stop-signal",
            type=Signal(),
            help="Signal that asks the program to save its state and exit with status 75; "
            "it can then move.",
        ),
        click.option(
            "--grace",
            type=Duration(),
            default="60s",
            help="Time allowed for the program to save its state.  [default: 60s]",
        ),
        click.option(
            "--resumable",
            is_flag=True,
            help="Treat any exit status after the stop signal as saved state.",
        ),
    ]


def _environment_options(export: str) -> list[Callable[[Any], Any]]:
    """Return the options for the environment of programs and applications."""
    return [
        click.option(
            "--env",
            "variables",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set an environment variable.",
        ),
        click.option(
            "--export",
            default=export,
            metavar="all|none|A,B",
            help=f"Variables to pass from this environment.  [default: {export}]",
        ),
    ]


def environment_options(function: Any) -> Any:
    """Add the options for the environment of programs and applications."""
    for option in reversed(_environment_options("all")):
        function = option(function)
    return function


def program_options(function: Any) -> Any:
    """Add the options of programs."""
    return _with_options(function, "all")


def pool_program_options(function: Any) -> Any:
    """Add the options of programs for other nodes, which have an environment of their own."""
    return _with_options(function, "none")


def _with_options(function: Any, export: str) -> Any:
    for option in reversed(_options(export)):
        function = option(function)
    return function


NAMES = frozenset(
    {f"on_{kind}" for kind in KINDS}
    | {
        "input",
        "output",
        "error",
        "stop_signal",
        "grace",
        "resumable",
    }
)
"""Names of these options among the parameters of a click command."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program as the user typed it.

    Attributes:
        words: the program and its arguments; empty: there are only programs by kind.
        script: the text of a script; its interpreter is in `words`.
        script_name: the file name of the script; empty: it came from standard input.
        given: the options.

    """

    words: tuple[str, ...]
    given: Mapping[str, Any]
    script: bytes = b""
    script_name: str = ""
    words_before: int = 0

    @property
    def label(self) -> str:
        """A short name for the task."""
        if self.script:
            return Path(self.script_name).name or "script"
        if self.words:
            return label_of(list(self.words))
        return label_of(next(iter(self.by_kind().values())))

    def by_kind(self) -> dict[str, list[str]]:
        """Return the words of the programs for single kinds."""
        texts = {kind: self.given[f"on_{kind}"] for kind in KINDS}
        try:
            return {kind: split(text) for kind, text in texts.items() if text}
        except ValueError as error:
            raise click.UsageError(f"{one_line(error)} in a command") from error

    def command(self, client: Client, able: Sequence[str]) -> Command:
        """Return the program as a task; store its environment in the attachments.

        Args:
            client: the connection to the daemon.
            able: kinds of resources that the general program may use.

        """
        attachments = attachments_of(client)
        own: dict[str, Any] = {
            "environment": attachments.keep(environment(export_of(self.given))),
            "folder": str(attachments.path),
        }
        if self.script:
            own["script"] = attachments.keep(self.script)
            own["words_before"] = self.words_before
        return replace(self.elsewhere(able), **own)

    def elsewhere(self, able: Sequence[str]) -> Command:
        """Return the program as a task that has no environment yet.

        Args:
            able: kinds of resources that the general program may use.

        """
        given = self.given
        for each in (given["input"], given["output"], given["error"]):
            check_pattern(each)
        try:
            return Command(
                argv=list(self.words),
                by_kind=self.by_kind(),
                able=list(able),
                name=given["name"] or self.label,
                umask=current_umask(),
                input=given["input"],
                output=given["output"],
                error=given["error"],
                stop_signal=given["stop_signal"] or 0,
                grace_s=given["grace"],
                resumable=given["resumable"],
            )
        except ValueError as error:
            raise InputError(one_line(error)) from error


class Environments:
    """Keeps the environments of the programs of one submission.

    Args:
        attachments: where they are stored; None: they are only checked.
        export: value of the option `--export`.
        variables: those of `--env`.

    """

    def __init__(
        self,
        attachments: Attachments | None = None,
        export: str = "all",
        variables: Sequence[str] = (),
    ) -> None:
        self._export = export
        self._variables = variables
        self._attachments = attachments
        self._kept: dict[frozenset[tuple[str, str]], str] = {}
        self.folder = "" if attachments is None else str(attachments.path)

    def keep(self, own: Mapping[str, str]) -> str:
        """Store the environment of a program with variables of its own; return its name.

        Raises:
            click.UsageError: a variable has no valid name, or the environment is too large.

        """
        key = frozenset(own.items())
        if key not in self._kept:
            for name in own:
                if not name or "=" in name:
                    raise click.UsageError(
                        f"env: {name!r} is not the name of a variable"
                    )
            pairs = tuple(f"{name}={value}" for name, value in own.items())
            variables = (*self._variables, *pairs)
            content = environment(
                export_of({"export": self._export, "variables": variables})
            )
            self._kept[key] = (
                "" if self._attachments is None else self._attachments.keep(content)
            )
        return self._kept[key]


def attachments_of(client: Client) -> Attachments:
    """Return the folder with the attachments of a client's user."""
    return Attachments(launcher_folder(client.path.absolute()) / FOLDER)


def variant_of(command: Command, variant: Mapping[str, Any]) -> Command:
    """Return a member of an array: its index replaces `{index}` in the words."""
    if not variant:
        return command
    return replace(
        command,
        argv=filled(command.argv, variant),
        by_kind=filled(command.by_kind, variant),
        index=variant.get("index"),
    )


def export_of(given: Mapping[str, Any]) -> Export:
    """Return the variables that tasks get from this environment.

    Raises:
        click.UsageError: an option is not KEY=VALUE.

    """
    variables: dict[str, str] = {}
    for text in given["variables"]:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--env: expected KEY=VALUE, got {text!r}")
        variables[key] = value
    return Export(given["export"], variables)


def environment(export: Export) -> bytes:
    """Return the environment of a program in its stored form.

    Raises:
        InputError: it is too large, or lacks an exported variable.

    """
    return packed(exported(export.names, export.variables))


def resources_in(kinds: Mapping[str, str], words: Iterable[str]) -> list[str]:
    """Replace the name of a kind by its resources, unless a resource has that name.

    Args:
        kinds: the kind of each resource of the node.
        words: names of resources and of kinds.

    Raises:
        InputError: the node has no resource of that kind.

    """
    found: dict[str, None] = {}
    for word in words:
        if word in kinds or word not in KINDS:
            found[word] = None
            continue
        alike = [name for name, kind in kinds.items() if kind == word]
        if not alike:
            raise InputError(
                f"no resource of kind {word}; there are: {', '.join(kinds)}"
            )
        found |= dict.fromkeys(alike)
    return list(found)


def unknown_place(resources: Sequence[str], names: Iterable[str]) -> str:
    """Return what is wrong with names of resources and kinds; empty: nothing."""
    known = list(dict.fromkeys([*resources, *KINDS]))
    for name in names:
        if name not in known:
            hint = suggestion(name, known)
            return f"no resource or kind {name!r}{hint}; there are: {', '.join(known)}"
    return ""


def able_kinds(kinds: Mapping[str, str], resources: Iterable[str]) -> list[str]:
    """Return the kinds of the resources that a program may use.

    Args:
        kinds: the kind of each resource of the node.
        resources: the names that the user gave; none: the CPU.

    """
    found = [kinds[name] for name in resources if name in kinds]
    return list(dict.fromkeys(found)) or ["cpu"]


def read_script(name: str, content: bytes, arguments: Sequence[str]) -> Program:
    """Return a script as a program.

    Raises:
        InputError: the script is too large, or has no `#!` line.

    """
    if len(content) > SCRIPT_BYTES:
        text = f"{name}: {len(content)} bytes, a script has at most {SCRIPT_BYTES}"
        raise InputError(text)
    first = content.split(b"\n", 1)[0].decode(errors="replace")
    words = shlex.split(first[2:]) if first.startswith("#!") else []
    if not words:
        expected = "expected a first line with the interpreter, such as #!/bin/sh"
        raise InputError(f"{name}: {expected}")
    shown = "" if name == "-" else name
    return Program((*words, *arguments), {}, content, shown, len(words))


def check_pattern(pattern: str) -> None:
    """Check the name of an input or output file.

    Raises:
        click.UsageError: it has an unknown `{field}`.

    """
    left = pattern
    for known in FIELDS:
        left = left.replace(known, "")
    if "{" in left or "}" in left:
        listing = ", ".join(FIELDS)
        raise click.UsageError(f"{pattern}: file names may contain {listing}")


def current_umask() -> int:
    """Return the process's umask; reading it takes setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
