"""Stand-alone programs: `libtask.main(Heat)` at the end of a user's file.

The command line comes from the fields of the dataclass. If a daemon answers, the program
becomes a worker that submits its own task and executes it; else it runs the task
without a daemon. Exit status: 0 done, 1 failed, 2 bad usage or input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from libtask.apps import Options, describe, name_of
from libtask.errors import DaemonUnreachableError, HetError, InputError, TaskFailedError
from libtask.parameters import build, parameters
from libtask.wording import type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from libtask.client.connection import Connection
    from libtask.messages import TaskSpec
    from libtask.parameters import Parameter
    from libtask.task import Task

INTERRUPTED = 128 + signal.SIGINT


def main(app_class: type[Task], arguments: Sequence[str] | None = None) -> None:
    """Run one task with parameters of the command line; print its result as JSON.

    Raises:
        SystemExit: the task failed, was refused or cancelled; has the exit status.

    """
    options = _parser(app_class).parse_args(arguments)
    try:
        result = _run(app_class, options)
    except HetError as error:
        sys.stderr.write(f"{_program()}: error: {error}\n")
        raise SystemExit(2 if isinstance(error, InputError) else 1) from None
    except KeyboardInterrupt:
        sys.stderr.write(f"{_program()}: interrupted\n")
        raise SystemExit(INTERRUPTED) from None
    sys.stdout.write(_as_json(result) + "\n")


def _as_json(result: Any) -> str:
    """Show a result as `hetctl result` does: pickled values by type and size."""
    from libtask.results import told

    return json.dumps(json.loads(msgspec.json.encode(told(result))))


def _program() -> str:
    return Path(sys.argv[0]).name or "python"


# ---------------------------------------------------------------- command line


def _parser(app_class: type[Task]) -> argparse.ArgumentParser:
    text = (app_class.__doc__ or "").strip().partition("\n")[0]
    # A parameter takes precedence over an option with the same name.
    parser = argparse.ArgumentParser(description=text, conflict_handler="resolve")
    parser.add_argument("--device", metavar="NAME", help="resource to run on")
    parser.add_argument(
        "--socket", type=Path, metavar="PATH", help="the daemon's socket"
    )
    parser.add_argument("--local", action="store_true", help="use no daemon")
    for parameter in parameters(app_class).values():
        _add(parser, parameter)
    return parser


def _add(parser: argparse.ArgumentParser, parameter: Parameter) -> None:
    default = "required" if parameter.required else f"default: {parameter.default}"
    kind = type_name(parameter.type)
    # The values stay text here; `build` checks them, as for every other client.
    parser.add_argument(
        f"--{parameter.name.replace('_', '-')}",
        dest=f"parameter {parameter.name}",
        metavar=kind.upper() if kind.isidentifier() else "VALUE",
        **_flag(parameter),
        help=f"{kind} ({default})".replace("%", "%%"),
    )


def _flag(parameter: Parameter) -> dict[str, Any]:
    """Make `--loud` equivalent to `--loud true`."""
    return {"nargs": "?", "const": "true"} if parameter.type is bool else {}


def _task(app_class: type[Task], options: argparse.Namespace) -> Task:
    given = {
        name: value
        for name in parameters(app_class)
        if (value := getattr(options, f"parameter {name}")) is not None
    }
    return build(app_class, given, text=True)


def _run(app_class: type[Task], options: argparse.Namespace) -> Any:
    task = _task(app_class, options)
    device = getattr(options, "device", None)
    if not getattr(options, "local", False):
        socket = _daemon(getattr(options, "socket", None))
        if socket is not None:
            return run_with_daemon(task, socket, device)
    from libtask.program.local_run import run_alone

    return run_alone(task, device)


def _daemon(socket: Path | None) -> Path | None:
    """Return the socket of a daemon that answers; None: there is none.

    Raises:
        DaemonUnreachableError: no daemon answers at the socket that the user named.

    """
    from libtask.endpoint import default_socket, probe

    path = socket or default_socket()
    try:
        probe(path)
    except DaemonUnreachableError:
        if socket is not None or "HETD_SOCKET" in os.environ:
            raise
        return None
    return path


# ---------------------------------------------------------------- with a daemon


def run_with_daemon(task: Task, socket: Path, device: str | None) -> Any:
    """Submit a task, execute it as its worker and return its result.

    Raises:
        TaskFailedError: the task failed.
        KeyboardInterrupt: the task was cancelled.
        HetError: the daemon refused it.

    """
    from libtask.messages import Aborted, Failed, Finished
    from libtask.worker.options import WorkerOptions
    from libtask.worker.worker import Worker

    spec = describe(
        task, name_of(type(task)), Options(resources=(device,) if device else ())
    )
    name = f"own-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    worker = Worker(WorkerOptions(name, socket, own=True), lambda _app: type(task))
    with contextlib.closing(worker):
        worker.join()
        with _Submission(socket, spec, name):
            worker.run()
    match worker.ended:
        case Finished(result=result):
            return result
        case Failed(error=error, trace=trace, code=code):
            if code != InputError.code:  # an input error needs no traceback
                sys.stderr.write(trace)
            raise TaskFailedError(error)
        case Aborted():
            raise KeyboardInterrupt
        case None:
            raise TaskFailedError("the daemon released the task before its end")


class _Submission:
    """The submitted task; Ctrl-C cancels it, and a second Ctrl-C ends the program."""

    def __init__(self, socket: Path, spec: TaskSpec, worker: str) -> None:
        from libtask.client.connection import Connection
        from libtask.messages import Submit

        self._connection: Connection = Connection(
            socket, lambda _change: None, lambda _lost: None
        )
        key = uuid.uuid4().hex
        submit = Submit(request=0, tasks=[spec], key=key, worker=worker)
        try:
            self._ids = self._connection.ask(submit).result().ids
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGINT, self._cancel)

    def __exit__(self, *_error: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._connection.close()

    def _cancel(self, _number: int, _frame: object) -> None:
        from libtask.messages import Control

        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._connection.ask(Control(request=0, verb="cancel", ids=self._ids))
