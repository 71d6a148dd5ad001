"""`hetctl explain`: why a task waits or runs where it does, in figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hetctl.completing import selectors as selectors_there
from hetctl.explanation import HEADINGS, reasons, rows
from hetctl.options import connect, shared
from hetctl.output import emit, table
from hetctl.places import emulated_names
from hetctl.selectors import selected
from hetctl.terminal import say

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import Explained


@click.command("explain")
@click.argument(
    "selectors",
    nargs=-1,
    required=True,
    metavar="SELECTOR...",
    shell_complete=selectors_there,
)
@shared
def explain_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Say why a task waits or runs where it does.

    For every resource: when the task would be done there if nothing else changed, what
    it would wait for, what moving it costs, and how far these figures are to be relied
    on. The task's place is marked with an arrow.
    """
    with connect(socket) as client:
        emulated = emulated_names(client)
        found = [client.explain(task) for task in selected(client, selectors)]
    documents = [_document(each, emulated) for each in found]
    if not as_json:
        for each in found:
            _print(each, emulated)
    elif len(documents) == 1:
        emit({"format": "hetctl/explanation-1", **documents[0]})
    else:
        emit({"format": "hetctl/explanations-1", "explanations": documents})


def _document(found: Explained, emulated: frozenset[str]) -> dict[str, Any]:
    return {
        "id": found.id,
        "state": found.state,
        "why": found.why,
        "policy": found.policy or None,
        "rule": found.rule or None,
        "objective": found.objective,
        "resource": found.resource,
        "prospects": [
            {
                **{
                    name: getattr(each, name)
                    for name in each.__struct_fields__
                    if name != "note"
                },
                "emulated": each.resource in emulated,
                "note": each.note or None,
            }
            for each in found.prospects
        ],
    }


def _print(found: Explained, emulated: frozenset[str]) -> None:
    for line in reasons(found):
        say(line)
    if found.prospects:
        say("")
        table(HEADINGS, rows(found, emulated))
