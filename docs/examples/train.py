"""Train a small model, and go on elsewhere when asked to.

    hetctl submit --stop-signal TERM --grace 60s \
        --cpu 'python train.py --device cpu' --gpu 'python train.py --device gpu'

It saves its state and leaves with exit status 75 (EX_TEMPFAIL) when it gets SIGTERM, says
how far it is in the file named in HETD_PROGRESS, and goes on from its state where there is
one: the weights are the same, to the last bit, as those of a run that was never moved.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import numpy as np

FEATURES, BATCH, RATE = 64, 32, 0.05
REPORTS = 100
"""How often it says how far it is, in all."""


class Model:
    """Logistic regression, by stochastic gradient descent.

    Attributes:
        weights: one for each feature.
        step: steps that were made.
        random: what the batches are drawn with; a part of the state, as they are.

    """

    def __init__(self) -> None:
        self.weights = np.zeros(FEATURES)
        self.step = 0
        self.random = np.random.default_rng(1)
        self.truth = np.linspace(-1.0, 1.0, FEATURES)

    def train(self) -> None:
        inputs = self.random.normal(size=(BATCH, FEATURES))
        labels = (inputs @ self.truth > 0).astype(float)
        guesses = 1.0 / (1.0 + np.exp(-(inputs @ self.weights)))
        self.weights -= RATE * inputs.T @ (guesses - labels) / BATCH
        self.step += 1

    def save(self, path: Path) -> None:
        """Write the state: whole, or not at all."""
        draft = path.with_suffix(".new.npz")
        bits = self.random.bit_generator.state["state"]
        words = [str(bits["state"]), str(bits["inc"])]
        np.savez(draft, weights=self.weights, step=self.step, random=words)
        draft.replace(path)

    def load(self, path: Path) -> None:
        with np.load(path) as saved:
            self.weights, self.step = saved["weights"], int(saved["step"])
            state = self.random.bit_generator.state
            words = [int(word) for word in saved["random"]]
        state["state"] = dict(zip(("state", "inc"), words, strict=True))
        self.random.bit_generator.state = state


class Asked:
    """Whether it was asked to leave."""

    def __init__(self) -> None:
        self.yes = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.yes = True


def report(share: float) -> None:
    """Say how far it is, where somebody wants to know."""
    path = os.environ.get("HETD_PROGRESS")
    if path:
        with Path(path).open("a", encoding="ascii") as file:
            file.write(f"{share:.4f}\n")


def main() -> int:
    """Train; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="where to compute")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--state", type=Path, default=Path("state.npz"))
    parser.add_argument("--weights", type=Path, default=Path("weights.npy"))
    options = parser.parse_args()
    asked, model = Asked(), Model()
    if options.state.exists():
        model.load(options.state)
    print(f"from step {model.step} on {options.device}", flush=True)
    while model.step < options.steps:
        model.train()
        if asked.yes:
            model.save(options.state)
            return os.EX_TEMPFAIL
        if model.step % (options.steps // REPORTS or 1) == 0:
            report(model.step / options.steps)
    np.save(options.weights, model.weights)
    options.state.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
