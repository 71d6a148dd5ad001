"""The batch planners of zhao-2018 as policies: a table, one row for each planner.

All of them are `BatchPolicy` (`hetsched.planning.batch.live`) with its parameters; only
the planner that each one names differs.
"""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.planning.batch.live import BatchPolicy

DESCRIPTIONS = {
    # zhao-2018-icc: section V (baselines), section IV (Algorithm 1 and Theorem 3)
    "sct": "Batches by SCT (zhao-2018): each task where it is executed quickest, whatever else waits.",
    "mmi": "Batches by MMI (zhao-2018): next the task and place that lengthen the makespan least.",
    "mttf-lp": "Batches by MTTF-LP (zhao-2018): transfer and computation balanced, shortest transfer first.",
    # zhao-2018-tpds: section 5 (baselines), sections 3.1 to 3.3
    "sjf": "Batches by SJF (zhao-2018): a free resource gets the task that it completes quickest.",
    "ljf": "Batches by LJF (zhao-2018): a free resource gets the task that takes longest on average.",
    "cim": "Batches by CIM (zhao-2018): computing balanced within a percent of the lower bound.",
    "nim": "Batches by NIM (zhao-2018): transfers balanced over the devices' links.",
    "ncjm": "Batches by NCJM (zhao-2018): computing balanced, each transfer beside other computations.",
}
"""Planner -> description of its policy, which has the same name."""


@dataclass(frozen=True, slots=True)
class _SolverPolicy(BatchPolicy):
    """A batch policy whose planner calls an LP solver.

    Attributes:
        solver_seconds: time of one call of the solver at most.

    """

    solver_seconds: float = 1.0


def _policy(planner: str, description: str) -> type[BatchPolicy]:
    """Make the class of one row: a batch policy with this planner and description."""
    base = _SolverPolicy if planner == "mttf-lp" else BatchPolicy
    members = {
        "__doc__": description,
        "__module__": __name__,
        "__slots__": (),
        "planner": planner,
    }
    return type(f"Batches[{planner}]", (base,), members)


BATCH_POLICIES = {name: _policy(name, text) for name, text in DESCRIPTIONS.items()}
"""Name -> class, one for each row."""
