"""Table II on a real daemon: the same orders, all times divided by a scale.

Tasks are `synthetic` ones that wait. Two of them on the CPU do not slow each other down,
as they would in the central reading, so that three values stand beside the paper's: that
of the reading, that of the simulator with CPU slots that share nothing, and the live one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

from hetpapers.figures import Claim, Figure, LiveRecipe
from hetpapers.loesch_2016.drawings import draw_live
from hetpapers.loesch_2016.reading import Reading
from hetpapers.loesch_2016.runs import makespans
from hetpapers.loesch_2016.scenarios import make_resources, make_scenario
from hetpapers.loesch_2016.table_two import PRINTED
from hetpapers.loesch_2016.task_sets import COUNTS, DELAYS, Case, cases
from hetsim.live import run_live, scaled, warm_up
from hetsim.real_node import real_node
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetpapers.figures import LivePlan, Row
    from hetsim.live import LiveResult

POLICIES = ("affinity", "work-conserving", "migration", "finish-time")

SETS = {f"live-{name.lower().replace(' ', '')}": name for name in COUNTS}
"""Figure id -> task set."""

BETWEEN_RUNS_S = 0.15
"""About what the daemon needs to take a batch in and give its records out."""


@dataclass(frozen=True, slots=True)
class Run:
    """One case under one policy, simulated and live; makespans in scaled seconds."""

    case: Case
    policy: str
    simulated: float
    simulated_moves: int
    live: LiveResult


def make_live(plan: LivePlan, say: Callable[[str], None]) -> list[Figure]:
    """Run what is wanted; `say` hears how far it is."""
    todo = [
        (case, policy)
        for id_ in plan.wanted
        for delay in plan.delays
        for case in cases(SETS[id_], delay, plan.orders)
        for policy in POLICIES
    ]
    before = os.getloadavg()[0]
    runs = list(_run_all(todo, plan.scale, say))
    load = f"{before:.1f} before and {os.getloadavg()[0]:.1f} after"
    note = _NOTE.format(scale=plan.scale, orders=plan.orders, load=load)
    return [_figure(id_, plan, runs, note) for id_ in plan.wanted]


_NOTE = (
    "Seconds are divided by {scale:g}; {orders} order(s) of arrival. A real daemon, real "
    "processes, messages and migrations; the computing is emulated by waiting (synthetic "
    "tasks on null devices). x: speed-up of migration over the policy of the row. "
    "reading x: the central reading, whose CPU slots share one processor. sim: CPU "
    "slots that share nothing, as those of the live runs. Load average of the machine: "
    "{load}."
)


def _run_all(
    todo: list[tuple[Case, str]], scale: float, say: Callable[[str], None]
) -> Iterator[Run]:
    reading = Reading()
    predicted = [_predict(case, policy, scale) for case, policy in todo]
    left = sum(makespan + BETWEEN_RUNS_S for makespan, _ in predicted)
    say(f"{len(todo)} runs on a real daemon, about {left:.0f} s")
    resources = make_resources(reading)
    with real_node(resources, reading.migration_s / scale) as client:
        warm_up(client, resources)
        for number, ((case, policy), (makespan, moves)) in enumerate(
            zip(todo, predicted, strict=True), 1
        ):
            scenario = scaled(make_scenario(case, reading), scale)
            found = run_live(client, scenario, policy)
            left -= makespan + BETWEEN_RUNS_S
            say(
                f"[{number}/{len(todo)}] {case.task_set}, delay {case.delay:g} s, "
                f"order {case.order}, {policy}: live {found.makespan:.2f} s, "
                f"simulated {makespan:.2f} s; about {max(left, 0):.0f} s left"
            )
            yield Run(case, policy, makespan, moves, found)


def _predict(case: Case, policy: str, scale: float) -> tuple[float, int]:
    """Simulate a case; return makespan and number of moves."""
    result = simulate(scaled(make_scenario(case, Reading()), scale), policy)
    return result.makespan, sum(task.migrations for task in result.tasks)


def _figure(id_: str, plan: LivePlan, runs: list[Run], note: str) -> Figure:
    task_set = SETS[id_]
    rows = [
        _row(task_set, delay, policy, runs)
        for delay in plan.delays
        for policy in POLICIES
    ]
    return Figure(
        id=id_,
        title=f"{task_set}: speed-up of migration, printed, simulated and live",
        source="live: a real daemon, emulated devices",
        rows=rows,
        claims=_claims(task_set, rows),
        note=note,
    )


def _row(task_set: str, delay: float, policy: str, runs: list[Run]) -> Row:
    cells = {name: _cell(task_set, delay, name, runs) for name in (policy, "migration")}
    own, reference = cells[policy], cells["migration"]
    simulated = mean(run.simulated for run in own)
    live = mean(run.live.makespan for run in own)
    return {
        "delay": delay,
        "policy": policy,
        "orders": len(own),
        "sim s": simulated,
        "live s": live,
        "live / sim": live / simulated,
        "sim moves": sum(run.simulated_moves for run in own),
        "live moves": sum(run.live.migrations for run in own),
        "paper x": _printed(policy, task_set, delay),
        "reading x": _of_reading(policy, [run.case for run in own]),
        "sim x": simulated / mean(run.simulated for run in reference),
        "live x": live / mean(run.live.makespan for run in reference),
    }


def _cell(task_set: str, delay: float, policy: str, runs: list[Run]) -> list[Run]:
    return [
        run
        for run in runs
        if (run.case.task_set, run.case.delay, run.policy) == (task_set, delay, policy)
    ]


def _printed(policy: str, task_set: str, delay: float) -> float | None:
    if policy not in PRINTED:
        return None
    return PRINTED[policy][task_set][DELAYS.index(delay)]


def _of_reading(policy: str, chosen: list[Case]) -> float:
    """Speed-up of `migration` in the simulator, the CPU shared as in the reading."""
    reading = Reading()
    theirs, ours = (makespans(chosen, reading, name) for name in (policy, "migration"))
    return mean(theirs) / mean(ours)


def _claims(task_set: str, rows: list[Row]) -> list[Claim]:
    over = [
        Claim(
            f"{task_set}, live: migration over {policy}",
            mean(row["paper x"] for row in rows if row["policy"] == policy),
            _mean(rows, policy, "live x"),
            "x",
        )
        for policy in PRINTED
    ]
    ours = _mean(rows, "affinity", "live x") / _mean(rows, "finish-time", "live x")
    errors = [100 * abs(row["live / sim"] - 1) for row in rows]
    return [
        *over,
        Claim(f"{task_set}, live: finish-time over affinity", None, ours, "x"),
        Claim("live makespan beside the simulated: mean", None, mean(errors), "%"),
        Claim("live makespan beside the simulated: most", None, max(errors), "%"),
    ]


def _mean(rows: list[Row], policy: str, column: str) -> float:
    values: list[float] = [row[column] for row in rows if row["policy"] == policy]
    return mean(values)


LIVE = LiveRecipe(
    ids=list(SETS), make=make_live, draw=draw_live, delays=DELAYS, usual=(0.0, 0.5)
)
