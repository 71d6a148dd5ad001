"""Fig. 7, robustness and ablations: what the learned policy needs, and what it stands."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from hetpapers.banerjee.networks import (
    WITHOUT_BELIEF,
    WITHOUT_GRAPH,
    WITHOUT_MEMORY,
    held_out_of,
    learned,
    tests_of,
)
from hetpapers.banerjee.runs import Contender, ratio_of, run_contenders
from hetpapers.banerjee.testbed import Setting
from hetpapers.figures import Claim, Figure
from hetpapers.pictures import open_canvas, save_canvas

if TYPE_CHECKING:
    from pathlib import Path

    from hetpapers.figures import Row

RACK, HALF = Setting(), Setting("half-rack")
NODE = Setting("node", jobs=10, every_s=22.0)

NETWORKS = {
    "all parts": "rack",
    "without the belief": WITHOUT_BELIEF,
}
ABLATED = NETWORKS | {
    "without graph layers": WITHOUT_GRAPH,
    "without memory": WITHOUT_MEMORY,
}
SHIFTS = {
    "as trained": RACK,
    "queueing law": replace(RACK, law="queue"),
    "thrashing law": replace(RACK, law="thrash"),
    "random graphs": replace(RACK, graphs="random"),
    "tenants change together": replace(RACK, tenants="together"),
    "poor counters": replace(RACK, counters="poor"),
    "expected times 30 % wrong": replace(RACK, wrong=0.3),
}
"""Worlds that differ from that of the training."""
RULE = "contention-aware"
STILL = ("least_gain", "0")
"""No task moves."""


def figure_seven(draws: int) -> Figure:
    """Tabulate the trainings' tests; nothing is trained here."""
    del draws
    rows: list[Row] = []
    for name, network in NETWORKS.items():
        best = float("inf")
        for updates, episodes, decisions, slowdown in tests_of(network):
            best = min(best, slowdown)
            rows.append(
                {
                    "network": name,
                    "updates": updates,
                    "episodes": episodes,
                    "decisions": decisions,
                    "held-out slowdown": slowdown,
                    "best so far": best,
                }
            )
    reached = min(test[3] for test in tests_of(WITHOUT_BELIEF))
    needed = next(
        (test[1] for test in tests_of("rack") if test[3] <= reached), float("nan")
    )
    spent = next(test[1] for test in tests_of(WITHOUT_BELIEF) if test[3] <= reached)
    others = held_out_of("rack")
    return Figure(
        "fig7",
        rows,
        [
            Claim(
                "episodes without the belief / with, to the same",
                5.0,
                spent / needed,
                "times",
            ),
            Claim(f"held-out slowdown of {RULE}", None, others[RULE]),
            Claim("held-out slowdown of paragon", None, others["paragon"]),
        ],
        "Sample efficiency: held-out slowdown by episodes",
        "From the trainings that made the weights, recorded in them. The ratio is that to the "
        "best of the network without the belief; the paper extrapolates 12k + 48k "
        "iterations against 12k.",
    )


def figure_robustness(draws: int) -> Figure:
    """Compare policies where the world differs from that of the training."""
    cases = {
        (shift, name): contender
        for shift, setting in SHIFTS.items()
        for name, contender in (
            ("learned", learned(setting)),
            (RULE, Contender(RULE, setting)),
            ("paragon", Contender("paragon", setting)),
        )
    }
    times = run_contenders(list(cases.values()), draws)
    rows: list[Row] = []
    for shift in SHIFTS:
        ours = times[cases[shift, "learned"]]
        row: Row = {"what differs": shift, "learned, s": fmean(ours)}
        for name in (RULE, "paragon"):
            found = ratio_of(ours, times[cases[shift, name]])
            row[f"/ {name}"] = found.value
            row[f"95 %, {name}"] = f"{found.low:.3f} to {found.high:.3f}"
        rows.append(row)
    return Figure(
        "robustness",
        rows,
        [],
        f"Mean completion time of a job on the rack, {draws} draws",
        "The network was trained on half the rack, in none of these worlds but the first. "
        "Poor counters: three times the noise, half of them missing.",
    )


def figure_ablation(draws: int) -> Figure:
    """Compare networks with a part left out, and policies that move no task."""
    rows: list[Row] = []
    for where, setting in (("rack", RACK), ("half the rack", HALF)):
        cases = {
            f"learned, {name}": learned(setting, network)
            for name, network in ABLATED.items()
        }
        cases[RULE] = Contender(RULE, setting)
        if setting is RACK:
            still = replace(
                learned(setting), parameters=(*learned(setting).parameters, STILL)
            )
            cases["learned, without moves"] = still
            cases[f"{RULE}, without moves"] = Contender(RULE, setting, (STILL,))
        rows += _compared(where, cases, draws)
    return Figure(
        "ablation",
        rows,
        [],
        f"Mean completion time of a job, {draws} draws",
        "One training of each network: differences below 1 % say nothing.",
    )


def _compared(where: str, cases: dict[str, Contender], draws: int) -> list[Row]:
    times = run_contenders(list(cases.values()), draws)
    whole, rule = times[cases["learned, all parts"]], times[cases[RULE]]
    rows: list[Row] = []
    for label, contender in cases.items():
        beside = ratio_of(times[contender], whole)
        over = ratio_of(times[contender], rule)
        rows.append(
            {
                "machine": where,
                "policy": label,
                "s": fmean(times[contender]),
                "/ all parts": beside.value,
                "95 %": f"{beside.low:.3f} to {beside.high:.3f}",
                f"/ {RULE}": over.value,
                "95 %, rule": f"{over.low:.3f} to {over.high:.3f}",
            }
        )
    return rows


def draw_seven(figure: Figure, path: Path) -> None:
    """Draw the held-out slowdown by episodes."""
    canvas, [axes] = open_canvas(figure, 7, 4)
    for name in NETWORKS:
        rows = [row for row in figure.rows if row["network"] == name]
        axes.plot(
            [row["episodes"] for row in rows],
            [row["held-out slowdown"] for row in rows],
            marker=".",
            label=f"learned, {name}",
        )
    for claim, style in zip(figure.claims[1:], ("--", ":"), strict=True):
        axes.axhline(
            claim.ours or 0.0, color="black", linestyle=style, label=claim.text[21:]
        )
    axes.set_xlabel("episodes")
    axes.set_ylabel("mean slowdown of held-out jobs")
    save_canvas(canvas, path)
