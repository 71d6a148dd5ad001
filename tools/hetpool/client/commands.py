"""Programs as jobs: what a command of `libtask.commands` needs on a node that is not this one.

It runs in a folder of its own there, with the files that are sent along, or in a folder
that the node has itself (`cwd`). Its environment is the node's, and what is exported.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetpool.jobs import SentFile
from libtask.commands import Command
from libtask.errors import InputError
from libtask.origin import OF_ONE_PROCESS, exported
from libtask.parameters import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hetpool.jobs import InputFile

    Bring = Callable[[Path], InputFile]

OF_NODE = ("script", "environment", "folder", "starts_before")
"""Parameters that only a node can set."""
VARYING = ("{id}", "{attempt}", "{resource}")
"""Fields of file names that would give a command that moves another file on each node."""


def parameters_of(command: Command) -> dict[str, Any]:
    """Return the parameters of a command that differ from their defaults."""
    plain = Command(argv=["-"])
    values = {each.name: getattr(command, each.name) for each in fields(command)}
    return {
        name: value
        for name, value in values.items()
        if name == "argv" or value != getattr(plain, name)
    }


def checked(
    params: Mapping[str, Any], cwd: str, sent: Sequence[SentFile]
) -> dict[str, Any]:
    """Check the parameters of a command; return them with the final names of its files.

    Args:
        params: with marks in place of input files.
        cwd: folder of the node; empty: it gets one of its own.
        sent: the files that it finds there.

    Raises:
        InputError: a value is invalid, or the node would not find a file.

    """
    for name in OF_NODE:
        if params.get(name):
            raise InputError(f"a command in a pool has no {name}; send a file along")
    command = build(Command, params)
    if not cwd:
        _check_programs(command, {each.name for each in sent})
    files = {
        name: _placed(command, name, cwd)
        for name in ("output", "error")
        if params.get(name)
    }
    return {**params, **files}


def _check_programs(command: Command, sent: set[str]) -> None:
    """Refuse a program that is named by a path in the folder of the submission."""
    for words in (command.argv, *command.by_kind.values()):
        program = words[0] if words else "/"
        own = program.removeprefix("./")
        if "/" in program and not program.startswith("/") and own not in sent:
            raise InputError(
                f"{program}: a command runs in a folder of its own on the node; send the "
                "file along, or name a folder that the node has as cwd"
            )


def _placed(command: Command, parameter: str, cwd: str) -> str:
    """Return the name that a file of a command's output has on the node."""
    name: str = getattr(command, parameter)
    varying = [field for field in VARYING if field in name]
    if varying:
        raise InputError(
            f"{parameter} {name}: {varying[0]} differs from node to node; a pool has "
            "{index} and {name}"
        )
    index = "" if command.index is None else str(command.index)
    name = name.replace("{index}", index).replace("{name}", command.name)
    if cwd:
        return str(Path(cwd) / name)
    if "/" in name or name in (".", ".."):
        raise InputError(
            f"{parameter} {name}: expected a name in the command's own folder on the "
            "node; a path needs cwd"
        )
    return name


def sent_files(
    paths: Iterable[str | os.PathLike[str]], bring: Bring
) -> list[tuple[SentFile, InputFile]]:
    """Make files available in the pool that lie in a command's folder under their names.

    Raises:
        InputError: one cannot be read, or two have one name.

    """
    found: dict[str, tuple[SentFile, InputFile]] = {}
    for each in paths:
        path = Path(each).expanduser().absolute()
        if path.name in found:
            raise InputError(f"two files named {path.name} are sent along")
        if path.is_dir():
            raise InputError(f"{each}: is a folder; pack it into a file")
        file = bring(path)
        named = SentFile(path.name, file.mark, os.access(path, os.X_OK))
        found[path.name] = named, file
    return list(found.values())


def variables_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of this process that a job gets on its node.

    Args:
        options: of the job; `export`: `none` (the default), `all` or names, separated by
            commas; `env`: further ones.

    Raises:
        InputError: there is no such variable, or one has no plain form.

    """
    chosen = _exported(str(options.get("export") or "none")) | {
        str(name): str(value) for name, value in (options.get("env") or {}).items()
    }
    for name, value in chosen.items():
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            raise InputError(f"environment: {name!r} is not UTF-8") from None
    exported("none", chosen)  # checks their names and their size
    return chosen


def _exported(names: str) -> dict[str, str]:
    if names == "none":
        return {}
    if names == "all":
        # hetd's own variables describe this node
        return {
            name: value
            for name, value in os.environ.items()
            if name not in OF_ONE_PROCESS and not name.startswith("HETD_")
        }
    wanted = [name.strip() for name in names.split(",")]
    absent = [name for name in wanted if name not in os.environ]
    if absent:
        raise InputError(f"export: there is no variable {absent[0]!r}")
    return {name: os.environ[name] for name in wanted}
