"""`hetctl pool submit`, `batch`, `plan`: tasks of applications and programs, placed by the pool.

The files that an application declares as its inputs are sent to the node that runs the task,
which gets their paths there. `@FILE` does so for any parameter, `node:PATH` names a file that
the node has itself. A program runs in a folder of its own there, with the files that are sent
along, or in one that the node has itself (`--cwd`).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hetctl.commands.submit import (
    WORDS,
    Array,
    natural,
    no_option,
    parted,
    usage,
)
from hetctl.completing import applications, files, parameters_of
from hetctl.options import assignments, distinct
from hetctl.output import emit, say, table
from hetctl.pool.connection import complete_nodes, open_pool, pooled, settings_of
from hetctl.pool.nodes import check_nodes
from hetctl.submission.programs import (
    KINDS,
    NAMES,
    Program,
    able_kinds,
    export_of,
    pool_program_options,
    variant_of,
)
from hetctl.submission.scripts import is_script
from hetctl.submission.variants import combinations, filled
from hetctl.units import (
    ByteSize,
    CoreCount,
    Duration,
    ExpectedTime,
    Whole,
    readable_duration,
)
from libtask.complaints import convert
from libtask.documents import MAX_RETRIES, check_numbers, decoded
from libtask.errors import InputError
from libtask.messages import COMMAND
from libtask.whole_files import LARGEST_TEXT, read_whole
from libtask.wording import one_line, suggestion

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hetctl.documents.pool import PoolPlanned
    from hetpool.client.pool import Pool, PoolTask
    from hetpool.jobs import PoolJob, PoolPlan
    from libtask.commands import Command
    from libtask.parameters import FileRole

FILE = "@"
AT_NODE = "node:"
MOST = 10_000
"""Most tasks of a batch."""
"""Bytes of a batch file."""
PLAN_HEADINGS = ("task", "app", "on", "order", "input", "starts", "ends")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A task to submit, checked: its application's parameters are right."""

    app: str
    params: dict[str, Any]
    options: dict[str, Any]


def wanted(
    app: str, params: dict[str, Any], options: dict[str, Any], *, text: bool = False
) -> Wanted:
    """Check a task; put `Input` in the place of files.

    Raises:
        InputError: no such application, a wrong parameter, or a file that is not there.

    """
    from hetpool.client.pool import Input
    from libtask.apps import absolute, build, resolve
    from libtask.parameters import file_parameters

    app_class = resolve(app)
    roles = file_parameters(app_class)
    names = {key: _file_in(value, roles.get(key)) for key, value in params.items()}
    plain = {
        key: str(names[key]) if names[key] else _plain(value, roles.get(key))
        for key, value in params.items()
    }
    task = build(app_class, plain, text=text)
    values = {
        key: Input(path) if (path := names[key]) is not None else getattr(task, key)
        for key in params
    }
    return Wanted(absolute(app), values, options)


def _file_in(value: Any, role: FileRole | None) -> Path | None:
    """Return the file of this machine that a value names; None: it names none."""
    from libtask.parameters import FileRole

    if not isinstance(value, str) or value in ("", FILE) or value.startswith(2 * FILE):
        return None
    declared = role is FileRole.INPUT and not value.startswith(AT_NODE)
    if not value.startswith(FILE) and not declared:
        return None
    path = Path(value.removeprefix(FILE)).expanduser()
    if not path.is_file():
        other = f"{AT_NODE}{value}" if declared else f"{FILE}{value}"
        what = "a file of the node" if declared else "the text itself"
        raise InputError(f"{value}: no file {path} here; write {other} for {what}")
    return path.absolute()


def _plain(value: Any, role: FileRole | None) -> Any:
    """Return a value that stays as it is; outputs get the whole path that they have here."""
    from libtask.parameters import FileRole

    if not isinstance(value, str):
        return value
    if role is FileRole.OUTPUT and value:
        return str(Path(value).expanduser().absolute())
    if role is FileRole.INPUT:
        return value.removeprefix(AT_NODE)
    return value[1:] if value.startswith(2 * FILE) else value


def described(pool: Pool, some: list[Wanted]) -> list[PoolJob]:
    """Describe tasks as jobs of the pool; their files are read for it."""
    named = {name for each in some for name in each.options.get("nodes", ())}
    if named:
        check_nodes(pool, sorted(named))
    return [pool.job(each.app, each.params, **each.options) for each in some]


# ------------------------------------------------------------ submit

FOR_PROGRAMS = NAMES | {"cwd", "sent", "name"}
"""Options of programs only: an application may have parameters of these names."""


class PoolSubmit(click.Command):
    """Prints the application's parameters for `pool submit APP --help`.

    The words after `--` are a program. Without them, options of programs may be parameters
    of the application.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args, words = parted(args)
        ctx.meta[WORDS] = words
        helps = {"-h", "--help"} & set(args)
        if args and not args[0].startswith("-") and helps:
            say(usage(args[0]).replace("hetctl submit", "hetctl pool submit"))
            ctx.exit()
        if not self._has_app(ctx, args):
            return super().parse_args(ctx, args)
        params = self.params
        self.params = [each for each in params if each.name not in FOR_PROGRAMS]
        try:
            return super().parse_args(ctx, args)
        finally:
            self.params = params

    def _has_app(self, ctx: click.Context, args: list[str]) -> bool:
        """Return whether there is an application among the words."""
        try:
            found, _, _ = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError:
            return False  # parsing reports the error later
        return isinstance(found.get("app"), str)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        app = ctx.params.get("app")
        if app and incomplete.startswith("--"):
            return [*parameters_of(app, incomplete), *found]
        return found


@click.command(
    "submit", cls=PoolSubmit, context_settings={"ignore_unknown_options": True}
)
@click.argument("app", shell_complete=applications, required=False)
@click.argument(
    "rest",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[--PARAMETER VALUE]...",
    shell_complete=files,
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a parameter."
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    shell_complete=complete_nodes,
    help="Run only on this node; given several times, on one of them.",
)
@click.option(
    "--on",
    "resources",
    multiple=True,
    metavar="RESOURCE",
    help="Run only on this resource of a node.",
)
@click.option(
    "--priority", type=Whole(), default=0, help="Priority in the queues of its node."
)
@click.option(
    "--cores", type=CoreCount(), metavar="N|all", help="Processor cores that it needs."
)
@click.option("--memory", type=ByteSize(), metavar="SIZE", help="Memory that it needs.")
@click.option(
    "--time", "time_limit", type=Duration(), help="Time for which it may run."
)
@click.option(
    "--expect",
    type=ExpectedTime(),
    multiple=True,
    callback=distinct,
    help="Time that you expect on a kind, a resource, or a node's: gpu=30s, n1/gpu0=20s.",
)
@click.option(
    "--retries",
    type=click.IntRange(0, MAX_RETRIES),
    help="Times to run it again if it fails.",
)
@click.option(
    "--count",
    type=click.IntRange(1, MOST),
    default=1,
    help="Number of copies to submit.",
)
@click.option(
    "--array",
    type=Array(),
    metavar="INDEXES",
    help="Submit one task per index, e.g. 0-99; {index} in values and names is replaced.",
)
@click.option(
    "--send",
    "sent",
    multiple=True,
    type=click.Path(),
    help="Send this file along: the program finds it in its folder.",
)
@click.option(
    "--cwd",
    default="",
    metavar="FOLDER",
    help="Run the program in this folder, which the node has.  [default: one of its own]",
)
@click.option("--name", default="", help="Name by which its times are recorded.")
@pool_program_options
@click.option("--wait", "waiting", is_flag=True, help="Wait until the tasks end.")
@click.option("--timeout", type=Duration(), help="Wait at most this long, e.g. 90s.")
@pooled
@click.pass_context
def submit_command(
    ctx: click.Context,
    /,
    *,
    app: str | None,
    rest: tuple[str, ...],
    config: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Submit a task of APP, or of a program (-- COMMAND...); the pool chooses the node.

    Parameters of an application are options, as for `hetctl submit`. Its input files are
    sent along: --input plate.npy; @FILE does so for any parameter, and node:PATH names a
    file that the node has itself. Output files are written on the node: `pool get`.

    A program runs in an empty folder of its own on the node, with the files of --send and
    --input, and the environment of the node with the variables of --export and --env.
    """
    settings_of(config)  # a missing package or file is reported first
    given |= {"as_json": as_json}
    words = ctx.meta[WORDS]
    if app is None:
        return _submit_program(_typed(words, rest, given), config, given)
    if app.startswith("-"):
        raise no_option(app, words, "pool submit")
    if words:
        raise click.UsageError(f"either the application {app}, or a program after --")
    _refuse_script(app)
    texts = _texts(app, rest, given["settings"])
    tasks = [
        wanted(app, filled(texts, each), _options(given), text=True)
        for each in _variants(given["array"])
    ]
    with open_pool(config) as pool:
        jobs = described(pool, tasks * given["count"])
        return _submit(pool, jobs, "", given)


def _refuse_script(name: str) -> None:
    if is_script(name):
        raise click.UsageError(
            f"{name}: send a script along: hetctl pool submit --send {name} -- sh {name}"
        )


def _variants(array: tuple[list[int], int] | None) -> list[dict[str, Any]]:
    """Return the value of `{index}` for each task; without an array, one empty variant."""
    if array is None:
        return [{}]
    indexes, at_once = array
    if at_once:
        raise click.UsageError("--array: a pool has no limit of tasks at once (%)")
    if len(indexes) > MOST:
        raise click.UsageError(f"--array: at most {MOST} tasks in a batch")
    return [{"index": each} for each in indexes]


# ------------------------------------------------------------ programs


def _typed(
    words: tuple[str, ...], rest: tuple[str, ...], given: dict[str, Any]
) -> Program:
    """Read a program from the command line."""
    if rest:
        raise no_option(rest[0], words, "pool submit")
    if not words and not any(given[f"on_{kind}"] for kind in KINDS):
        raise click.UsageError("nothing to submit: give APP, or -- COMMAND...")
    if given["settings"]:
        raise click.UsageError("--set is for applications")
    if given["cwd"] and given["sent"]:
        raise click.UsageError(
            "--send is for the folder that the program gets; that of --cwd has its files"
        )
    return Program(words, given)


def _submit_program(program: Program, config: str | None, given: dict[str, Any]) -> int:
    variants = _variants(given["array"])
    with open_pool(config) as pool:
        command = program.elsewhere(_kinds_for(pool, given["resources"]))
        tasks = [
            _program_task(variant_of(command, each), each, given) for each in variants
        ]
        jobs = described(pool, tasks * given["count"])
        return _submit(pool, jobs, "", given)


def _kinds_for(pool: Pool, given: tuple[str, ...]) -> list[str]:
    """Return the kinds of the resources that the user named, on all nodes; none: the CPU."""
    if not given:
        return ["cpu"]
    kinds = {slot.resource: slot.kind for node in pool.nodes() for slot in node.slots}
    return able_kinds(kinds, _words_of(given))


def _program_task(
    command: Command, variant: dict[str, Any], given: dict[str, Any]
) -> Wanted:
    """Return a program as a task to submit; the file of its standard input is sent along."""
    from hetpool.client.commands import parameters_of
    from hetpool.client.pool import Input

    params = parameters_of(command)
    source = filled(given["input"], variant)
    if source.startswith(AT_NODE):
        params["input"] = source.removeprefix(AT_NODE)
    elif source:
        path = Path(source).expanduser()
        if not path.is_file():
            raise InputError(f"--input: no file {path} here; write {AT_NODE}{source}")
        params["input"] = Input(path.absolute())
    cwd = given["cwd"] and str(Path(given["cwd"]).expanduser().absolute())
    return Wanted(
        COMMAND,
        params,
        _options(given)
        | ({"cwd": cwd} if cwd else {})
        | {"files": tuple(given["sent"])},
    )


def _words_of(texts: tuple[str, ...]) -> list[str]:
    return [name.strip() for text in texts for name in text.split(",")]


def _texts(
    app: str, rest: tuple[str, ...], settings: tuple[str, ...]
) -> dict[str, str]:
    from libtask.apps import resolve
    from libtask.parameters import parameters

    known = parameters(resolve(app)).values()
    flags = {each.name for each in known if each.type is bool}
    return natural(rest, flags) | assignments(settings)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that differ from the defaults, as `Pool.submit` names them."""
    export = export_of(given)
    values = {
        "priority": given["priority"],
        "nodes": tuple(given["nodes"]),
        "resources": tuple(_words_of(given["resources"])),
        "env": dict(export.variables),
        "export": export.names if export.names != "none" else "",
        "cores": given["cores"],
        "memory_bytes": given["memory"],
        "time_limit_s": given["time_limit"],
        "seconds": given["expect"],
        "retries": given["retries"],
    }
    return {name: value for name, value in values.items() if value}


def _submit(
    pool: Pool, jobs: list[PoolJob], planner: str, given: dict[str, Any]
) -> int:
    """Submit jobs, report them, and wait if an option says so."""
    plan, tasks = pool.batch(jobs, planner=planner)
    names = [task.id for task in tasks]
    waits = given["waiting"] or given["timeout"] is not None
    if not given["as_json"]:
        _report(tasks, plan)
    elif not waits:
        document = {"format": "hetctl/pool-submitted-1", "jobs": names}
        emit(document | {"makespan_s": plan.makespan or None})
    if not waits:
        return 0
    from hetctl.pool.tasks import wait_for

    wait = (pool, names, given["timeout"])
    return wait_for(*wait, as_json=given["as_json"], own=tasks)


def _report(tasks: list[PoolTask], plan: PoolPlan) -> None:
    from hetctl.pool.gathering import SHORT

    if len(tasks) == 1:
        node = plan.entries[0].node if plan.entries else ""
        where = f", placed on {node}" if node else ", which waits for a node"
        say(f"task {tasks[0].id[:SHORT]} submitted{where}")
    else:
        end = (
            f", planned to end in {readable_duration(plan.makespan)}"
            if plan.makespan
            else ""
        )
        say(f"{len(tasks)} tasks submitted{end}")
    for note in plan.notes:
        say(f"hetctl: {one_line_of(note)}", err=True)


def one_line_of(text: str) -> str:
    """Return a text without line breaks."""
    return " ".join(text.split())


# ------------------------------------------------------------ batch, plan


class BatchTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[task]]` table of a batch for a pool."""

    app: str
    params: dict[str, Any] = {}
    sweep: dict[str, list[Any]] = {}
    """Values of parameters, combined in all ways."""
    zip: dict[str, list[Any]] = {}
    """Values of parameters, side by side."""
    count: int = 1
    priority: int = 0
    on: list[str] = []
    """Allowed resources of a node; empty: any."""
    nodes: list[str] = []
    """Allowed nodes; empty: any."""
    seconds: dict[str, float] = {}
    """Expected times, by resource, NODE/RESOURCE or kind; empty: the nodes estimate them."""
    cores: int | None = None
    retries: int | None = None


class BatchDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch file."""

    task: list[BatchTask]


planner_option = click.option(
    "--planner", default="", help="Planner of this batch.  [default: the pool's]"
)


@click.command("batch")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@planner_option
@click.option("--wait", "waiting", is_flag=True, help="Wait until the tasks end.")
@click.option("--timeout", type=Duration(), help="Wait at most this long, e.g. 90s.")
@pooled
def batch_command(*, file: Path, planner: str, config: str | None, **given: Any) -> int:
    """Submit the tasks of FILE, a TOML list; they are planned together.

    \b
    [[task]]
    app = "correlation"
    params = { dtype = "float64" }
    zip = { input = ["first.npy", "second.npy"] }

    The tables are like those of hetctl batch, with app, params, sweep, zip, count,
    priority, on, cores, retries; nodes lists the nodes that may run a task, and seconds
    the times that are expected of it: seconds = { gpu0 = 2.5, "n1/cpu" = 9.0 }. Files
    are those of `pool submit`.
    """  # noqa: D301  click reads the backspaces
    settings_of(config)
    check_planner(planner)
    some = read_batch(file)
    with open_pool(config) as pool:
        return _submit(pool, described(pool, some), planner, given)


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@planner_option
@pooled
def plan_command(
    *, file: Path, planner: str, config: str | None, as_json: bool
) -> None:
    """Plan the tasks of FILE, as for `pool batch`, and submit nothing.

    With --json it prints what `hetsim plan` prints, and tasks are numbered from 0.
    """
    settings_of(config)
    check_planner(planner)
    some = read_batch(file)
    with open_pool(config) as pool:
        jobs = described(pool, some)
        plan = pool.plan(jobs, planner=planner)
    numbers = {job.id: number for number, job in enumerate(jobs)}
    if as_json:
        emit(plan_document(plan, numbers))
        return
    _print_plan(plan, jobs, numbers)


def check_planner(name: str) -> None:
    """Check the name of a planner.

    Raises:
        InputError: there is no such planner.

    """
    from hetpool.setup.config import PLANNERS

    if name and name not in PLANNERS:
        hint = suggestion(name, PLANNERS)
        raise InputError(
            f"--planner: no planner {name!r}{hint}; there are: {', '.join(PLANNERS)}"
        )


def read_batch(path: Path) -> list[Wanted]:
    """Read and check a batch file.

    Raises:
        InputError: unreadable, not TOML, or wrong; says where.

    """
    try:
        text = read_whole(path, LARGEST_TEXT)
        document = decoded(tomllib.loads, text.decode())
        check_numbers(document)
        _check_keys(document.get("task"))
        tables = convert(document, BatchDocument).task
        found = [
            each
            for number, table_ in enumerate(tables)
            for each in _tasks_of(table_, f"task[{number}]")
        ]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (ValueError, InputError) as error:
        raise InputError(f"{path}: {one_line(error)}") from error
    if not found:
        raise InputError(f"{path}: no tasks")
    if len(found) > MOST:
        raise InputError(f"{path}: {len(found)} tasks, at most {MOST} in a batch")
    return found


def _check_keys(tables: object) -> None:
    """Refuse what only the batch files of one node may contain."""
    known = BatchTask.__struct_fields__
    for number, each in enumerate(tables if isinstance(tables, list) else []):
        for key in each if isinstance(each, dict) else ():
            if key == "command":
                raise InputError(
                    f"task[{number}].command: programs in batch files are for one node;"
                    " for a pool: hetctl pool submit --array INDEXES -- COMMAND"
                )
            if key not in known:
                raise InputError(
                    f"task[{number}].{key}: unknown key{suggestion(key, known)};"
                    f" a pool knows {', '.join(known)}"
                )


def _tasks_of(one: BatchTask, where: str) -> list[Wanted]:
    if not 1 <= one.count <= MOST:
        raise InputError(f"{where}.count: expected 1 to {MOST}")
    options = {
        "priority": one.priority,
        "resources": tuple(one.on),
        "nodes": tuple(one.nodes),
        "seconds": one.seconds,
        "cores": one.cores,
        "retries": one.retries,
    }
    kept = {name: value for name, value in options.items() if value}
    try:
        variants = combinations(one.sweep, one.zip)
        if len(variants) * one.count > MOST:
            raise InputError(f"at most {MOST} tasks in a batch")  # noqa: TRY301  its place is added below
        tasks = [
            wanted(one.app, filled(one.params, each) | each, kept) for each in variants
        ]
    except (ValueError, InputError) as error:
        raise InputError(f"{where}: {one_line(error)}") from error
    return [task for task in tasks for _ in range(one.count)]


def plan_document(plan: PoolPlan, numbers: dict[str, int]) -> PoolPlanned:
    """Return the document of a plan; `numbers`: positions of the jobs in the batch."""
    return {
        "format": "hetsim/plan-1",
        "planner": plan.planner,
        "makespan": plan.makespan,
        "lower_bound": plan.bound,
        "jobs": [
            {
                "id": str(numbers[each.job]),
                "accelerator": f"{each.node}/{each.resource}",
                "order": each.order,
                "transfer": [
                    {"start": start, "finish": finish, "rate": rate}
                    for start, finish, rate in each.pieces
                ],
                "start": each.start,
                "finish": each.finish,
            }
            for each in plan.entries
        ],
        "notes": list(plan.notes),
    }


def _print_plan(plan: PoolPlan, jobs: list[PoolJob], numbers: dict[str, int]) -> None:
    apps = {job.id: job.app for job in jobs}
    say(
        f"planner {plan.planner}: {len(plan.entries)} tasks end in "
        f"{readable_duration(plan.makespan)}; no plan takes less than "
        f"{readable_duration(plan.bound)}"
    )
    rows = [
        (
            str(numbers[each.job]),
            apps[each.job],
            f"{each.node}/{each.resource}",
            str(each.order),
            readable_duration(each.pieces[-1][1]) if each.pieces else "-",
            readable_duration(each.start),
            readable_duration(each.finish),
        )
        for each in sorted(plan.entries, key=lambda each: each.order)
    ]
    table(PLAN_HEADINGS, rows)
    for note in plan.notes:
        say(f"hetctl: {one_line_of(note)}", err=True)
