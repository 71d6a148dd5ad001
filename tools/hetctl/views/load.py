"""`hetctl devices --load`: what others are believed to use of what the resources share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetctl.output import emit, say, table

if TYPE_CHECKING:
    from hetctl.documents.node import CounterPart, NodeLoad, SharedPart
    from libtask.messages import CounterState, DeviceList, LoadEvidence, SharedLoad

HEADINGS = ("shared", "used by", "own load", "others", "slowdown", "likely", "known by")
COUNTERS = ("counters", "of", "counter", "state")
STATES = {
    "read": "read",
    "starting": "no value yet",
    "unused": "not used",
    "missing": "not read",
}
NOTHING = "nothing is declared to be shared; see [contention] in hetd.toml"
NOT_USED = "the policy does not use this: no counters are read"


def show_load(found: DeviceList, *, as_json: bool) -> None:
    """Print the belief about each shared resource."""
    if as_json:
        emit(load_document(found))
        return
    if not found.shared:
        say(NOTHING)
        return
    table(HEADINGS, [_row(each) for each in found.shared])
    if found.counters:
        table(COUNTERS, [_counter_row(each) for each in found.counters])
    if not found.believed:
        say(NOT_USED)


def load_document(found: DeviceList) -> NodeLoad:
    """Return the document of a node's load."""
    return {
        "format": "hetctl/load-1",
        "used": found.believed,
        "shared": [_part(each) for each in found.shared],
        "counters": [_counter(each) for each in found.counters],
    }


def _part(each: SharedLoad) -> SharedPart:
    return {
        "name": each.name,
        "kind": each.kind,
        "used_by": each.used_by,
        "own": each.own,
        "others": each.others,
        "slowdown": each.slowdown,
        "levels": [
            {"load": level, "probability": probability}
            for level, probability in zip(each.levels, each.probabilities, strict=True)
        ],
        "evidence": [
            {
                "source": one.source,
                "value": one.value,
                "count": one.count,
                "age_s": one.age_s,
            }
            for one in each.evidence
        ],
    }


def _counter(each: CounterState) -> CounterPart:
    return {
        "source": each.source,
        "shared": each.shared,
        "counter": each.counter,
        "state": each.state,
        "reason": each.reason,
    }


def _counter_row(each: CounterState) -> tuple[str, ...]:
    state = STATES[each.state]
    why = f"{state}: {each.reason}" if each.reason else state
    return each.source, each.shared or "-", each.counter, why


def _row(each: SharedLoad) -> tuple[str, ...]:
    levels = zip(each.levels, each.probabilities, strict=True)
    likely = [f"{level:.0%}: {share:.0%}" for level, share in levels if share >= LEAST]
    return (
        each.name,
        ", ".join(each.used_by) or "-",
        f"{each.own:.0%}",
        f"{each.others:.0%}",
        f"{each.slowdown:.2f}",
        ", ".join(likely),
        ", ".join(_evidence(one) for one in each.evidence) or "nothing yet",
    )


LEAST = 0.05
"""Probability of a level that the table shows."""


def _evidence(one: LoadEvidence) -> str:
    return f"{one.source} {one.value:.2f} ({one.age_s:.0f} s ago)"
