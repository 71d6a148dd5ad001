"""The figures by which the schedulers are judged: ratios of mean job completion times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from hetpapers.banerjee.networks import WITHOUT_BELIEF, learned, trainings_of
from hetpapers.banerjee.runs import Contender, Ratio, ratio_of, run_contenders
from hetpapers.banerjee.speed import decision_rows, training_row, yes_or_no
from hetpapers.banerjee.testbed import Setting
from hetpapers.figures import Claim, Figure

if TYPE_CHECKING:
    from hetpapers.figures import Row

RACK = Setting()
HALF = Setting("half-rack")
NODE = Setting("node", jobs=10, every_s=22.0)
SETTINGS = {"rack": RACK, "node": NODE}
POLICIES = ("contention-aware", "heft", "graphene", "paragon", "sparrow")
TUNED = "contention-aware"
LEAST_LOSS, MOST_ON_RACK = 1.03, 1.02


def _case(policy: str, where: str, counters: str = "usual") -> Contender:
    return Contender(policy, replace(SETTINGS[where], counters=counters))


@dataclass(frozen=True, slots=True)
class AcceptedRatio:
    """A ratio of two contenders, and its greatest accepted value.

    Attributes:
        id: of the figure; `measured`: ratio in a prototype of this model.
        most: the greatest accepted value; None: there is no aim.

    """

    id: str
    text: str
    upper: Contender
    lower: Contender
    most: float | None
    measured: float | None


def _aims() -> list[AcceptedRatio]:
    aware = {where: _case(TUNED, where) for where in SETTINGS}
    true = {where: _case(TUNED, where, "true") for where in SETTINGS}
    blind = _case(TUNED, "node", "none")
    ahead = _case("lookahead", "rack")
    expected = Contender("lookahead", RACK, (("futures", "1"),))
    paragon = {where: _case("paragon", where) for where in SETTINGS}
    heft = {where: _case("heft", where) for where in SETTINGS}
    poor = replace(RACK, counters="poor")
    last = replace(RACK, counters="poor, last")
    raw = replace(RACK, counters="poor, raw")
    rule = "contention-aware"
    return [
        AcceptedRatio("F3", f"{rule} / the true load known, rack", aware["rack"], true["rack"], 1.03, 1.009),
        AcceptedRatio("F4", f"{rule} / paragon, rack", aware["rack"], paragon["rack"], 0.86, 0.802),
        AcceptedRatio("F4", f"{rule} / paragon, node", aware["node"], paragon["node"], 0.82, 0.757),
        AcceptedRatio("F5", f"{rule} / heft, rack", aware["rack"], heft["rack"], 0.91, 0.879),
        AcceptedRatio("F5", f"{rule} / heft, node", aware["node"], heft["node"], 0.89, 0.843),
        AcceptedRatio("F6", f"{rule} / the same with unfiltered counters, poor ones, rack", Contender(rule, poor), Contender(rule, last), None, None),
        AcceptedRatio("F6", f"{rule} / the same with raw counters, poor ones, rack", Contender(rule, poor), Contender(rule, raw), 0.98, 0.955),
        AcceptedRatio("F7", f"learned / {rule}, rack", learned(RACK), aware["rack"], 1.02, 0.993),
        AcceptedRatio("F7", f"learned / {rule}, half the rack", learned(HALF), Contender(rule, HALF), 1.02, 0.989),
        AcceptedRatio("F7", f"learned / {rule}, node", learned(NODE, "node"), aware["node"], 1.02, 1.025),
        AcceptedRatio("F8", "learned / paragon, rack", learned(RACK), paragon["rack"], 0.87, 0.805),
        *_shifted(rule),
        AcceptedRatio("F12", f"lookahead / {rule}, rack", ahead, aware["rack"], 0.985, 0.973),
        AcceptedRatio("F12", f"lookahead, expected slowdown / {rule}, rack", expected, aware["rack"], 0.985, 0.973),
        AcceptedRatio("F17", "progress only / the true load known, node", blind, true["node"], 1.03, 1.006),
    ]  # fmt: skip


def _shifted(rule: str) -> list[AcceptedRatio]:
    """Return the aims where the world is not that of the training."""
    shifts = {
        "queueing law": (replace(RACK, law="queue"), 0.987),
        "thrashing law": (replace(RACK, law="thrash"), 0.988),
        "random graphs": (replace(RACK, graphs="random"), 0.996),
    }
    return [
        AcceptedRatio("F11", f"learned / {rule}, {name}", learned(setting), Contender(rule, setting), 1.03, measured)
        for name, (setting, measured) in shifts.items()
    ]  # fmt: skip


def figure_acceptance(draws: int) -> Figure:
    """Tabulate the aims, and the order of the policies (F16)."""
    aims = _aims()
    every = [_case(policy, where) for where in SETTINGS for policy in POLICIES]
    times = run_contenders(
        [
            *every,
            *_trainings("rack"),
            *_trainings(WITHOUT_BELIEF),
            *(x for aim in aims for x in (aim.upper, aim.lower)),
        ],
        draws,
    )
    means = {contender: fmean(found) for contender, found in times.items()}
    return Figure(
        "acceptance",
        [
            *(_row(aim, times) for aim in aims),
            *_without_belief(times),
            _on_the_whole_rack(times),
            training_row(),
            *decision_rows(),
            *(_order(where, means) for where in SETTINGS),
        ],
        [
            Claim(f"{policy}, {where}", None, means[_case(policy, where)], "s")
            for where in SETTINGS
            for policy in POLICIES
        ],
        f"Mean job completion times, {draws} draws",
        "Claims: mean completion time of a job. F1 and F2 are unit tests; F15 is fig8. F9 is the mean of three trainings of each network. "
        "The rack's network was trained on half the rack (F10). All is simulated.",
    )


def _row(aim: AcceptedRatio, times: dict[Contender, list[float]]) -> Row:
    found = ratio_of(times[aim.upper], times[aim.lower])
    if aim.most is None:
        return _noted(aim.id, aim.text, found)
    return _verdict(
        aim.id, aim.text, found, (aim.measured, f"<= {aim.most:g}"),
        reached=found.value <= aim.most,
    )  # fmt: skip


def _trainings(name: str) -> list[Contender]:
    return [learned(RACK, each) for each in trainings_of(name)]


def _without_belief(times: dict[Contender, list[float]]) -> list[Row]:
    """Tabulate F9, the means over the trainings, and each pair of them.

    Two trainings differ by half of what the belief is worth.
    """
    without, with_it = (
        [times[each] for each in _trainings(name)] for name in (WITHOUT_BELIEF, "rack")
    )
    means = [
        [fmean(draw) for draw in zip(*each, strict=True)] for each in (without, with_it)
    ]
    found = ratio_of(means[0], means[1])
    rows = [
        _verdict(
            "F9", "learned without the belief / with, rack", found, (1.066, ">= 1.03"),
            reached=found.value >= LEAST_LOSS,
        )
    ]  # fmt: skip
    for seed, pair in enumerate(zip(without, with_it, strict=True), 1):
        rows.append(
            _noted("F9", f"of that, training with seed {seed}", ratio_of(*pair))
        )
    return rows


def _noted(figure: str, text: str, found: Ratio) -> Row:
    """Return a row without an aim."""
    return _verdict(figure, text, found, (None, ""), reached=None)


def _on_the_whole_rack(times: dict[Contender, list[float]]) -> Row:
    """F10 is F7 again: the network has seen half the rack only."""
    found = ratio_of(times[learned(RACK)], times[Contender(TUNED, RACK)])
    return _verdict(
        "F10", "trained on half the rack, run on the rack", found, (None, "as F7"),
        reached=found.value <= MOST_ON_RACK,
    )  # fmt: skip


def _verdict(
    figure: str,
    text: str,
    found: Ratio,
    aims: tuple[float | None, str],
    *,
    reached: bool | None,
) -> Row:
    return {
        "figure": figure,
        "ratio": text,
        "prototype": aims[0],
        "accepted": aims[1],
        "ours": found.value,
        "95 %": f"{found.low:.3f} to {found.high:.3f}",
        "reached": yes_or_no(reached),
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
