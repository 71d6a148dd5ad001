"""`hetctl characterize`: measure how long applications take on each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hetctl.options import connect, shared
from hetctl.output import emit, on_terminal, table
from hetctl.places import emulated_names, marked
from hetctl.terminal import say
from hetctl.units import readable_joules
from libtask.characterisation import Extent, Trial, characterise
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hetctl.documents.node import NewSamplePart
    from libtask.messages import Sample


@click.command("characterize")
@click.argument("apps", nargs=-1, metavar="[APP]...")
@click.option(
    "--quick",
    is_flag=True,
    help="Measure each task once, and briefly; else five times, and longer ones too.",
)
@click.option(
    "--sizes",
    metavar="[KEY=]V,V…",
    help="Measure these sizes instead of the application's own: values of its parameter "
    "KEY, or of n.",
)
@click.option(
    "--repeat", type=click.IntRange(1, 1000), help="Measured runs of each task."
)
@click.option("--resume", is_flag=True, help="Leave out what was measured before.")
@shared
def characterize_command(
    *,
    apps: tuple[str, ...],
    quick: bool,
    socket: Path | None,
    as_json: bool,
    **more: Any,
) -> int:
    """Measure applications, each alone, on every resource that can run them.

    None named: all installed ones. The daemon keeps what is measured; nothing else
    may run meanwhile. Exit status 1: some could not be measured.
    """
    with connect(socket) as client:
        emulated = emulated_names(client)
        report = _Reporter(emulated)
        samples = characterise(
            client, apps, quick=quick, report=report.changed, extent=_extent(**more)
        )
        report.clear()
    if as_json:
        documents = [_document(sample, emulated) for sample in samples]
        emit({"format": "hetctl/characterization-1", "samples": documents})
    else:
        headings = ("type", "resource", "seconds", "spread", "set-up", "energy", "work")
        table(headings, _rows(samples, emulated))
    return 1 if report.problems else 0


def _extent(*, sizes: str | None, repeat: int | None, resume: bool) -> Extent:
    """Read the options; `n=1,2` are two sizes."""
    key, equals, values = (sizes or "").rpartition("=")
    several = tuple(f"{key}{equals}{value}" for value in values.split(",") if value)
    return Extent(several, repeat, resume)


class _Reporter:
    """Tells on standard error what is being measured: a line that changes, or lines."""

    def __init__(self, emulated: frozenset[str]) -> None:
        self._emulated = emulated
        self.problems = 0

    def changed(self, trial: Trial) -> None:
        where = marked(trial.subject.resource, self._emulated)
        what = f"{trial.subject.type} on {where}"
        if trial.problem:
            self.clear()
            self.problems += 1
            say(f"cannot measure {what}: {trial.problem}", err=True)
        elif trial.seconds is None and on_terminal():
            done = f"[{trial.number}/{trial.count}]"
            line = f"\r\033[K{done} {one_line(what)}"
            click.echo(line, nl=False, err=True)

    def clear(self) -> None:
        """Take the changing line away."""
        if on_terminal():
            click.echo("\r\033[K", nl=False, err=True)


def _document(sample: Sample, emulated: frozenset[str]) -> NewSamplePart:
    return {
        "type": sample.type,
        "resource": sample.resource,
        "emulated": sample.resource in emulated,
        "seconds": sample.seconds,
        "work": sample.work,
        "spread": sample.spread,
        "count": sample.count,
        "setup_s": sample.setup,
        "joules": sample.joules,
    }


def _rows(samples: Sequence[Sample], emulated: frozenset[str]) -> list[tuple[str, ...]]:
    return [
        (
            sample.type,
            marked(sample.resource, emulated),
            f"{sample.seconds:.4f}",
            f"± {100 * sample.spread:.0f} %" if sample.count > 1 else "-",
            f"{sample.setup:.4f}",
            "-" if sample.joules is None else readable_joules(sample.joules),
            f"{sample.work:g}",
        )
        for sample in samples
    ]
