"""`hetctl wait`, `result`, `logs`: the end of tasks, their results and their output."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hetctl.completing import selectors as selectors_there
from hetctl.options import connect, selectors_argument, shared
from hetctl.output import emit, on_terminal, say
from hetctl.selectors import selected
from hetctl.units import Duration, Whole
from hetctl.waiting import Manner, wait_for
from libtask.errors import InputError, NotFoundError, TaskFailedError
from libtask.messages import ENDED, Segment
from libtask.plaintext import one_line, visible
from libtask.results import MARK, has_pickled, restored, told
from libtask.worker.tasklog import before_running, read_segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetctl.documents.tasks import Result
    from libtask.client.client import Client
    from libtask.messages import TaskInfo


# ------------------------------------------------------------ wait


@click.command("wait")
@selectors_argument
@click.option(
    "--timeout", type=Duration(), help="Wait at most this long, e.g. 90s or 15min."
)
@shared
def wait_command(
    *,
    selectors: tuple[str, ...],
    timeout: float | None,
    socket: Path | None,
    as_json: bool,
) -> int:
    """Wait for tasks to end.

    Exit status: 0 if all completed, 10 if some failed, 11 if some were cancelled or
    dropped, 124 if some had not ended in time.
    """
    with connect(socket) as client:
        handles = client.handles(
            selected(client, selectors, live=True, past_names=True)
        )
        return wait_for(client, handles, Manner(timeout, as_json=as_json))


# ------------------------------------------------------------ result

PICKLES = (".pickle", ".pkl")
NOT_JSON = (InputError, TypeError, ValueError, RecursionError)
"""Errors for a value that cannot be unpickled here, or has no JSON form."""


@click.command("result")
@click.argument("selector", shell_complete=selectors_there)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it to a file: .json, .npy for an array, .pickle for a Python object.",
)
@shared
def result_command(
    *, selector: str, save: Path | None, socket: Path | None, as_json: bool
) -> None:
    """Print the result of a completed task, or save it.

    Of Python objects without a JSON form, and of other users' pickled ones, the type and
    size are printed; --save FILE.pickle writes the object itself.
    """
    with connect(socket) as client:
        ids = selected(client, [selector])
        if len(ids) != 1:
            text = f"selector {selector!r}: expected one task, it selects {len(ids)}"
            raise InputError(text)
        info = client.show(ids[0])
    _demand_completed(info)
    if save is not None:
        _save(info, save)
    if as_json:
        emit(_result_document(info, save))
    elif save is None:
        encoded = msgspec.json.encode(_printable(info), enc_hook=str)
        say(visible(msgspec.json.format(encoded).decode()))
    else:
        say(f"{save}: result of task {info.id} written")
    if not as_json:
        for warning in info.warnings:
            say(one_line(f"hetctl: {warning}"), err=True)


def _result_document(info: TaskInfo, save: Path | None) -> Result:
    return {
        "format": "hetctl/result-1",
        "id": info.id,
        "result": _printable(info),
        "warnings": info.warnings,
        "saved": None if save is None else str(save),
    }


def _demand_completed(info: TaskInfo) -> None:
    if info.state == "completed":
        return
    reason = f": {info.reason}" if info.reason else ""
    what = "it failed" if info.state == "failed" else f"it is {info.state}"
    raise TaskFailedError(f"task {info.id} has no result: {what}{reason}")


def _save(info: TaskInfo, path: Path) -> None:
    """Write a result in the format that the file's suffix names."""
    if path.suffix in PICKLES:
        import cloudpickle  # it includes classes of the task's own file

        path.write_bytes(cloudpickle.dumps(_own(info)))
    elif path.suffix == ".npy":
        import numpy as np

        np.save(path, _array(_own(info)))
    else:
        encoded = msgspec.json.encode(_printable(info), enc_hook=str)
        path.write_bytes(msgspec.json.format(encoded) + b"\n")


def _printable(info: TaskInfo) -> Any:
    """Return a result for display; only the user's own pickled values are unpickled."""
    return _plain(info.result) if _is_own(info) else told(info.result)


def _plain(stored: Any) -> Any:
    """Replace pickled values by their JSON, or by their type and size if they have none."""
    if isinstance(stored, list):
        return [_plain(each) for each in stored]
    if not isinstance(stored, dict):
        return told(stored)
    if MARK not in stored:
        return {key: _plain(each) for key, each in stored.items()}
    try:
        return _json_form(restored(stored))
    except NOT_JSON:
        return told(stored)


def _json_form(value: Any) -> Any:
    """Return an object as JSON has it.

    Raises:
        TypeError: it has no JSON form; and the others of `NOT_JSON`.

    """
    plain = told(msgspec.to_builtins(value, str_keys=True))
    return msgspec.Raw(msgspec.json.encode(plain))


def _is_own(info: TaskInfo) -> bool:
    return info.owner == f"uid:{os.getuid()}"


def _own(info: TaskInfo) -> Any:
    """Return the unpickled result of the caller's own task.

    Raises:
        InputError: the task is another user's; its pickle could run code.

    """
    if not has_pickled(info.result):
        return info.result
    if not _is_own(info):
        raise InputError(f"task {info.id} is {info.owner}'s: only they can unpickle it")
    return restored(info.result)


def _array(value: Any) -> Any:
    """Return the result if it is an array, else the only array in it.

    Raises:
        InputError: the result has no array, or several.

    """
    import numpy as np

    if isinstance(value, dict):
        found = [each for each in value.values() if isinstance(each, list | np.ndarray)]
        if len(found) != 1:
            text = f"expected one array in the result, found {len(found)}"
            raise InputError(text)
        value = found[0]
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"the result is not an array: {error}") from error
    if array.dtype.hasobject:
        text = "the result is not an array of numbers or texts"
        raise InputError(f"{text}; --save FILE.pickle writes any object")
    return array


# ------------------------------------------------------------ logs

NO_SEGMENT = -1
"""Position of output that belongs to no segment."""


@click.command("logs")
@selectors_argument
@click.option(
    "-f", "--follow", is_flag=True, help="Follow the output until the tasks end."
)
@click.option(
    "-n", "--lines", type=Whole(0), help="Print only the last N lines of each task."
)
@click.option(
    "--err",
    is_flag=True,
    help="Print only the reasons for failures, and the last output before them.",
)
@shared
def logs_command(
    *, selectors: tuple[str, ...], socket: Path | None, as_json: bool, **given: Any
) -> None:
    """Print the output of tasks, from all resources where they ran.

    For several tasks, a heading precedes the output of each; with -f, every line starts
    with the task's number.
    """
    if given["err"] and given["follow"]:
        raise click.UsageError("--err and --follow exclude each other")
    with connect(socket) as client:
        ids = selected(client, selectors)
        if not ids:
            raise NotFoundError("no such task; there is nothing to print")
        manner = _Manner(as_json, len(ids) > 1, given["lines"])
        if given["err"]:
            _print_failures(client, ids, manner)
        elif given["follow"]:
            _follow_logs(client, ids, manner)
        else:
            _print_logs(client, ids, manner)


def _print_logs(client: Client, ids: list[int], manner: _Manner) -> None:
    """Print the logs that are there.

    Raises:
        InputError: of the last task that has none.

    """
    missing: list[tuple[int, InputError]] = []
    for task in ids:
        try:
            _Printer(manner).print_whole(client.show(task))
        except InputError as error:
            missing.append((task, error))
    for task, reason in missing[:-1]:
        say(f"hetctl: task {task}: {one_line(str(reason))}", err=True)
    if missing:
        task, reason = missing[-1]
        raise type(reason)(f"task {task}: {reason}") from reason


def _follow_logs(client: Client, ids: list[int], manner: _Manner) -> None:
    printers = {task: _Printer(manner, prefixed=manner.several) for task in ids}
    with client.watch(*ids) as changes:
        left = set(ids)
        for task in ids:
            info = client.show(task)
            printers[task].print_whole(info)
            left -= {task} if info.state in ENDED else set()
        while left:
            task = next(changes).id
            info = client.show(task)
            printers[task].print_new(info)
            left -= {task} if info.state in ENDED else set()


def _print_failures(client: Client, ids: list[int], manner: _Manner) -> None:
    """Print, for each failed task, the reason and its worker's last output."""
    for task in ids:
        info = client.show(task)
        last = info.last_output
        if info.state != "failed" and last is None:
            continue
        lines = [info.reason or "", *(last.lines if last is not None else [])]
        text = "".join(f"{line}\n" for line in lines if line)
        if manner.as_json:
            head = {"format": "hetctl/log-1", "id": task}
            emit(head | {"resource": info.resource or "", "text": text})
        else:
            if manner.several:
                say(_task_heading(info))
            say(text.rstrip("\n"))


def _task_heading(info: TaskInfo) -> str:
    name = f" {info.name}" if info.name else ""
    return one_line(f"==> task {info.id}{name} ({info.state}) <==")


@dataclass(frozen=True, slots=True)
class _Manner:
    """How to print.

    Attributes:
        as_json: print a JSON object for each piece.
        several: there are several tasks; name each of them.
        lines: print only the last lines of each task; None: all.

    """

    as_json: bool
    several: bool
    lines: int | None


class _Printer:
    """Prints each part of a task's output once."""

    def __init__(self, manner: _Manner, *, prefixed: bool = False) -> None:
        self._manner = manner
        self._prefixed = prefixed
        self._printed: dict[int, int] = {}
        """Bytes printed of each segment, by its position."""

    def print_whole(self, info: TaskInfo) -> None:
        """Print the output so far, or its last lines, with a heading for each task."""
        manner = self._manner
        if manner.several and not manner.as_json and not self._prefixed:
            say(_task_heading(info))
        if manner.lines is None:
            self.print_new(info)
            return
        for resource, text in self._last(list(self._new(info))):
            self._print(info, resource, text)

    def print_new(self, info: TaskInfo) -> None:
        """Print the output since the last call."""
        for resource, text in self._new(info):
            self._print(info, resource, text)

    def _last(self, pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Keep the last lines."""
        left, kept = self._manner.lines or 0, []
        for resource, text in reversed(pieces):
            lines = text.splitlines(keepends=True)
            some = lines[max(0, len(lines) - left) :]
            left -= len(some)
            kept.append((resource, "".join(some)))
        return [(resource, text) for resource, text in reversed(kept) if text]

    def _new(self, info: TaskInfo) -> Iterator[tuple[str, str]]:
        """Yield (resource, text) of output that was not printed yet."""
        for position, segment in enumerate(info.segments):
            # empty logs of workers are deleted
            if segment.log and segment.log_end != segment.log_start:
                yield from self._piece(info, position, segment)
        unrun = before_running(info)
        if unrun is not None:
            yield from self._piece(info, NO_SEGMENT, unrun)

    def _piece(
        self, info: TaskInfo, position: int, segment: Segment
    ) -> Iterator[tuple[str, str]]:
        printed = self._printed.get(position, 0)
        data, stop = read_segment(info.owner, segment, printed)
        if segment.log_end is None:
            # a running task may be in the middle of a line or a character
            whole = data.rfind(b"\n") + 1
            stop -= len(data) - whole
            data = data[:whole]
        self._printed[position] = stop - segment.log_start
        if data:
            yield segment.resource, data.decode("utf-8", "replace")

    def _print(self, info: TaskInfo, resource: str, text: str) -> None:
        if self._manner.as_json:
            head = {"format": "hetctl/log-1", "id": info.id}
            emit(head | {"resource": resource, "text": text})
            return
        # a user's own task may colour that user's terminal
        own = info.owner == f"uid:{os.getuid()}" or not on_terminal()
        shown = text if own else visible(text)
        if self._prefixed:
            lines = shown.splitlines(keepends=True)
            shown = "".join(f"{info.id}: {line}" for line in lines)
        click.echo(shown, nl=False)
