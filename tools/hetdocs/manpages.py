"""Manual pages: text written by hand, with options and keys generated from the code.

    python -m hetdocs.manpages SOURCE OUT

SOURCE holds `NAME.in` with `@options@`, `@commands@` or `@keys@` where those belong.
`make install` calls it.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import hetd
from hetctl.__main__ import main as hetctl
from hetctl.reference import commands
from hetd.__main__ import parser
from hetdocs.keys import tables
from hetsim.__main__ import cli as hetsim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetdocs.keys import Key

PAGES = ("hetd.8", "hetctl.1", "hetsim.1", "hetd.toml.5")
COMMON = {"--json", "--socket", "--help"}
"""Options of every command: described once."""


def page(source: str) -> str:
    """Fill in a page."""
    parts = {
        "options": _options,
        "commands": lambda: _commands(hetctl, "hetctl"),
        "simulator": lambda: _commands(hetsim, "hetsim"),
        "keys": _keys,
    }
    text = source.replace("@version@", hetd.__version__)
    for name, make in parts.items():
        if f"@{name}@" in text:
            text = text.replace(f"@{name}@", "\n".join(make()))
    return text


def roff(text: str) -> str:
    """Escape text so that it contains no requests."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n.PP\n".join(_paragraph(each) for each in paragraphs)


def _paragraph(text: str) -> str:
    # click does not wrap paragraphs that begin with this
    kept = text.startswith("\b\n")
    lines = [_line(line) for line in text.removeprefix("\b\n").splitlines()]
    whole = "\n".join(line for line in lines if line)
    return f".nf\n{whole}\n.fi" if kept else whole


def _line(line: str) -> str:
    plain = line.strip().replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    wide = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in plain)
    return f"\\&{wide}" if wide.startswith((".", "'")) else wide


def _tagged(term: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {_quoted(term)}"
    yield roff(text)


def _quoted(term: str) -> str:
    return '"' + roff(term).replace('"', '""') + '"'


def _options() -> Iterator[str]:
    for action in parser()._actions:  # noqa: SLF001  argparse tells it in no other way
        term = " ".join([", ".join(action.option_strings), str(action.metavar or "")])
        yield from _tagged(term.strip(), (action.help or "").capitalize() + ".")


def _commands(root: click.Group, program: str) -> Iterator[str]:
    for name, command in commands(root):
        context = click.Context(command, info_name=f"{program} {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        yield f".SS {_quoted(f'{program} {name} {usage}')}"
        yield roff(command.help or command.short_help or "")
        for parameter in command.params:
            yield from _option(parameter, context)


def _option(parameter: click.Parameter, context: click.Context) -> Iterator[str]:
    if isinstance(parameter, click.Argument) or COMMON & set(parameter.opts):
        return
    record = parameter.get_help_record(context)
    if record is not None:
        yield from _tagged(*record)


def _keys() -> Iterator[str]:
    for written, text, keys in tables():
        yield f".SH {_quoted(f'{written} TABLE' if written else 'KEYS')}"
        yield roff(text)
        for key in keys:
            yield from _tagged(f"{key.name} = {key.type}", _describe(key))


def _describe(key: Key) -> str:
    default = f" Default: {key.default}." if key.default else ""
    return key.text + default + (" Reloaded." if key.reloaded else "")


def write(source: Path, out: Path) -> None:
    """Write all pages."""
    out.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        text = (source / f"{name}.in").read_text(encoding="utf-8")
        (out / name).write_text(page(text), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
