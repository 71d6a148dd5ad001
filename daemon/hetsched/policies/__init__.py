"""The policies, one file for each source; `POLICIES` holds the table: name -> class.

A policy is a frozen dataclass whose fields are its parameters, with a docstring whose
first line describes it to users. Adding one means a file and a line here; other packages
add theirs by entry points (`plugins`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from hetsched.planning.registry import make_named, parameter_names
from hetsched.policies.banerjee import (
    ContentionAware,
    Graphene,
    HeterogeneousEarliestFinish,
    Learned,
    Lookahead,
    Paragon,
    Sparrow,
)
from hetsched.policies.fair_deadline import FairDeadline
from hetsched.policies.finish_time import FinishTime
from hetsched.policies.loesch import Affinity, Migration, WorkConserving
from hetsched.policies.mokhtari import (
    EnergyLatencyAware,
    FairEnergyLatencyAware,
    MinMaxUrgency,
    MinMin,
    MinSoonestDeadline,
)
from hetsched.policies.plugins import GROUP, PlugIns, load
from hetsched.policies.zhao import BATCH_POLICIES
from hetsched.policy import ReadsFiles, objective_of
from hetsched.system import Objective
from libtask.complaints import described, quoted
from libtask.errors import HetError, InputError
from libtask.weights import read_weights
from libtask.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetsched.policy import Policy

POLICIES: dict[str, type[Policy]] = {
    "affinity": Affinity,
    "work-conserving": WorkConserving,
    "migration": Migration,
    "finish-time": FinishTime,
    "mm": MinMin,
    "msd": MinSoonestDeadline,
    "mmu": MinMaxUrgency,
    "elare": EnergyLatencyAware,
    "felare": FairEnergyLatencyAware,
    "fair-deadline": FairDeadline,
    "contention-aware": ContentionAware,
    "lookahead": Lookahead,
    "learned": Learned,
    "heft": HeterogeneousEarliestFinish,
    "graphene": Graphene,
    "sparrow": Sparrow,
    "paragon": Paragon,
    **BATCH_POLICIES,
}

OBJECTIVES = get_args(Objective)

PACKAGE = "hetd"
"""The package that brings the policies in `POLICIES`."""

LONGEST_LINE = 200
"""Characters of a description; that of a plug-in may be of any length."""


@cache
def plug_ins() -> PlugIns:
    """Load the policies of other packages; once, so that no later caller waits for it."""
    from importlib.metadata import entry_points  # a tenth of the simulator's start

    return load(entry_points(group=GROUP), POLICIES)


def all_policies() -> dict[str, type[Policy]]:
    """Return the built-in policies and those of other packages, by name."""
    return POLICIES | plug_ins().policies


def package_of(name: str) -> str:
    """Return the name of the package that brings a policy."""
    return plug_ins().packages.get(name, PACKAGE)


def make_policy(
    name: str,
    parameters: dict[str, Any],
    read: Callable[[str], bytes] = read_weights,
) -> Policy:
    """Make the policy `name` with these parameters; see `make_named`.

    Args:
        name: of the policy; `parameters`: of it.
        read: reads a file that the policy wants, by its name. Nothing else here, and no
            policy, reads files.

    Raises:
        NotFoundError: there is no policy of that name.
        InputError: it is a plug-in that cannot be used, it has no such parameter, a value
            is of the wrong type, or a file is not what the policy needs.

    """
    table = POLICIES if name in POLICIES else all_policies()
    if name not in table and name in plug_ins().faults:
        raise InputError(plug_ins().faults[name])
    made = make_named("policy", table, name, parameters)
    _refuse_objective(name, made)
    if isinstance(made, ReadsFiles):
        _hand_files(name, made, read)
    return made


def _refuse_objective(name: str, policy: Policy) -> None:
    objective = objective_of(policy)
    if objective not in OBJECTIVES:
        expected, got = described(Objective), quoted(objective)
        raise InputError(f"policy {name}: objective: expected {expected}, got {got}")


def _hand_files(name: str, policy: ReadsFiles, read: Callable[[str], bytes]) -> None:
    """Let a policy read its files; whatever that of another package raises is one line."""
    try:
        policy.read_files(read)
    except HetError:
        raise
    except Exception as error:
        text = f"read_files: {type(error).__name__}: {one_line(error)}"
        raise InputError(f"policy {name}: {text}") from error


def parameters_of(policy: Policy) -> dict[str, Any]:
    """Read the parameters of a policy."""
    return {name: getattr(policy, name) for name in parameter_names(type(policy))}


def describe_policy(kind: type[Policy]) -> str:
    """Return the one line that describes a policy to users."""
    lines = (kind.__doc__ or "").strip().splitlines()
    return lines[0][:LONGEST_LINE] if lines else "(no description)"
