"""`hetctl explain`: why a task waits or runs where it does, in figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hetctl.options import connect, shared
from hetctl.output import emit, plain_table, table
from hetctl.places import emulated_names, marked
from hetctl.selectors import selected
from hetctl.terminal import say
from hetctl.units import readable_duration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.client.client import Client
    from libtask.messages import Explained, Prospect

HEADINGS = ("", "on", "done in", "waits", "behind", "moves", "runs", "affinity", "sure")


@click.command("explain")
@click.argument("selectors", nargs=-1, required=True, metavar="SELECTOR...")
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
    for line in _why(found):
        say(line)
    if found.prospects:
        say("")
        table(HEADINGS, _rows(found, emulated))


def explanation_text(client: Client, task: int) -> str:
    """Explain a task in plain text.

    Raises:
        HetError: there is no such task, or it may not be seen.

    """
    found, emulated = client.explain(task), emulated_names(client)
    rows = [list(row) for row in _rows(found, emulated)]
    figures = ["", *plain_table(HEADINGS, rows)] if rows else []
    return "\n".join([*_why(found), *figures])


def _why(found: Explained) -> Iterator[str]:
    yield f"task {found.id} {found.why}"
    if found.policy:
        rule = found.rule or "no rule of it named"
        yield f"  policy {found.policy}: {rule}"
    if found.objective != "performance":
        yield f"  affinity is measured by {found.objective}"


def _rows(found: Explained, emulated: frozenset[str]) -> list[tuple[str, ...]]:
    best = _soonest(found.prospects)
    return [_row(found, each, best, emulated) for each in found.prospects]


def _soonest(prospects: list[Prospect]) -> str | None:
    possible = [(p.finish_s, p.resource) for p in prospects if p.finish_s is not None]
    return min(possible)[1] if possible else None


def _row(
    found: Explained, each: Prospect, best: str | None, emulated: frozenset[str]
) -> tuple[str, ...]:
    arrow = "→" if each.resource == found.resource else ""
    where = marked(each.resource, emulated)
    if each.note:
        return (arrow, where, each.note, "", "", "", "", "", "")
    soonest = " (soonest)" if each.resource == best else ""
    return (
        arrow,
        where,
        readable_duration(each.finish_s) + soonest,
        readable_duration(each.wait_s),
        str(each.ahead),
        readable_duration(each.moving_s),
        _with_spread(each),
        f"{each.affinity:.2f}",
        "-" if each.confidence is None else f"{100 * each.confidence:.0f} %",
    )


def _with_spread(each: Prospect) -> str:
    if each.spread_s is None:
        return readable_duration(each.remaining_s)
    return f"{readable_duration(each.remaining_s)} ± {readable_duration(each.spread_s)}"
