"""`hetsim train`: train the policy `learned` on a family of scenarios, or on a recorded run."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
import msgspec
from threadpoolctl import threadpool_limits

from hetsched.planning.learned.weights import NetworkVariant, encode_weights
from hetsim.learning.family import decode_family
from hetsim.learning.runner import runner_of
from hetsim.learning.saved import (
    digest_of,
    encode_state,
    read_state,
    state_path,
    write_file,
)
from hetsim.learning.training import Method, Training, TrainingRecipe, finished
from hetsim.settings import MOST, FiniteRange
from libtask.errors import InputError
from libtask.output_files import check_replaceable
from libtask.whole_files import LARGEST_DATA, read_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetsim.learning.runner import EpisodeRunner
    from hetsim.learning.training import TrainingState

TEACHERS = ("contention-aware", "paragon")
"""Policies whose slowdown is shown beside that of the network."""
NEWS_S = 10.0
MINUTE = 60.0
PARTS = ("belief", "graph", "recurrent")


class TrainResult(msgspec.Struct, frozen=True):
    """The output of `--json`.

    Attributes:
        held_out: mean slowdown of held-out draws: the network's best, and of policies.

    """

    weights: str
    updates: int
    episodes: int
    decisions: int
    seconds: float
    held_out: dict[str, float]
    format: str = "hetsim/training-result-1"


@click.command("train")
@click.argument("family", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the weights; FILE.state beside it is for --resume.",
)
@click.option(
    "--minutes",
    type=FiniteRange(0, MOST, min_open=True),
    help="Train for this time  [default: 5, without --updates]",
)
@click.option(
    "--updates",
    type=click.IntRange(min=1),
    help="Train for this number of updates: the same command gives the same file.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Of the scenarios and of the training.",
)
@click.option(
    "--method",
    type=click.Choice(get_args(Method)),
    default="both",
    show_default=True,
    help="Imitate contention-aware, learn from rewards (a2c), or one after the other.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that run episodes.",
)
@click.option(
    "--episodes",
    type=click.IntRange(1, 1024),
    default=16,
    show_default=True,
    help="Episodes of an update.",
)
@click.option(
    "--held-out",
    type=click.IntRange(1, 1024),
    default=24,
    show_default=True,
    help="Draws of a test, every ten updates.",
)
@click.option(
    "--without",
    multiple=True,
    type=click.Choice(PARTS),
    help="Leave a part of the model out, to compare.",
)
@click.option("--resume", is_flag=True, help="Go on from FILE.state.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(  # noqa: PLR0913  one argument an option
    *,
    family: Path,
    output: Path,
    minutes: float | None,
    updates: int | None,
    seed: int,
    method: Method,
    workers: int,
    episodes: int,
    held_out: int,
    without: tuple[str, ...],
    resume: bool,
    as_json: bool,
) -> None:
    """Train the policy `learned` on FAMILY, a JSON file.

    FAMILY is a family of scenarios, or a scenario: that of a run that `hetctl trace`
    recorded. Stopped and resumed, a training gives what it would have given without a stop.
    """
    variant = NetworkVariant(**dict.fromkeys(without, False))
    recipe = TrainingRecipe(method, variant, seed, episodes=episodes, held_out=held_out)
    data = _read(family)
    try:
        drawn = decode_family(data)
    except InputError as error:
        raise InputError(f"{family}: {error}") from error
    digest = digest_of(data)
    state = read_state(state_path(output), recipe, digest) if resume else None
    if not output.parent.is_dir():
        raise InputError(f"--output: {output.parent}: no such folder")
    check_replaceable(output)
    check_replaceable(state_path(output))
    with runner_of(drawn, workers) as runner, threadpool_limits(1):
        session = TrainingRun(Training(recipe, runner, state), output, digest)
        session.train(_limit(minutes, updates))
    session.report(as_json=as_json)


def _read(path: Path) -> bytes:
    try:
        return read_whole(path, LARGEST_DATA)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _limit(
    minutes: float | None, updates: int | None
) -> Callable[[TrainingState], bool]:
    """Return what says whether a training goes on."""
    if minutes is None and updates is None:
        minutes = 5.0
    end = None if minutes is None else time.monotonic() + MINUTE * minutes

    def goes_on(state: TrainingState) -> bool:
        if updates is not None and state.updates >= updates:
            return False
        return end is None or time.monotonic() < end

    return goes_on


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Collect the numbers of signals that ask for an end, for the time of a block."""
    found: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(n, lambda number, _: found.append(number)) for n in numbers]
    try:
        yield found
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class TrainingRun:
    """One run of the command: trains, shows news, and saves what is reached."""

    def __init__(self, training: Training, output: Path, family: str) -> None:
        self.training = training
        self._output = output
        self._family = family
        self._began = self._told = time.monotonic()
        self._tests = len(training.state.tests)
        self._others = _others(training.runner, training.held_out())

    def train(self, goes_on: Callable[[TrainingState], bool]) -> None:
        """Train while `goes_on` says so; an interruption ends it after the update."""
        with interruptions() as interrupted:

            def further(state: TrainingState) -> bool:
                self._tell(state)
                return not interrupted and goes_on(state)

            self.training.train(further)
        if interrupted:
            _say("interrupted; --resume goes on")
        self._save()

    def report(self, *, as_json: bool) -> None:
        state, best = self.training.state, self._best()
        if as_json:
            result = TrainResult(
                str(self._output),
                state.updates,
                state.episodes,
                state.decisions,
                time.monotonic() - self._began,
                {"learned": best, **self._others},
            )
            click.echo(msgspec.json.encode(result))
            return
        click.echo(
            f"{self._output}: {state.updates} updates, {state.episodes} episodes, "
            f"{state.decisions} decisions; held-out slowdown {best:.3f}, "
            f"{self._beside()}"
        )
        if best > self._others[TEACHERS[0]]:
            click.echo(
                f"{TEACHERS[0]} is as good or better without training: prefer it, or "
                "train longer"
            )

    def _tell(self, state: TrainingState) -> None:
        """Show news from time to time, and save after each test."""
        now = time.monotonic()
        if len(state.tests) > self._tests:
            self._tests = len(state.tests)
            self._save()
            self._told = now
            _say(f"{self._progress(now)}; {self._beside()}")
        elif now - self._told >= NEWS_S:
            self._told = now
            _say(self._progress(now))

    def _progress(self, now: float) -> str:
        state = self.training.state
        text = (
            f"{now - self._began:5.0f} s: {state.updates} updates, "
            f"{state.episodes} episodes, {state.decisions} decisions"
        )
        if not state.tests:
            return text
        last = state.tests[-1].slowdown
        return f"{text}; held-out slowdown {last:.3f}, best {self._best():.3f}"

    def _beside(self) -> str:
        return ", ".join(f"{name} {value:.3f}" for name, value in self._others.items())

    def _best(self) -> float:
        best = self.training.best
        return float("nan") if best is None else best.slowdown

    def _save(self) -> None:
        training = self.training
        held_out = {"learned": self._best(), **self._others}
        about = {"family": self._family, "held_out": held_out}
        write_file(self._output, encode_weights(finished(training, about)))
        state = encode_state(training.state, training.recipe, self._family)
        write_file(state_path(self._output), state)


def _others(runner: EpisodeRunner, seeds: list[str]) -> dict[str, float]:
    return {name: runner.test_policy(name, seeds) for name in TEACHERS}


def _say(text: str) -> None:
    click.echo(text, err=True)
