"""The figures by which the schedulers are judged: ratios of mean job completion times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from hetpapers.banerjee.runs import Contender, ratio_of, run_contenders
from hetpapers.banerjee.testbed import Setting
from hetpapers.figures import Claim, Figure

if TYPE_CHECKING:
    from hetpapers.figures import Row

RACK = Setting()
NODE = Setting("node", jobs=10, every_s=22.0)
SETTINGS = {"rack": RACK, "node": NODE}
POLICIES = ("contention-aware", "heft", "graphene", "paragon", "sparrow")
TUNED = "contention-aware"


def _case(policy: str, where: str, counters: str = "usual") -> Contender:
    return Contender(policy, replace(SETTINGS[where], counters=counters))


@dataclass(frozen=True, slots=True)
class AcceptedRatio:
    """A ratio of two contenders, and its greatest accepted value.

    Attributes:
        id: of the figure; `measured`: ratio in a prototype of this model.

    """

    id: str
    text: str
    upper: Contender
    lower: Contender
    most: float
    measured: float


def _aims() -> list[AcceptedRatio]:
    aware = {where: _case(TUNED, where) for where in SETTINGS}
    true = {where: _case(TUNED, where, "true") for where in SETTINGS}
    blind = _case(TUNED, "node", "none")
    ahead = _case("lookahead", "rack")
    expected = Contender("lookahead", RACK, (("futures", "1"),))
    paragon = {where: _case("paragon", where) for where in SETTINGS}
    heft = {where: _case("heft", where) for where in SETTINGS}
    rule = "contention-aware"
    return [
        AcceptedRatio("F3", f"{rule} / the true load known, rack", aware["rack"], true["rack"], 1.03, 1.009),
        AcceptedRatio("F4", f"{rule} / paragon, rack", aware["rack"], paragon["rack"], 0.86, 0.802),
        AcceptedRatio("F4", f"{rule} / paragon, node", aware["node"], paragon["node"], 0.82, 0.757),
        AcceptedRatio("F5", f"{rule} / heft, rack", aware["rack"], heft["rack"], 0.91, 0.879),
        AcceptedRatio("F5", f"{rule} / heft, node", aware["node"], heft["node"], 0.89, 0.843),
        AcceptedRatio("F12", f"lookahead / {rule}, rack", ahead, aware["rack"], 0.985, 0.973),
        AcceptedRatio("F12", f"lookahead, expected slowdown / {rule}, rack", expected, aware["rack"], 0.985, 0.973),
        AcceptedRatio("F17", "progress only / the true load known, node", blind, true["node"], 1.03, 1.006),
    ]  # fmt: skip


def figure_acceptance(draws: int) -> Figure:
    """Tabulate the aims, and the order of the policies (F16)."""
    aims = _aims()
    every = [_case(policy, where) for where in SETTINGS for policy in POLICIES]
    times = run_contenders(
        [*every, *(x for aim in aims for x in (aim.upper, aim.lower))], draws
    )
    means = {contender: fmean(found) for contender, found in times.items()}
    return Figure(
        "acceptance",
        [
            *(_row(aim, times) for aim in aims),
            *(_order(where, means) for where in SETTINGS),
        ],
        [
            Claim(f"{policy}, {where}", None, means[_case(policy, where)], "s")
            for where in SETTINGS
            for policy in POLICIES
        ],
        f"Mean job completion times, {draws} draws",
        "Claims: mean completion time of a job. Not built: F6 (counters as they are), "
        "F7 to F11 and F13 to F15 (the learned policy). F1 and F2 are unit tests.",
    )


def _row(aim: AcceptedRatio, times: dict[Contender, list[float]]) -> Row:
    found = ratio_of(times[aim.upper], times[aim.lower])
    return {
        "figure": aim.id,
        "ratio": aim.text,
        "prototype": aim.measured,
        "accepted": f"<= {aim.most:g}",
        "ours": found.value,
        "95 %": f"{found.low:.3f} to {found.high:.3f}",
        "reached": "yes" if found.value <= aim.most else "no",
    }


def _order(where: str, means: dict[Contender, float]) -> Row:
    """Compare sparrow > {paragon, graphene} > heft > contention-aware with what was found."""
    at = {policy: means[_case(policy, where)] for policy in POLICIES}
    middle = (at["paragon"], at["graphene"])
    holds = at["sparrow"] > max(middle) and min(middle) > at["heft"] > at[TUNED]
    found = sorted(POLICIES, key=lambda policy: -at[policy])
    return {
        "figure": "F16",
        "ratio": f"order, {where}: {' > '.join(found)}",
        "prototype": None,
        "accepted": "see the page",
        "ours": None,
        "95 %": "",
        "reached": "yes" if holds else "no",
    }
