"""`hetctl characterize --together`: how much applications slow each other down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetctl.output import emit, on_terminal, say, table
from hetctl.views.learned import HEADINGS, load_document, load_row
from libtask.corunning import characterise_together
from libtask.errors import InputError
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hetctl.documents.node import LearnedLoads
    from libtask.client.client import Client
    from libtask.messages import LearnedLoad

HEADER = """\
# Loads of applications that were measured beside each other by
# `hetctl characterize --together`. The daemon that measured them knows them; in hetd.toml
# these tables go before what it learns later.

"""


def measure_together(
    client: Client, apps: Sequence[str], output: Path | None, *, as_json: bool
) -> int:
    """Measure and print the loads, which the daemon keeps; write them as tables, too."""
    if output is not None and not output.absolute().parent.is_dir():
        raise InputError(f"{output}: no such folder")
    loads = characterise_together(client, apps, report=_tell)
    _warn(client)
    if output is not None:
        _write(output, loads)
    if as_json:
        emit(_document(loads, output))
        return 0
    table(HEADINGS, [load_row(each) for each in loads])
    if output is not None:
        say(f"{output}: the loads of {len(loads)} applications written")
    return 0


def _write(path: Path, loads: Sequence[LearnedLoad]) -> None:
    """Write the `[[contention.load]]` tables of measured loads."""
    import tomli_w

    names = ("app", "resource", "shared", "demand", "bound")
    tables = [{name: getattr(each, name) for name in names} for each in loads]
    try:
        text = tomli_w.dumps({"contention": {"load": tables}})
        path.write_text(HEADER + text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _document(loads: Sequence[LearnedLoad], path: Path | None) -> LearnedLoads:
    return {
        "format": "hetctl/learned-loads-1",
        "loads": [load_document(each) for each in loads],
        "file": None if path is None else str(path),
    }


def _warn(client: Client) -> None:
    """Warn that other programs computed meanwhile, where counters show it."""
    for each in client.node_load().shared:
        if each.kind == "cores" and each.evidence and each.others > BUSY:
            text = f"other programs use {each.others:.0%} of {each.name}"
            say(f"hetctl: {text}: measure again when they have ended", err=True)


BUSY = 0.3
"""Load of other programs with which slowdowns are not those of the applications."""


def _tell(text: str) -> None:
    if on_terminal():
        say(one_line(text), err=True)
