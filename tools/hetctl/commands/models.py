"""`hetctl models` and `hetctl characterize`: measured execution times."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetctl.commands.together import measure_together
from hetctl.completing import measured
from hetctl.options import connect, shared
from hetctl.output import emit, on_terminal, say, table
from hetctl.units import readable_joules
from hetctl.views.avoidance import avoided_document, avoided_text
from hetctl.views.learned import HEADINGS, load_document, load_row
from hetctl.views.places import emulated_names, marked
from libtask.apps import absolute, short_name
from libtask.characterisation import Extent, Trial, characterise
from libtask.errors import InputError, NotFoundError
from libtask.plaintext import one_line
from libtask.wording import lacking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetctl.documents.node import NewSamplePart
    from libtask.client.client import Client
    from libtask.messages import LearnedLoad, Sample


# ------------------------------------------------------------ models

SUFFIXES = (".png", ".svg", ".pdf")
BAD_LINES = 2
"""Exit status if lines of a file were rejected."""


@click.group("models")
def models_command() -> None:
    """Show, delete, export or import measured execution times and loads."""


@models_command.command("list")
@shared
def list_models(*, socket: Path | None, as_json: bool) -> None:
    """List measured applications, and those that avoid a resource."""
    with connect(socket) as client:
        pages = list(client.model_pages())
    samples = [each for page in pages for each in page.samples]
    hidden = sum(page.hidden for page in pages)
    avoided = pages[0].avoided
    loads = Counter(each.app for each in pages[0].loads)
    apps: dict[str, list[Sample]] = {app: [] for app in loads}
    for each in samples:
        apps.setdefault(application(each.type), []).append(each)
    rows = [
        (app, *_measured_extent(some), loads[app]) for app, some in sorted(apps.items())
    ]
    if as_json:
        names = ("app", "sizes", "resources", "measurements", "loads")
        entries = [dict(zip(names, row, strict=True)) for row in rows]
        documents = [avoided_document(each) for each in avoided]
        emit(
            {
                "format": "hetctl/model-list-1",
                "apps": entries,
                "hidden": hidden,
                "avoided": documents,
            }
        )
        return
    table(
        ("app", "sizes", "on", "measurements", "loads"),
        [
            (app, str(n), ", ".join(on), str(k), str(known))
            for app, n, on, k, known in rows
        ],
    )
    for pair in avoided:
        say(avoided_text(pair))
    if hidden:
        say(f"{_measurements(hidden)} of other users' private applications not shown")


@models_command.command("show")
@click.argument("names", nargs=-1, metavar="[APP|TYPE]...", shell_complete=measured)
@shared
def show_models(*, names: tuple[str, ...], socket: Path | None, as_json: bool) -> None:
    """Show measured times, with the affinity of each size to each resource.

    Then the loads that were learned from runs beside others: what a task of an
    application takes of a shared resource, and which share of its time depends on it.
    """
    with connect(socket) as client:
        samples, loads = _chosen(client, names)
        emulated = emulated_names(client)
    affinities = _affinities(samples)
    if as_json:
        documents = [
            _sample_document(each, affinity, emulated)
            for each, affinity in zip(samples, affinities, strict=True)
        ]
        emit(
            {
                "format": "hetctl/model-samples-1",
                "samples": documents,
                "loads": [load_document(each) for each in loads],
            }
        )
        return
    headings = (
        "type",
        "work",
        "on",
        "took",
        "spread",
        "of",
        "set-up",
        "energy",
        "affinity",
    )
    rows = zip(samples, affinities, strict=True)
    table(headings, [_sample_row(each, affinity, emulated) for each, affinity in rows])
    if loads:
        say("")
        table(HEADINGS, [load_row(each) for each in loads])


@models_command.command("plot")
@click.argument("app", shell_complete=measured)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Image file to write: .png, .svg or .pdf.  [default: APP.png]",
)
@shared
def plot_models(
    *, app: str, output: Path | None, socket: Path | None, as_json: bool
) -> None:
    """Plot an application's times over its sizes, for each resource."""
    path = output or Path(f"{Path(app).name}.png")
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
    with connect(socket) as client:
        samples = _chosen_samples(client.models(), (app,))
        emulated = emulated_names(client)
    _draw_times(app, samples, emulated, path)
    if as_json:
        emit({"format": "hetctl/model-plot-1", "file": str(path), "app": app})
    else:
        say(f"{path}: {len(samples)} measurements drawn")


@models_command.command("forget")
@click.argument("names", nargs=-1, metavar="[APP|TYPE]...", shell_complete=measured)
@click.option("--all", "everything", is_flag=True, help="Delete all measurements.")
@click.option(
    "--resource",
    "resources",
    multiple=True,
    help="Delete only what was measured on this resource.",
)
@shared
def forget_models(
    *,
    names: tuple[str, ...],
    everything: bool,
    resources: tuple[str, ...],
    socket: Path | None,
    as_json: bool,
) -> None:
    """Delete measured times and loads, and records of failures on resources.

    Without administrator rights, only failures of one's own applications are deleted.
    """
    if not (names or resources or everything):
        raise click.UsageError("nothing selected: give APP, TYPE, --resource or --all")
    with connect(socket) as client:
        gone = client.forget_measured(_known_as(names), resources)
    if not (gone.count or gone.loads or gone.avoided or everything):
        raise NotFoundError(
            "no such measurements, loads or failures; `hetctl models list` shows them"
        )
    if as_json:
        counts = {
            "count": gone.count,
            "loads": gone.loads,
            "failures": len(gone.avoided),
        }
        emit({"format": "hetctl/models-forgotten-1", **counts})
        return
    say(f"{_what(gone.count, gone.loads)} deleted")
    for pair in gone.avoided:
        say(f"{pair.app} ({pair.owner}) may use {pair.resource} again")


def _known_as(names: tuple[str, ...]) -> list[str]:
    """Return the names under which an application of a file is measured, and has failed."""
    found = dict.fromkeys(names)
    for name in names:
        found |= dict.fromkeys((short_name(name), absolute(name)))
    return list(found)


@models_command.command("export")
@click.argument("names", nargs=-1, metavar="[APP|TYPE]...", shell_complete=measured)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write.")
@shared
def export_models(
    *,
    names: tuple[str, ...],
    output: Path | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Write measured times and loads as lines of JSON, by default to standard output."""
    from hetctl.export.modelfile import write

    with connect(socket) as client:
        samples, loads = _chosen(client, names)
    if output is None:
        sys.stdout.write(write(samples, loads))
        return
    try:
        output.write_text(write(samples, loads), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}") from error
    if as_json:
        emit(
            {
                "format": "hetctl/models-exported-1",
                "file": str(output),
                "count": len(samples),
                "loads": len(loads),
            }
        )
    else:
        say(f"{output}: {_what(len(samples), len(loads))} written")


@models_command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@shared
def import_models(*, file: Path, socket: Path | None, as_json: bool) -> int:
    """Import measured times and loads from a file, in place of those of the same sizes.

    Unusable lines are reported and skipped; the exit status is then 2.
    """
    from hetctl.export.modelfile import read

    with connect(socket) as client:
        found = read(file, client.node_load())
        if found.samples or found.loads:
            client.learn(found.samples, found.loads)
    for complaint in found.complaints:
        say(f"hetctl: {complaint}", err=True)
    refused = len(found.complaints)
    if as_json:
        counts = {"count": len(found.samples), "loads": len(found.loads)}
        emit(
            {
                "format": "hetctl/models-imported-1",
                "file": str(file),
                **counts,
                "refused": refused,
            }
        )
    else:
        imported = _what(len(found.samples), len(found.loads))
        say(f"{file}: {imported} imported, {refused} rejected")
    return BAD_LINES if found.complaints else 0


def application(task_type: str) -> str:
    """Return the application of a task type, without the size."""
    path, mark, rest = task_type.rpartition(".py:")
    return path + mark + rest.partition("/")[0]


def _what(measurements: int, loads: int) -> str:
    """Name numbers of measurements, and of loads where there are some."""
    text = _measurements(measurements)
    return f"{text} and {loads} load{'s' * (loads != 1)}" if loads else text


def _measurements(count: int) -> str:
    return f"{count} measurement{'s' * (count != 1)}"


def _measured_extent(samples: list[Sample]) -> tuple[int, list[str], int]:
    sizes = {(each.type, each.work) for each in samples}
    resources = sorted({each.resource for each in samples})
    return len(sizes), resources, sum(each.count for each in samples)


def _chosen(
    client: Client, names: tuple[str, ...]
) -> tuple[list[Sample], list[LearnedLoad]]:
    """Return samples and loads of the named applications or types, by default all."""
    names = tuple(map(short_name, names))
    pages = list(client.model_pages())
    loads = [each for each in pages[0].loads if not names or each.app in names]
    known = {each.app for each in loads}
    timed = tuple(name for name in names if name not in known)
    samples = [each for page in pages for each in page.samples]
    _chosen_samples(samples, timed)
    return _of(samples, names), loads


def _chosen_samples(samples: list[Sample], names: tuple[str, ...]) -> list[Sample]:
    """Return the samples of the named applications or types, by default all."""
    names = tuple(map(short_name, names))
    for name in names:
        if not any(name in (s.type, application(s.type)) for s in samples):
            raise NotFoundError(f"{name}: never measured; see hetctl models list")
    return _of(samples, names)


def _of(samples: list[Sample], names: tuple[str, ...]) -> list[Sample]:
    return [
        each
        for each in samples
        if not names or {each.type, application(each.type)} & set(names)
    ]


def _affinities(samples: list[Sample]) -> list[float]:
    """Return the affinity of each sample's size to its resource, by time."""
    fastest: dict[tuple[str, float], float] = {}
    for each in samples:
        key = (each.type, each.work)
        fastest[key] = min(each.seconds, fastest.get(key, each.seconds))
    return [fastest[each.type, each.work] / each.seconds for each in samples]


def _sample_document(
    each: Sample, affinity: float, emulated: frozenset[str]
) -> dict[str, Any]:
    known = {name: getattr(each, name) for name in each.__struct_fields__}
    return {**known, "affinity": affinity, "emulated": each.resource in emulated}


def _sample_row(
    each: Sample, affinity: float, emulated: frozenset[str]
) -> tuple[str, ...]:
    return (
        each.type,
        f"{each.work:.4g}",
        marked(each.resource, emulated),
        f"{each.seconds:.4g} s",
        f"± {100 * each.spread:.0f} %" if each.count > 1 else "-",
        str(each.count),
        f"{each.setup:.4g} s",
        "-" if each.joules is None else readable_joules(each.joules),
        f"{affinity:.2f}" + (" best" if affinity == 1.0 else ""),
    )


def _draw_times(
    app: str, samples: list[Sample], emulated: frozenset[str], path: Path
) -> None:
    try:
        from hetctl.export.modelplot import draw
    except ImportError as error:
        raise InputError(lacking("pictures need", "matplotlib")) from error
    try:
        draw(app, samples, emulated, path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


# ------------------------------------------------------------ characterize


@click.command("characterize")
@click.argument("apps", nargs=-1, metavar="[APP]...")
@click.option(
    "--quick",
    is_flag=True,
    help="Measure each task once, with short tasks only; default: five times.",
)
@click.option(
    "--sizes",
    metavar="[KEY=]V,V…",
    help="Measure these sizes instead of the application's own: values of its parameter "
    "KEY (default: n).",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    help="Number of measured runs of each task.",
)
@click.option("--resume", is_flag=True, help="Skip sizes that were measured before.")
@click.option(
    "--together",
    is_flag=True,
    help="Measure instead how much applications slow each other down, two at once.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="With --together: file for the loads, as tables of a hetd.toml.",
)
@shared
def characterize_command(  # noqa: PLR0913  options
    *,
    apps: tuple[str, ...],
    quick: bool,
    together: bool,
    output: Path | None,
    socket: Path | None,
    as_json: bool,
    **more: Any,
) -> int:
    """Measure applications one at a time, on every resource that can run them.

    By default, all installed applications are measured. The daemon stores the
    measurements; no other task may run meanwhile. Exit status 1: some measurements
    failed.
    """
    if together:
        if quick or any(more.values()):
            raise click.UsageError("--together: takes no other option than --output")
        with connect(socket) as client:
            return measure_together(client, apps, output, as_json=as_json)
    if output is not None:
        raise click.UsageError("--output: only with --together")
    with connect(socket) as client:
        emulated = emulated_names(client)
        report = _Reporter(emulated)
        samples = characterise(
            client, apps, quick=quick, report=report.changed, extent=_extent(**more)
        )
        report.clear()
    if as_json:
        documents = [_new_sample_document(sample, emulated) for sample in samples]
        emit({"format": "hetctl/characterization-1", "samples": documents})
    else:
        headings = ("type", "resource", "seconds", "spread", "set-up", "energy", "work")
        table(headings, _new_sample_rows(samples, emulated))
    return 1 if report.problems else 0


def _extent(*, sizes: str | None, repeat: int | None, resume: bool) -> Extent:
    """Parse the options; `n=1,2` gives two sizes."""
    key, equals, values = (sizes or "").rpartition("=")
    several = tuple(f"{key}{equals}{value}" for value in values.split(",") if value)
    return Extent(several, repeat, resume)


class _Reporter:
    """Reports the progress of measurements on standard error."""

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
        """Erase the progress line."""
        if on_terminal():
            click.echo("\r\033[K", nl=False, err=True)


def _new_sample_document(sample: Sample, emulated: frozenset[str]) -> NewSamplePart:
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


def _new_sample_rows(
    samples: Sequence[Sample], emulated: frozenset[str]
) -> list[tuple[str, ...]]:
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
