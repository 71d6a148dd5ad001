"""The planners; `PLANNERS` is the table: name -> class.

A planner is a frozen dataclass whose fields are its parameters, with `plan(problem)`.
Adding one means a class with that method and a line here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from hetsched.planning.batch import baselines, bounds
from hetsched.planning.batch.assignment import GOOD_ENOUGH, Effort, assign
from hetsched.planning.batch.carry_over import in_parts
from hetsched.planning.batch.executor import carry_out
from hetsched.planning.batch.flow_shop import johnson, shortest_transfer_first
from hetsched.planning.batch.joint import critical_first, johnson_first, overlap
from hetsched.planning.batch.network_intensive import network_intensive
from hetsched.planning.registry import make_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetsched.planning.batch.arrays import Floats, Ints
    from hetsched.planning.batch.assignment import Assignment
    from hetsched.planning.batch.plan import Plan
    from hetsched.planning.batch.problem import Problem


class Planner(Protocol):
    """Plans a batch; every job of it can run on some accelerator."""

    def plan(self, problem: Problem) -> Plan: ...


@dataclass(frozen=True, slots=True)
class SmallestCompletion:
    """SCT: each job where it is executed quickest, shortest transfer first."""

    def plan(self, problem: Problem) -> Plan:
        return baselines.smallest_completion(problem)


@dataclass(frozen=True, slots=True)
class MakespanIncrease:
    """MMI: next the job and place that lengthen the makespan least."""

    def plan(self, problem: Problem) -> Plan:
        return baselines.makespan_increase(problem)


@dataclass(frozen=True, slots=True)
class ShortestJobFirst:
    """SJF: a free accelerator gets the job that it completes quickest."""

    def plan(self, problem: Problem) -> Plan:
        return baselines.shortest_job_first(problem)


@dataclass(frozen=True, slots=True)
class LargestJobFirst:
    """LJF: a free accelerator gets the job that takes longest on average."""

    def plan(self, problem: Problem) -> Plan:
        return baselines.largest_job_first(problem)


@dataclass(frozen=True, slots=True)
class TransmissionFirst:
    """MTTF-LP: transfer and computation as one, assigned by rounding, shortest first.

    Attributes:
        way: `rounding` (Algorithm 1 of the paper) or `prices` (ours).
        improve: moves and swaps after it.
        order: on an accelerator, `mttf` (the paper's Theorem 3) or `johnson` (optimal).
        search: also try the plan that hands out the largest jobs first, and take the
            better one.
        solver: how the least time is found, `direct` or `bisection` (the paper's).
        solver_seconds: time of one solver call at most.

    """

    way: Literal["rounding", "prices"] = "rounding"
    improve: bool = False
    order: Literal["mttf", "johnson"] = "mttf"
    search: bool = False
    solver: Literal["direct", "bisection"] = "direct"
    solver_seconds: float = 20.0

    def plan(self, problem: Problem) -> Plan:
        transfers = problem.transfer_seconds()
        effort = _effort(self, most=False)
        found = assign(transfers + problem.seconds, problem.free_at, effort)
        every = np.arange(problem.jobs)
        sent = transfers[every, found.machines]
        sequence = shortest_transfer_first(sent)
        if self.order == "johnson":
            sequence = johnson(sent, problem.seconds[every, found.machines])
        plan = carry_out(problem, found.machines, sequence)
        if self.search:
            other = critical_first(problem)
            plan = min(plan, other, key=lambda each: each.makespan)
        return replace(plan, bound=_halved(problem, transfers, found.bound))


@dataclass(frozen=True, slots=True)
class ComputationIntensive:
    """CIM: the assignment that balances computing best; transfers follow Algorithm 4.

    Attributes:
        way: `prices` (ours) or `rounding` (Algorithm 2 of the paper).
        improve: moves and swaps after it.
        solver: how the least time is found, `direct` or `bisection` (the paper's).
        solver_seconds: time of one solver call at most.

    """

    way: Literal["rounding", "prices"] = "prices"
    improve: bool = True
    solver: Literal["direct", "bisection"] = "direct"
    solver_seconds: float = 20.0

    def plan(self, problem: Problem) -> Plan:
        found = assign(problem.seconds, problem.free_at, _effort(self))
        plan = overlap(problem, found.machines, _own_seconds(problem, found))
        return replace(plan, bound=found.bound)


@dataclass(frozen=True, slots=True)
class NetworkIntensive:
    """NIM: the rates that end all transfers earliest (Algorithm 3).

    Attributes:
        way: `prices` (ours) or `rounding` (Algorithm 2 of the paper).
        improve: moves and swaps after it.
        residual: what is left of the links goes to the shortest jobs.
        groups: number of groups by size, the smallest jobs first.
        search: beside earlier batches or groups, also try to use what they leave as it
            changes over time; False: the paper's two schemes only.
        solver_seconds: time of one solver call at most.

    """

    way: Literal["rounding", "prices"] = "prices"
    improve: bool = True
    residual: bool = True
    groups: int = 1
    search: bool = True
    solver_seconds: float = 20.0

    def plan(self, problem: Problem) -> Plan:
        order = np.argsort(problem.sizes, kind="stable")
        groups = np.array_split(order, max(1, min(self.groups, problem.jobs)))
        if len(groups) == 1:
            return self._group(problem)
        return in_parts(problem, [(group, self._group) for group in groups])

    def _group(self, problem: Problem) -> Plan:
        plan = network_intensive(problem, _effort(self), residual=self.residual)
        if not self.search or not problem.links.promised:
            return plan
        other = critical_first(problem)
        return min(plan, other, key=lambda each: (each.makespan, each.mean_completion))


@dataclass(frozen=True, slots=True)
class Joint:
    """NCJM: balanced computing, each transfer in time for its computation (Algorithm 4).

    Attributes:
        way: `prices` (ours) or `rounding` (Algorithm 2 of the paper).
        improve: moves and swaps after it.
        search: try other assignments and orders, too, and take the best plan; False:
            the paper's only.
        solver: how the least time is found, `direct` or `bisection` (the paper's).
        solver_seconds: time of one solver call at most.

    """

    way: Literal["rounding", "prices"] = "prices"
    improve: bool = True
    search: bool = True
    solver: Literal["direct", "bisection"] = "direct"
    solver_seconds: float = 20.0

    def plan(self, problem: Problem) -> Plan:
        found = assign(problem.seconds, problem.free_at, _effort(self))
        plan = overlap(problem, found.machines, _own_seconds(problem, found))
        if self.search and plan.makespan > GOOD_ENOUGH * found.bound:
            others = self._others(problem, found)
            plan = min([plan, *others], key=lambda each: each.makespan)
        return replace(plan, bound=found.bound)

    def _others(self, problem: Problem, found: Assignment) -> Iterator[Plan]:
        own = _own_seconds(problem, found)
        yield overlap(problem, found.machines, own, spread=False)
        yield critical_first(problem)
        if problem.sizes.any():  # its order is one of transfers
            yield johnson_first(problem)


@dataclass(frozen=True, slots=True)
class Waves:
    """Jobs by type: computation-intensive first, then those that are both, then network.

    Attributes:
        ratio: a job is of a type if it computes (transfers) at least this many times
            longer than it transfers (computes).

    """

    ratio: float = 10.0

    def plan(self, problem: Problem) -> Plan:
        sent = problem.transfer_seconds().min(axis=1)
        computed = problem.seconds.min(axis=1)
        computing = computed >= self.ratio * sent
        sending = ~computing & (sent >= self.ratio * computed)
        both = ~computing & ~sending
        waves: list[tuple[Ints, Callable[[Problem], Plan]]] = [
            (np.flatnonzero(computing), ComputationIntensive().plan),
            (np.flatnonzero(both), Joint().plan),
            (np.flatnonzero(sending), NetworkIntensive().plan),
        ]
        return in_parts(problem, waves)


PLANNERS: dict[str, type[Planner]] = {
    "sct": SmallestCompletion,
    "mmi": MakespanIncrease,
    "mttf-lp": TransmissionFirst,
    "sjf": ShortestJobFirst,
    "ljf": LargestJobFirst,
    "cim": ComputationIntensive,
    "nim": NetworkIntensive,
    "ncjm": Joint,
    "waves": Waves,
}


def make_planner(name: str, parameters: dict[str, Any]) -> Planner:
    """Make the planner `name` with these parameters; see `make_named`."""
    return make_named("planner", PLANNERS, name, parameters)


def bounded(planner: Planner, problem: Problem) -> Plan:
    """Plan, and give the plan the best lower bound there is."""
    plan = planner.plan(problem)
    computing = plan.bound or bounds.computing_bound(problem)
    bound = max(computing, bounds.transfer_bound(problem), bounds.alone_bound(problem))
    return replace(plan, bound=bound)


def _halved(problem: Problem, transfers: Floats, bound: float) -> float:
    """Bound by Theorem 4: overlapping at most halves the time without.

    So where responders' links are the limit; behind narrower ones of requesters, several
    transfers go into a responder at once.
    """
    into = problem.sizes[:, None] / problem.ingress_of()
    half = bound / 2 if np.array_equal(into, transfers) else 0.0
    return max(half, bounds.computing_bound(problem))


def _effort(planner: Any, *, most: bool = True) -> Effort:
    return Effort(
        way=planner.way,
        improve=planner.improve,
        solver=getattr(planner, "solver", "direct"),
        most=most,
        solver_seconds=planner.solver_seconds,
    )


def _own_seconds(problem: Problem, found: Assignment) -> Floats:
    return problem.seconds[np.arange(problem.jobs), found.machines]
