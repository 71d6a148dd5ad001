"""Explanations of where a task waits or runs, as text, for `hetctl explain`, `top`, `web`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetctl.output import plain_table
from hetctl.units import readable_duration
from hetctl.views.places import emulated_names, marked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.client.client import Client
    from libtask.messages import Explained, Prospect

PROSPECT_HEADINGS = (
    "",
    "on",
    "done in",
    "waits",
    "behind",
    "moves",
    "runs",
    "affinity",
    "sure",
)


def explanation_text(client: Client, task: int) -> str:
    """Return the explanation of a task as plain text.

    Raises:
        HetError: the task does not exist, or belongs to another user.

    """
    found, emulated = client.explain(task), emulated_names(client)
    figures = [
        list(row) for row in prospect_rows(found.prospects, emulated, found.resource)
    ]
    lines = ["", *plain_table(PROSPECT_HEADINGS, figures)] if figures else []
    return "\n".join([*reasons(found), *lines])


def reasons(found: Explained) -> Iterator[str]:
    """Yield lines that explain why a task waits or runs where it does."""
    yield f"task {found.id} {found.why}"
    if found.policy:
        yield f"  policy {found.policy}: {found.rule or _without_rule(found)}"
    if found.objective != "performance":
        yield f"  affinity is measured by {found.objective}"


def _without_rule(found: Explained) -> str:
    """Return why the task's place is not due to a rule of the policy."""
    if found.resource is None:
        return "it has not placed the task yet"
    return "not its choice: a user sent the task there, or no other resource can run it"


def prospect_rows(
    prospects: list[Prospect], emulated: frozenset[str], current: str | None = None
) -> list[tuple[str, ...]]:
    """Return a row of `PROSPECT_HEADINGS` for each resource; `current`: the task's own."""
    best = _soonest(prospects)
    return [_row(each, best, emulated, current) for each in prospects]


def prospect_documents(
    prospects: list[Prospect], emulated: frozenset[str]
) -> list[dict[str, Any]]:
    """Return the prospects as JSON has them."""
    return [
        {
            **{
                name: getattr(each, name)
                for name in each.__struct_fields__
                if name != "note"
            },
            "emulated": each.resource in emulated,
            "note": each.note or None,
        }
        for each in prospects
    ]


def _soonest(prospects: list[Prospect]) -> str | None:
    possible = [(p.finish_s, p.resource) for p in prospects if p.finish_s is not None]
    return min(possible)[1] if possible else None


def _row(
    each: Prospect, best: str | None, emulated: frozenset[str], current: str | None
) -> tuple[str, ...]:
    arrow = "→" if each.resource == current else ""
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
