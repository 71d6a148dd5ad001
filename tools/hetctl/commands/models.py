"""`hetctl models`: the execution times that the daemon knows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetctl.avoidance import avoided_document, avoided_text
from hetctl.options import connect, lacking, shared
from hetctl.output import emit, table
from hetctl.places import emulated_names, marked
from hetctl.terminal import say
from hetctl.units import readable_joules
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from libtask.messages import Sample

SUFFIXES = (".png", ".svg", ".pdf")
BAD_LINES = 2
"""Exit status when lines of a file were refused."""


@click.group("models")
def models_command() -> None:
    """Look at the measured execution times; forget, export or import them."""


@models_command.command("list")
@shared
def list_all(*, socket: Path | None, as_json: bool) -> None:
    """List the applications that were measured, and those that avoid a resource."""
    with connect(socket) as client:
        pages = list(client.model_pages())
    samples = [each for page in pages for each in page.samples]
    hidden = sum(page.hidden for page in pages)
    avoided = pages[0].avoided
    apps: dict[str, list[Sample]] = {}
    for each in samples:
        apps.setdefault(application(each.type), []).append(each)
    rows = [(app, *_extent(some)) for app, some in sorted(apps.items())]
    if as_json:
        names = ("app", "sizes", "resources", "measurements")
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
        ("app", "sizes", "on", "measurements"),
        [(app, str(n), ", ".join(on), str(k)) for app, n, on, k in rows],
    )
    for pair in avoided:
        say(avoided_text(pair))
    if hidden:
        say(f"{_counted(hidden)} of other users' own applications are not shown")


@models_command.command("show")
@click.argument("names", nargs=-1, metavar="[APP|TYPE]...")
@shared
def show(*, names: tuple[str, ...], socket: Path | None, as_json: bool) -> None:
    """Show measured times, with the affinity of each size to each resource."""
    with connect(socket) as client:
        samples = _chosen(client.models(), names)
        emulated = emulated_names(client)
    affinities = _affinities(samples)
    if as_json:
        documents = [
            _document(each, affinity, emulated)
            for each, affinity in zip(samples, affinities, strict=True)
        ]
        emit({"format": "hetctl/model-samples-1", "samples": documents})
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
    table(headings, [_row(each, affinity, emulated) for each, affinity in rows])


@models_command.command("plot")
@click.argument("app")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Picture to write: .png, .svg or .pdf.  [default: APP.png]",
)
@shared
def plot(*, app: str, output: Path | None, socket: Path | None, as_json: bool) -> None:
    """Draw an application's times over its sizes, for each resource."""
    path = output or Path(f"{Path(app).name}.png")
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
    with connect(socket) as client:
        samples = _chosen(client.models(), (app,))
        emulated = emulated_names(client)
    _draw(app, samples, emulated, path)
    if as_json:
        emit({"format": "hetctl/model-plot-1", "file": str(path), "app": app})
    else:
        say(f"{path}: {len(samples)} measurements drawn")


@models_command.command("forget")
@click.argument("names", nargs=-1, metavar="[APP|TYPE]...")
@click.option("--all", "everything", is_flag=True, help="All there are.")
@click.option("--resource", "resources", multiple=True, help="Only what ran there.")
@shared
def forget(
    *,
    names: tuple[str, ...],
    everything: bool,
    resources: tuple[str, ...],
    socket: Path | None,
    as_json: bool,
) -> None:
    """Forget measured times, and on which resources applications failed.

    Users who are no administrators forget failures of their own applications only.
    """
    if not (names or resources or everything):
        raise click.UsageError("name what to forget: APP, TYPE, --resource or --all")
    with connect(socket) as client:
        gone, avoided = client.forget_failures(names, resources)
    if not gone and not avoided and not everything:
        raise NotFoundError("nothing of that was measured, and nothing of it failed")
    if as_json:
        counts = {"count": gone, "failures": len(avoided)}
        emit({"format": "hetctl/models-forgotten-1", **counts})
        return
    say(f"{_counted(gone)} forgotten")
    for pair in avoided:
        say(f"{pair.app} ({pair.owner}) may use {pair.resource} again")


@models_command.command("export")
@click.argument("names", nargs=-1, metavar="[APP|TYPE]...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write.")
@shared
def export(
    *,
    names: tuple[str, ...],
    output: Path | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Write measured times as lines of JSON; without -o to standard output."""
    from hetctl.modelfile import write

    with connect(socket) as client:
        samples = _chosen(client.models(), names)
    if output is None:
        sys.stdout.write(write(samples))
        return
    try:
        output.write_text(write(samples), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}") from error
    if as_json:
        emit(
            {
                "format": "hetctl/models-exported-1",
                "file": str(output),
                "count": len(samples),
            }
        )
    else:
        say(f"{output}: {_count(samples)} written")


@models_command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@shared
def import_file(*, file: Path, socket: Path | None, as_json: bool) -> int:
    """Take up measured times from a file; they replace what is known of the same.

    A line that cannot be used is told and left out; the exit status is then 2.
    """
    from hetctl.modelfile import read

    with connect(socket) as client:
        names = [device.spec.name for device in client.devices()]
        samples, complaints = read(file, names)
        if samples:
            client.learn(samples)
    for complaint in complaints:
        say(f"hetctl: {complaint}", err=True)
    if as_json:
        counts = {"count": len(samples), "refused": len(complaints)}
        emit({"format": "hetctl/models-imported-1", "file": str(file), **counts})
    else:
        say(f"{file}: {_count(samples)} taken up, {len(complaints)} refused")
    return BAD_LINES if complaints else 0


def application(task_type: str) -> str:
    """Return the application of a task type: all but its size."""
    path, mark, rest = task_type.rpartition(".py:")
    return path + mark + rest.partition("/")[0]


def _count(samples: list[Sample]) -> str:
    return _counted(len(samples))


def _counted(count: int) -> str:
    return f"{count} measurement{'s' * (count != 1)}"


def _extent(samples: list[Sample]) -> tuple[int, list[str], int]:
    sizes = {(each.type, each.work) for each in samples}
    resources = sorted({each.resource for each in samples})
    return len(sizes), resources, sum(each.count for each in samples)


def _chosen(samples: list[Sample], names: tuple[str, ...]) -> list[Sample]:
    """Choose by applications' and types' names; none named: all."""
    for name in names:
        if not any(name in (s.type, application(s.type)) for s in samples):
            raise NotFoundError(f"{name}: never measured; see hetctl models list")
    return [
        each
        for each in samples
        if not names or {each.type, application(each.type)} & set(names)
    ]


def _affinities(samples: list[Sample]) -> list[float]:
    """Affinity of each size to where it was measured, by time."""
    fastest: dict[tuple[str, float], float] = {}
    for each in samples:
        key = (each.type, each.work)
        fastest[key] = min(each.seconds, fastest.get(key, each.seconds))
    return [fastest[each.type, each.work] / each.seconds for each in samples]


def _document(
    each: Sample, affinity: float, emulated: frozenset[str]
) -> dict[str, Any]:
    known = {name: getattr(each, name) for name in each.__struct_fields__}
    return {**known, "affinity": affinity, "emulated": each.resource in emulated}


def _row(each: Sample, affinity: float, emulated: frozenset[str]) -> tuple[str, ...]:
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


def _draw(
    app: str, samples: list[Sample], emulated: frozenset[str], path: Path
) -> None:
    try:
        from hetctl.modelplot import draw
    except ImportError as error:
        raise InputError(lacking("pictures need", "matplotlib")) from error
    try:
        draw(app, samples, emulated, path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
