"""Applications that avoid a resource, as text and JSON, for `hetctl devices` and `models`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetctl.output import clock_time, moment

if TYPE_CHECKING:
    from hetctl.documents.parts import AvoidedPart
    from libtask.messages import AvoidedPair


def avoided_text(pair: AvoidedPair) -> str:
    """Return a line with the application, the resource, the time limit and the reason."""
    times = f"{pair.failures} failure{'s' * (pair.failures != 1)} in a row"
    why = f"{times}, the last: {pair.reason}"
    return f"{pair.resource}: {pair.app} ({pair.owner}) avoids it {_until(pair)}: {why}"


def _until(pair: AvoidedPair) -> str:
    if pair.task is not None:
        return f"until task {pair.task} has tried it"
    if pair.on_trial:
        return "until one task has tried it"
    return f"until {clock_time(pair.until)}"


def avoided_document(pair: AvoidedPair) -> AvoidedPart:
    """Return the document of an application that avoids a resource."""
    return {
        "app": pair.app,
        "resource": pair.resource,
        "owner": pair.owner,
        "state": "half-open" if pair.on_trial else "open",
        "failures": pair.failures,
        "cause": pair.cause,
        "reason": pair.reason,
        "until": moment(pair.until),
        "task": pair.task,
    }
