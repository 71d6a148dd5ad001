"""`hetctl list --jobs` and `hetctl graph`: jobs, the tasks of one name as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetctl.completing import jobs as jobs_there
from hetctl.options import connect, shared
from hetctl.output import clock_time, emit, iso, moment, now, say, table
from hetctl.selectors import JOB, MOST, own_job
from hetctl.units import readable_duration
from hetctl.views.jobs import JobSummary, jobs_of
from hetctl.views.users import shown_owner
from libtask.client.client import Selection
from libtask.errors import InputError

if TYPE_CHECKING:
    from hetctl.documents.tasks import JobPart
    from libtask.client.client import Client

SUFFIXES = (".svg", ".html")
HEADINGS = (
    "job",
    "user",
    "state",
    "tasks",
    "submitted",
    "elapsed",
    "critical path",
    "slowdown",
)


def list_jobs(
    client: Client, *, mine: bool, since: float | None, as_json: bool
) -> None:
    """Print the jobs that have not ended, and those that ended after a time."""
    every = jobs_of(client.iterate(Selection(mine=mine, limit=MOST, job="*")), now())
    jobs = [
        job
        for job in every
        if job.finished is None or since is None or job.finished >= since
    ]
    if as_json:
        parts = [job_document(job) for job in jobs]
        emit({"format": "hetctl/jobs-1", "jobs": parts})
    else:
        table(HEADINGS, [job_row(job) for job in jobs])


def job_document(job: JobSummary) -> JobPart:
    """Return the document of a job."""
    return {
        "name": job.name,
        "owner": job.owner,
        "state": job.state,
        "tasks": dict(job.counts),
        "submitted": moment(job.submitted),
        "finished": iso(job.finished),
        "elapsed_s": job.elapsed_s,
        "critical_path_s": job.critical_path_s,
        "slowdown": job.slowdown,
    }


def job_row(job: JobSummary) -> tuple[str, ...]:
    """Return a job's row under `HEADINGS`."""
    counts = ", ".join(f"{count} {state}" for state, count in job.counts.items())
    return (
        job.name,
        shown_owner(job.owner),
        job.state,
        counts,
        clock_time(job.submitted),
        readable_duration(job.elapsed_s),
        readable_duration(job.critical_path_s),
        "-" if job.slowdown is None else f"{job.slowdown:.2f}",
    )


@click.command("graph")
@click.argument("job", metavar="JOB", shell_complete=jobs_there)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="graph.svg",
    show_default=True,
    help="File to write: .svg, or .html.",
)
@shared
def graph_command(
    *, job: str, output: Path, socket: Path | None, as_json: bool
) -> None:
    """Draw the tasks of a job and what depends on what, with states and times."""
    if output.suffix not in SUFFIXES:
        raise InputError(f"{output}: expected a name that ends in .svg or .html")
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output}: no such folder")
    from hetctl.export import jobgraph

    with connect(socket) as client:
        tasks = own_job(client, job.removeprefix(JOB))
    (found,) = jobs_of(tasks, now())
    if len(found.tasks) > jobgraph.MOST:
        raise InputError(f"{len(found.tasks)} tasks, at most {jobgraph.MOST} are drawn")
    try:
        jobgraph.write_graph(found, output)
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}") from error
    if as_json:
        document = {"format": "hetctl/graph-1", "file": str(output)}
        emit({**document, "job": job_document(found)})
    else:
        say(f"{output}: {len(found.tasks)} tasks drawn")
