"""The policies, one file for each source; `POLICIES` holds the table: name -> class.

A policy is a frozen dataclass whose fields are its parameters, with a docstring whose
first line describes it to users. Adding one means a file and a line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetsched.planning.named import make_named, parameter_names
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
from hetsched.policies.zhao import BATCH_POLICIES

if TYPE_CHECKING:
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
    **BATCH_POLICIES,
}


def make_policy(name: str, parameters: dict[str, Any]) -> Policy:
    """Make the policy `name` with these parameters; see `make_named`."""
    return make_named("policy", POLICIES, name, parameters)


def parameters_of(policy: Policy) -> dict[str, Any]:
    """Read the parameters of a policy."""
    return {name: getattr(policy, name) for name in parameter_names(type(policy))}


def describe_policy(kind: type[Policy]) -> str:
    """Return the one line that describes a policy to users."""
    return (kind.__doc__ or "").strip().splitlines()[0]
