"""`hetctl submit` and `hetctl batch`: tasks of applications, programs, scripts and TOML files."""

from __future__ import annotations

import dataclasses
import inspect
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetctl.completing import applications, files, parameters_of, resources
from hetctl.completing import selectors as selectors_there
from hetctl.options import assignments, connect, distinct, submitting
from hetctl.output import emit, say, table
from hetctl.submission.conditions import conditions, dependencies
from hetctl.submission.interpreter import OPTION, become_chosen, refused
from hetctl.submission.programs import (
    KINDS,
    NAMES,
    Environments,
    Program,
    able_kinds,
    attachments_of,
    environment_options,
    export_of,
    program_options,
    read_script,
    resources_in,
    unknown_place,
    variant_of,
)
from hetctl.submission.scripts import (
    content_of,
    has_foreign_options,
    is_script,
    options_in,
)
from hetctl.submission.variants import MOST, filled, indexes, limited, member
from hetctl.units import (
    Beginning,
    ByteSize,
    CoreCount,
    Duration,
    ExpectedTime,
    ParsedText,
    Whole,
)
from hetctl.views.explanation import (
    PROSPECT_HEADINGS,
    prospect_documents,
    prospect_rows,
)
from hetctl.views.places import emulated_names
from hetctl.waiting import Manner, ranges, wait_for
from libtask.documents import MAX_RETRIES
from libtask.errors import DaemonUnreachableError, HetError, InputError, NotFoundError
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hetctl.documents.tasks import Submitted
    from libtask.apps import Options
    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskSpec
    from libtask.task import Task


# ------------------------------------------------------------ submit


def parse_array(text: str) -> tuple[list[int], int]:
    """Parse the indexes of an array, and the number of its tasks that run at once; 0: any.

    Raises:
        ValueError: not of this form; the text shows it.

    """
    listed, at_once = limited(text)
    return indexes(listed), at_once


class Array(ParsedText):
    """The indexes of an array, and the number of its tasks that run at once; 0: any."""

    name = "indexes"
    parse = staticmethod(parse_array)


WORDS = "hetctl.words"
"""Key in the context's `meta` of the words after `--`."""


class Submit(click.Command):
    """Prints the application's parameters for `submit APP --help`.

    The words after `--` belong to a program or a script. An application may have
    parameters with the names of options that are for programs only; the application's
    parameters then take precedence.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args, words = parted(args)
        if not ctx.resilient_parsing:
            args = become_chosen(args)
        ctx.meta[WORDS] = words
        helps = {"-h", "--help"} & set(args)
        if args and not args[0].startswith("-") and helps and not is_script(args[0]):
            say(usage(args[0]))
            ctx.exit()
        app = self._app_in(ctx, args)
        if app is None or is_script(app):
            return super().parse_args(ctx, args)
        params = self.params
        self.params = [each for each in params if each.name not in NAMES]
        try:
            return super().parse_args(ctx, args)
        finally:
            self.params = params

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the application's parameters too, and files as their values."""
        found = super().shell_complete(ctx, incomplete)
        app = ctx.params.get("app")
        if app and incomplete.startswith("--"):
            return [*parameters_of(app, incomplete), *found]
        return found

    def _app_in(self, ctx: click.Context, args: list[str]) -> str | None:
        """Return the application among the words; None: there is none."""
        try:
            found, _, _ = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError:
            return None  # parsing reports the error later
        app = found.get("app")
        return app if isinstance(app, str) else None


def parted(args: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Separate hetctl's options from the words after `--`."""
    if "--" not in args:
        return args, ()
    place = args.index("--")
    return args[:place], tuple(args[place + 1 :])


def no_option(
    word: str, words: tuple[str, ...], command: str = "submit"
) -> click.UsageError:
    """Return the error of an unknown option; `words` are those of a program, if any."""
    advice = f"see hetctl {command} --help" if words else "write a program after --"
    return click.UsageError(f"no option {word!r}; {advice}")


def _job_name(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Check the name of a job."""
    from libtask.apps import check_job

    return check_job(value)


job_option = click.option(
    "--job",
    default="",
    metavar="NAME",
    callback=_job_name,
    help="Name of the job that the tasks belong to; job:NAME selects them.",
)


ONE_GPU = ("1", "gpu", "gpu:1")
"""Values of `--gpus` and of `--gres`, as other queueing systems have them, for one GPU."""


def _one_gpu(_context: click.Context, parameter: click.Parameter, value: Any) -> bool:
    """Return whether a GPU is wanted; refuse more than one."""
    if value is None:
        return False
    if value not in ONE_GPU:
        raise click.UsageError(
            f"{parameter.opts[0]} {value}: a task gets one accelerator at most; "
            "--on gpu gives it any GPU"
        )
    return True


SCHEDULING = [
    click.option(
        "--priority",
        type=Whole(),
        default=0,
        help="Priority; higher ones run first within a queue.",
    ),
    click.option(
        "--after",
        multiple=True,
        metavar="[CONDITION:]SELECTOR",
        shell_complete=selectors_there,
        help="Start after these tasks have completed; any:SELECTOR: have ended in any "
        "way; notok:SELECTOR: have ended and not all completed.",
    ),
    click.option("--hold", is_flag=True, help="Hold until `hetctl release`."),
    click.option(
        "--on",
        "resources",
        multiple=True,
        metavar="RESOURCE",
        shell_complete=resources,
        help="Run only on this resource, or on any resource of a kind such as gpu; "
        "given several times, on one of them.",
    ),
    click.option(
        "--gpus",
        metavar="1",
        callback=_one_gpu,
        help="The same as --on gpu; a task gets one accelerator.",
    ),
    click.option(
        "--gres",
        metavar="gpu[:1]",
        callback=_one_gpu,
        help="The same, as Slurm has it.",
    ),
    click.option(
        "--deadline",
        type=Duration(),
        help="Deadline, as a time after submission, e.g. 5s.",
    ),
    click.option(
        "--overrun",
        type=click.Choice(["continue", "stop"]),
        default="continue",
        help="Action at the deadline.  [default: continue]",
    ),
    click.option(
        "--cores",
        type=CoreCount(),
        metavar="N|all",
        help="Processor cores that the task needs; it waits until they are free.",
    ),
    click.option(
        "--memory",
        type=ByteSize(),
        metavar="SIZE",
        help="Memory that it needs: 4G.",
    ),
    click.option(
        "--device-memory",
        type=ByteSize(),
        metavar="SIZE",
        help="Memory that it needs of the device.",
    ),
    click.option(
        "--time",
        "time_limit",
        type=Duration(),
        help="Time for which the task may run, e.g. 30m; it is then cancelled.",
    ),
    click.option(
        "--expect",
        type=ExpectedTime(),
        multiple=True,
        callback=distinct,
        help="Time that you expect on a kind or resource: gpu=30s; what was measured counts more.",
    ),
    click.option(
        "--retries",
        type=click.IntRange(0, MAX_RETRIES),
        help="Times to run it again if it fails, after pauses of 1 s, 2 s, 4 s, ... 1 min.",
    ),
    click.option(
        "--begin",
        type=Beginning(),
        help="Time from which the task may start: 22:00, +2h, 2026-01-02T03:04.",
    ),
    click.option("--name", default="", help="Label to select the task by."),
    job_option,
]
"""The scheduling options, in the order of the help."""


def scheduled(function: Any) -> Any:
    """Add the scheduling options."""
    for option in reversed(SCHEDULING):
        function = option(function)
    return function


@click.command("submit", cls=Submit, context_settings={"ignore_unknown_options": True})
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
@scheduled
@click.option("--strip", type=Whole(1), help="Iterations between checkpoints.")
@click.option(
    "--count",
    type=click.IntRange(1, MOST),
    default=1,
    help="Number of copies to submit.",
)
@click.option(
    "--array",
    type=Array(),
    metavar="INDEXES[%N]",
    help="Submit one task per index, e.g. 0-99; {index} in values and names is replaced. "
    "0-999%8: at most 8 of them run at once.",
)
@click.option(
    OPTION,
    metavar="PATH",
    callback=refused,
    expose_value=False,
    help="Interpreter of the application, which has hetd installed.  [default: hetctl's]",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check the task and show when it would be done on each resource; submit nothing.",
)
@program_options
@submitting
@click.pass_context
def submit_command(
    ctx: click.Context, /, app: str | None, rest: tuple[str, ...], **given: Any
) -> int:
    """Submit a task of APP, a program (-- COMMAND...), or a script (FILE, or - for standard input).

    APP is an installed application, or path/to/file.py:Class.
    Parameters of the application are options: hetctl submit heat --n 4096 --steps 100.
    Use --set name=value for a parameter that has the name of an option below.
    hetctl submit heat --help lists the parameters. The tasks of an array share a name,
    and @NAME selects them all: hetctl cancel @NAME.
    """
    if app is None:
        return _submit_program(_typed(ctx, rest), given)
    if app.startswith("-") and app != "-":
        raise no_option(app, ctx.meta[WORDS])
    if is_script(app):
        return _submit_script(ctx, app, rest)
    if ctx.meta[WORDS]:
        raise click.UsageError(f"either the application {app}, or a program after --")
    _explain_missing(app)
    texts = _texts(app, rest, given["settings"])
    variants = _variants(given)
    name = given["name"] or (_own_name(app) if given["array"] else "")
    tasks = [(each, _task(app, filled(texts, each))) for each in variants]
    conditions(given["after"])
    with connect(given["socket"], start=given["start"]) as client:
        options = _options(client, given)
        specs = [
            describe_one(app, task, options, member(name, each, each.get("index")))
            for each, task in tasks
        ]
        if given["dry_run"]:
            return _estimate(client, specs, given)
        handles = client.submit_specs(
            [spec for spec in specs for _ in range(given["count"])], export_of(given)
        )
        given["label"] = filled(name, {"index": "*"}) if given["array"] else None
        return finish(client, handles, given)


# ------------------------------------------------------------ dry run


def _estimate(client: Client, specs: list[TaskSpec], given: dict[str, Any]) -> int:
    """Show the outlook of a task, or of the first of several."""
    if given["waiting"] or given["follow"] or given["timeout"] is not None:
        raise click.UsageError("--dry-run submits nothing to wait for")
    found = client.estimate_spec(specs[0])
    count, emulated = len(specs) * given["count"], emulated_names(client)
    if given["as_json"]:
        emit(
            {
                "format": "hetctl/estimate-1",
                "tasks": count,
                "policy": found.policy,
                "objective": found.objective,
                "prospects": prospect_documents(found.prospects, emulated),
            }
        )
        return 0
    of = "the task" if count == 1 else f"the first of {count} tasks"
    say(f"nothing submitted; {of} would be done, behind all that waits now:\n")
    table(PROSPECT_HEADINGS, prospect_rows(found.prospects, emulated))
    return 0


# ------------------------------------------------------------ programs


def _typed(ctx: click.Context, rest: tuple[str, ...]) -> Program:
    """Read a program from the command line."""
    words = ctx.meta[WORDS]
    if rest:
        raise no_option(rest[0], words)
    if not words and not any(ctx.params[f"on_{kind}"] for kind in KINDS):
        raise click.UsageError(
            "nothing to submit: give APP, a script, or -- COMMAND..."
        )
    return Program(words, ctx.params)


def _submit_script(ctx: click.Context, app: str, rest: tuple[str, ...]) -> int:
    content, words = content_of(app), ctx.meta[WORDS]
    name = "standard input" if app == "-" else app
    given = options_in(name, content, ctx.command, ctx)
    if has_foreign_options(content):
        say(f"hetctl: {name}: #SBATCH lines are not read; write #HET", err=True)
    script = read_script(app, content, (*rest, *words))
    return _submit_program(dataclasses.replace(script, given=given), given)


def _submit_program(program: Program, given: dict[str, Any]) -> int:
    if given["settings"] or given["strip"]:
        raise click.UsageError("--set and --strip are for applications")
    variants = _variants(given)
    name = given["name"] or (
        f"{program.label}-{secrets.token_hex(3)}" if given["array"] else ""
    )
    conditions(given["after"])
    with connect(given["socket"], start=given["start"]) as client:
        specs = program_specs(client, program, given, variants, name)
        if given["dry_run"]:
            return _estimate(client, specs, given)
        handles = client.submit_specs(
            [spec for spec in specs for _ in range(given["count"])]
        )
        given["label"] = filled(name, {"index": "*"}) if given["array"] else None
        return finish(client, handles, given)


def program_specs(
    client: Client,
    program: Program,
    given: dict[str, Any],
    variants: list[dict[str, Any]],
    name: str,
) -> list[TaskSpec]:
    """Describe a program, once for each member of its array."""
    options = _options(client, given)
    kinds = {each.spec.name: each.spec.kind for each in client.devices()}
    command = program.command(client, able_kinds(kinds, options.resources))
    return [
        describe_one(
            "command",
            variant_of(command, each),
            options,
            member(name, each, each.get("index")),
        )
        for each in variants
    ]


def _explain_missing(app: str) -> None:
    """Raise the error for an unknown application, with a hint if it is a program."""
    from libtask.apps import resolve

    try:
        resolve(app)
    except NotFoundError as error:
        if shutil.which(app):
            hint = f"; to run the program: hetctl submit -- {app} ..."
            raise NotFoundError(f"{error}{hint}") from error
        if "/" in app or Path(app).suffix or Path(app).is_file():
            raise _not_a_script(app) from error
        raise
    except InputError as error:
        if app.endswith(".py") and Path(app).is_file():
            hint = f"; to run it as a program: hetctl submit -- python {app}"
            raise InputError(f"{error}{hint}") from error
        raise


def _not_a_script(path: str) -> InputError:
    """Return the error for a path that is neither a script nor an application."""
    try:
        with Path(path).open("rb"):
            text = "does not begin with #! and the interpreter, such as #!/bin/sh"
    except FileNotFoundError:
        return NotFoundError(f"no file {path}, nor an application")
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
    return InputError(f"{path}: {text}")


def finish(client: Client, handles: list[TaskHandle], given: dict[str, Any]) -> int:
    """Report the submitted tasks; wait for them if an option says so."""
    waits = given["waiting"] or given["follow"] or given["timeout"] is not None
    if not given["as_json"]:
        label = given.get("label")
        say(summary(handles) + (f"; select them as {_shown(label)}" if label else ""))
    elif not waits:
        emit(submitted(handles, given.get("label")))
    if not waits:
        if not given["as_json"] and len(handles) == 1:
            _report_waiting(client, handles[0].id)
        return 0
    manner = Manner(given["timeout"], given["follow"], given["as_json"])
    return wait_for(client, handles, manner)


def _report_waiting(client: Client, task: int) -> None:
    """Report why a task that was just submitted does not start immediately."""
    try:
        found = client.explain(task)
    except HetError:
        return  # the submission succeeded; the explanation is optional
    if found.state in ("queued", "waiting", "held") and found.why:
        say(one_line(f"task {task} {found.why}"), err=True)


def _shown(label: str) -> str:
    """Format the selector of an array for a shell."""
    return f"'@{label}'" if "*" in label else f"@{label}"


def submitted(handles: list[TaskHandle], label: str | None) -> Submitted:
    """Return the document of submitted tasks; `label`: the common name of an array."""
    ids = [handle.id for handle in handles]
    return {"format": "hetctl/submitted-1", "ids": ids, "name": label}


def summary(handles: list[TaskHandle]) -> str:
    """Name the submitted tasks; the ids are in the form of a selector."""
    if not handles:
        return "no tasks submitted"
    if len(handles) == 1:
        return f"task {handles[0].id} submitted"
    return f"tasks {','.join(ranges([handle.id for handle in handles]))} submitted"


def usage(app: str) -> str:
    """Describe an application and its parameters."""
    from libtask.apps import resolve
    from libtask.parameters import parameters

    app_class = resolve(app)
    story = inspect.cleandoc(app_class.__doc__ or "")
    if story.startswith(f"{app_class.__name__}("):
        story = ""  # generated by dataclass for a class without a docstring
    options = [
        f"  --{each.name.replace('_', '-')}  {each}".replace(f"  {each.name}: ", "  ")
        for each in parameters(app_class).values()
    ]
    head = f"Usage: hetctl submit {app} [--PARAMETER VALUE]... [OPTIONS]"
    tail = "Options of every task: hetctl submit --help"
    parts = (head, story, "\n".join(["Parameters:", *options]), tail)
    return "\n\n".join(part for part in parts if part)


def _variants(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the value of `{index}` for each task; without an array, one empty variant."""
    if given["array"] is None:
        return [{}]
    listed, _ = given["array"]
    count = len(listed) * given["count"]
    if count > MOST:
        raise click.UsageError(f"--array, --count: {count} tasks; {MOST} are the limit")
    return [{"index": each} for each in listed]


def _own_name(app: str) -> str:
    """Generate a name for an array, to select its tasks by."""
    from libtask.apps import short_name

    return f"{short_name(app).rpartition(':')[2]}-{secrets.token_hex(3)}"


def _texts(
    app: str, rest: tuple[str, ...], settings: tuple[str, ...]
) -> dict[str, str]:
    """Return the parameters' values as the user wrote them."""
    from libtask.apps import resolve
    from libtask.parameters import parameters

    known = parameters(resolve(app)).values()
    flags = {each.name for each in known if each.type is bool}
    return natural(rest, flags) | assignments(settings)


def _task(app: str, texts: dict[str, str]) -> Task:
    from libtask.apps import build, resolve

    return build(resolve(app), texts, text=True)


def natural(words: tuple[str, ...], flags: set[str]) -> dict[str, str]:
    """Parse `--n 4096 --edge=fixed --wide --no-wide`; `flags` need no value.

    Raises:
        click.UsageError: a word is not an option, or an option has no value.

    """
    found: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--") or word == "--":
            raise click.UsageError(
                f"unexpected argument {word!r}; parameters are --name value"
            )
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if equals:
            found[name] = value
        elif left and not left[0].startswith("--"):
            found[name] = left.pop(0)
        else:
            found |= _flag(name, flags)
    return found


def _flag(name: str, flags: set[str]) -> dict[str, str]:
    if name in flags:
        return {name: "true"}
    if name.removeprefix("no_") in flags:
        return {name.removeprefix("no_"): "false"}
    raise click.UsageError(f"option --{name.replace('_', '-')} needs a value")


def describe_one(app: str, task: Task, options: Options, name: str) -> TaskSpec:
    """Describe a task under the given name."""
    from libtask.apps import describe

    return describe(task, app, dataclasses.replace(options, name=name))


def _options(client: Client, given: dict[str, Any]) -> Options:
    from libtask.apps import Options

    words = [name.strip() for text in given["resources"] for name in text.split(",")]
    words += ["gpu"] * (given["gpus"] or given["gres"])
    resources = _expanded(client, words)
    _, at_once = given.get("array") or ((), 0)
    return Options(
        priority=given["priority"],
        **dependencies(client, given["after"]),
        hold=given["hold"],
        resources=tuple(resources),
        seconds=_expected(client, given["expect"]),
        strip=given.get("strip"),
        job=given["job"],
        deadline_s=given["deadline"],
        overrun=given["overrun"],
        cores=given["cores"],
        memory_bytes=given["memory"] or 0,
        device_bytes=given["device_memory"] or 0,
        time_limit_s=_time_limit(given["time_limit"]),
        retries=given["retries"],
        begin=given["begin"],
        at_once=at_once,
    )


def _time_limit(seconds: float | None) -> float | None:
    if seconds is not None and seconds <= 0:
        raise click.UsageError("--time: expected a duration above 0")
    return seconds


def _expected(client: Client, seconds: dict[str, float]) -> dict[str, float]:
    """Refuse times of places that the node does not have."""
    if not set(seconds) <= set(KINDS):
        unknown = unknown_place([each.spec.name for each in client.devices()], seconds)
        if unknown:
            raise InputError(f"--expect: {unknown}")
    return seconds


def _expanded(client: Client, words: list[str]) -> list[str]:
    """Replace the name of a kind by its resources."""
    if not set(words) & set(KINDS):
        return words
    kinds = {each.spec.name: each.spec.kind for each in client.devices()}
    try:
        return resources_in(kinds, words)
    except InputError as error:
        raise InputError(f"--on: {error}") from error


# ------------------------------------------------------------ batch


@click.command("batch")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--check", is_flag=True, help="Check the file without submitting anything."
)
@job_option
@environment_options
@submitting
def batch_command(file: Path, *, check: bool, job: str, **given: Any) -> int:
    """Submit the tasks of FILE, a TOML list; - is standard input.

    \b
    [[task]]
    app = "heat"
    name = "first"
    params = { n = 4096, steps = 100 }

    \b
    [[task]]
    app = "correlation"
    after = ["first"]

    \b
    [[task]]
    command = ["make", "-j2"]
    env = { CC = "gcc" }
    output = "log-{id}.txt"

    A table describes a task of an application, or of a program: its words in command,
    variables in env, files in output and error.

    inputs = [{ from = "first", bytes = 1000, parameter = "image" }] passes the result of
    another task as a parameter; parameter and bytes may be left out. job = "NAME" at the
    top names the job of all tasks. after_any and after_notok are as after, for tasks that
    may end in any way, and for tasks that do not all complete.

    Further keys: priority, count, hold, on (resources), strip, deadline ("5s"),
    overrun ("continue" or "stop"), cores, memory, device_memory, time, seconds (expected:
    { gpu = 30 }), retries, begin ("22:00"), at_once (tasks of the table that run at once). A sweep is one task per combination of values,
    zip combines values side by side; {n} in a text is replaced by the value of n:

    \b
    [[task]]
    app = "heat"
    params = { output = "plate-{n}.npy" }
    sweep = { n = [1024, 2048], steps = [100, 1000] }
    """  # noqa: D301  click reads the backspaces
    from hetctl.submission.batchfile import BatchFile
    from libtask.messages import MAX_TASKS

    try:
        opened = connect(given["socket"], start=given["start"])
    except DaemonUnreachableError:
        environments = Environments(None, given["export"], given["variables"])
        # report mistakes in the file first
        specs = BatchFile(file, environments, job=job).read()
        if not check:
            raise
        return _checked(file, len(specs), resources=False, as_json=given["as_json"])
    with opened as client:
        kinds = {each.spec.name: each.spec.kind for each in client.devices()}
        store = None if check else attachments_of(client)
        environments = Environments(store, given["export"], given["variables"])
        batch = BatchFile(file, environments, dict(kinds), job=job)
        specs = batch.read()
        if check or len(specs) > MAX_TASKS:  # several messages, of which one may fail
            batch.ask(client)
        if check:
            return _checked(file, len(specs), resources=True, as_json=given["as_json"])
        try:
            handles = client.submit_specs(specs, export_of(given))
        except InputError:
            batch.ask(client)  # names the table
            raise
        return finish(client, handles, given)


def _checked(file: Path, count: int, *, resources: bool, as_json: bool) -> int:
    if as_json:
        emit(
            {
                "format": "hetctl/batch-check-1",
                "file": str(file),
                "tasks": count,
                "resources_checked": resources,
            }
        )
        return 0
    limit = "" if resources else "; no daemon answers, so resources were not checked"
    say(f"{file}: {count} tasks, no mistakes{limit}")
    return 0
