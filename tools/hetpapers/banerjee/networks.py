"""The trained networks of the study: those that come with hetd, and ones with parts left out."""

from __future__ import annotations

from importlib import resources

from hetpapers.banerjee.runs import Contender
from hetpapers.banerjee.testbed import Setting
from hetsched.planning.learned.weights import decode_weights
from libtask.weights import NAMED, read_weights

WITHOUT_BELIEF = "without-belief"
WITHOUT_GRAPH, WITHOUT_MEMORY = "without-graph", "without-memory"
"""Trained as `rack`, but with the part left out."""
TRAININGS = 3
"""Networks that are kept of `rack` and of `without-belief`, trained with seeds 1, 2 and so on."""


def path_of(name: str) -> str:
    """Return what the policy's parameter `weights` is for a network of the study."""
    if name in NAMED:
        return name
    return str(resources.files("hetpapers.banerjee") / "weights" / f"{name}.npz")


def learned(setting: Setting, name: str = "rack") -> Contender:
    """Return the learned policy with a network."""
    return Contender("learned", setting, (("weights", path_of(name)),))


def trainings_of(name: str) -> list[str]:
    """Return the names of a network's trainings; the first, with seed 1, has no number."""
    return [name, *(f"{name}-{seed}" for seed in range(2, TRAININGS + 1))]


def tests_of(name: str) -> list[tuple[int, int, int, float]]:
    """Return the tests of a training: updates, episodes, decisions, held-out slowdown."""
    trained = decode_weights(read_weights(path_of(name))).trained
    return [(int(u), int(e), int(d), float(s)) for u, e, d, s in trained["tests"]]


def held_out_of(name: str) -> dict[str, float]:
    """Return the held-out slowdowns of a network and of the policies beside it."""
    return dict(decode_weights(read_weights(path_of(name))).trained["held_out"])
