"""`hetctl run`: run a program as a task, as if it ran in this terminal."""

from __future__ import annotations

import contextlib
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetctl.commands.submit import WORDS, parted, program_specs, scheduled
from hetctl.options import connect, shared, start_option
from hetctl.output import OutputError, emit, say, task_document, writing_output
from hetctl.submission.programs import (
    KINDS,
    Program,
    attachments_of,
    program_options,
)
from hetctl.views.places import emulated_names
from libtask.commands.standard_input import OfferedInput, can_be_offered
from libtask.worker.logs import opened, read_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from libtask.messages import Segment, TaskInfo, TaskSpec

STANDARD_INPUT = 0
LOOK_S = 0.05
"""Seconds between two reads of the program's output."""
PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
ENDING = frozenset(PASSED_ON[:4])
"""Signals that end a program unless it handles them."""
IMPATIENT = 3
"""Number of interrupts after which the task is cancelled even if it handles them."""
SIGNALLED = 128
"""Exit status for a program that a signal ended, minus the signal's number."""
NOT_ENDED_BY_ITSELF = 125
"""Exit status if the program did not end by itself, the same as that of timeout(1)."""
FULL = "they were written faster than read, and the log is full"
"""Reason why a part of the output is missing."""
OUTPUT_MISSING = 1
"""Exit status if the program ended with 0, but a part of its output was not kept."""
TIMED_OUT = 124
"""Exit status of a program that reached its time limit, the same as that of timeout(1)."""
NOT_STARTED = (126, 127)
"""Exit statuses for a program that is not executable, or does not exist."""


class Run(click.Command):
    """Separates the program's words after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, words = parted(args)
        if not words and not any(arg.startswith("-") for arg in own[:1]):
            own, words = [], tuple(own)  # `hetctl run true` is unambiguous
        ctx.meta[WORDS] = words
        return super().parse_args(ctx, own)


@click.command("run", cls=Run, options_metavar="[OPTIONS] [-- COMMAND...]")
@scheduled
@program_options
@start_option
@shared
@click.pass_context
def run_command(ctx: click.Context, /, **given: Any) -> int:
    """Run a program as a task: hetctl run -- make -j2.

    Prints the program's output, passes signals on, and exits with the program's exit
    status (128 plus the signal's number if a signal ended it; 124 if it reached the
    limit of --time; 125 if the task was cancelled or lost). The program reads the standard
    input of this command, unless that is a terminal.
    """
    program = Program(ctx.meta[WORDS], ctx.params)
    if not program.words and not any(given[f"on_{kind}"] for kind in KINDS):
        raise click.UsageError("no program given: hetctl run -- COMMAND...")
    with (
        connect(given["socket"], start=given["start"]) as client,
        _input_of(client, given["input"]) as source,
    ):
        program = replace(program, given={**program.given, "input": source})
        specs = program_specs(client, program, given, [{}], given["name"])
        return _followed(client, specs, as_json=given["as_json"])


@contextlib.contextmanager
def _input_of(client: Client, chosen: str) -> Iterator[str]:
    """Offer standard input to the program; give the name under which it is found.

    Args:
        client: the connection to the daemon.
        chosen: the file that the user named instead; empty: none.

    """
    if chosen or not can_be_offered(STANDARD_INPUT):
        yield chosen
        return
    folder = attachments_of(client).path.parent / "input"
    offered = OfferedInput(STANDARD_INPUT, folder)
    try:
        yield str(offered.path)
    finally:
        offered.close()


def _followed(client: Client, specs: list[TaskSpec], *, as_json: bool) -> int:
    with _recorded_signals() as signals:
        (handle,) = client.submit_specs(specs)
        client.follow_progress()
        output = Output(sys.stderr.buffer if as_json else sys.stdout.buffer)
        try:
            _Session(client, handle, output).follow(signals)
            info = client.show(handle.id)
            output.show(info)
        except (BrokenPipeError, OutputError):
            client.cancel(handle.id, reason="its output could not be written")
            raise
    if as_json:
        emit(task_document(info, emulated_names(client)))
    return _exit_status(info) or (OUTPUT_MISSING if output.dropped else 0)


def _exit_status(info: TaskInfo) -> int:
    if info.exit_code is not None:
        code = info.exit_code
        if code == TIMED_OUT and info.state == "cancelled":
            say(f"hetctl: task {info.id} {info.state}: {info.reason}", err=True)
        elif code in NOT_STARTED and info.reason != f"exit status {code}":
            say(f"hetctl: {info.reason}", err=True)
        return code if code >= 0 else SIGNALLED - code
    reason = f": {info.reason}" if info.reason else ""
    say(f"hetctl: task {info.id} {info.state}{reason}", err=True)
    return NOT_ENDED_BY_ITSELF


class _Session:
    """Follows a program to its end."""

    def __init__(self, client: Client, handle: TaskHandle, output: Output) -> None:
        self._client = client
        self._handle = handle
        self._output = output
        self._interrupts = 0

    def follow(self, signals: list[int]) -> None:
        seen: object = None
        while not self._handle.done():
            if self._handle.last is not seen:
                seen = self._handle.last
                self._output.show(self._client.show(self._handle.id))
            else:
                self._output.show_more()
            while signals:
                self._pass_on(signals.pop(0))
            with contextlib.suppress(TimeoutError):
                self._handle.wait(LOOK_S)

    def _pass_on(self, number: int) -> None:
        """Send a signal to the program, or cancel the task if it does not run."""
        task = self._handle.id
        self._interrupts += number == signal.SIGINT
        runs = self._client.show(task).state == "running"
        if self._interrupts >= IMPATIENT or (not runs and number in ENDING):
            self._client.cancel(task)
        elif runs:
            self._client.signal(number, task)


class Output:
    """Copies each part of a task's output once, unchanged.

    Args:
        target: the stream to copy to.

    Attributes:
        dropped: number of bytes that the log, which is bounded, no longer had.

    """

    def __init__(self, target: Any) -> None:
        self.dropped = 0
        self._target = target
        self._shown: dict[tuple[str, int], int] = {}
        """(log, start of a segment in it) -> bytes already copied."""
        self._running: tuple[str, Segment] | None = None

    def show(self, info: TaskInfo) -> None:
        """Copy the new output of a task."""
        self._running = None
        for segment in info.segments:
            if segment.log:
                self._show(info.owner, segment)
            if segment.log and segment.log_end is None:
                self._running = (info.owner, segment)

    def show_more(self) -> None:
        """Copy the new output of the running segment."""
        if self._running is not None:
            self._show(*self._running)

    def _show(self, owner: str, segment: Segment) -> None:
        place = (segment.log, segment.log_start)
        shown = self._shown.get(place, 0)
        if segment.log_end is not None and segment.log_start + shown >= segment.log_end:
            return
        parts, stop = _read(owner, segment, segment.log_start + shown)
        self._shown[place] = stop - segment.log_start
        for part in parts:
            self._write(part)

    def _write(self, part: bytes | int) -> None:
        if isinstance(part, int):
            self.dropped += part
            say(f"hetctl: {part} bytes of output are missing here: {FULL}", err=True)
            return
        left = memoryview(part)
        with writing_output():
            while left:  # an unbuffered stream may write a part only
                left = left[self._target.write(left) or 0 :]
            self._target.flush()


def _read(owner: str, segment: Segment, start: int) -> tuple[list[bytes | int], int]:
    """Read the rest of a segment's log from `start`, and return the end of what was read."""
    try:
        with opened(Path(segment.log), int(owner.removeprefix("uid:"))) as log:
            return read_parts(log, start, segment.log_end)
    except OSError:  # a log without output does not exist
        return [], start


@contextlib.contextmanager
def _recorded_signals() -> Iterator[list[int]]:
    """Record the signals meant for the program, in order of arrival."""
    recorded: list[int] = []
    before = {
        number: signal.signal(number, lambda taken, _frame: recorded.append(taken))
        for number in PASSED_ON
    }
    try:
        yield recorded
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
