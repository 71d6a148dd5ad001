"""`hetctl run`: a program as a task, as if it ran here."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetctl.commands.submit import WORDS, parted, program_specs, scheduled
from hetctl.options import connect, shared, start_option
from hetctl.output import emit, say, task_document
from hetctl.submission.programs import KINDS, Program, program_options
from hetctl.views.places import emulated_names
from libtask.worker.logs import opened, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from libtask.messages import Segment, TaskInfo, TaskSpec

LOOK_S = 0.05
"""Seconds between two looks at what the program has written."""
PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
ENDING = frozenset(PASSED_ON[:4])
"""Signals that end a program unless it takes them itself."""
IMPATIENT = 3
"""Interrupts after which the task is cancelled, whatever its program does with them."""
SIGNALLED = 128
"""Exit status of a shell for a program that a signal ended, less the signal."""
NOT_ENDED_BY_ITSELF = 125
"""Exit status where the program did not run to an end of its own, as timeout(1) has it."""


NOT_STARTED = (126, 127)
"""Exit statuses of a program that cannot be executed, or that there is not."""


class Run(click.Command):
    """Keeps the words after `--`, which are the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, words = parted(args)
        if not words and not any(arg.startswith("-") for arg in own[:1]):
            own, words = [], tuple(own)  # `hetctl run true` leaves no doubt
        ctx.meta[WORDS] = words
        return super().parse_args(ctx, own)


@click.command("run", cls=Run)
@scheduled
@program_options
@start_option
@shared
@click.pass_context
def run_command(ctx: click.Context, /, **given: Any) -> int:
    """Run a program as a task: hetctl run -- make -j2.

    Shows what it writes, passes signals on, and ends with its exit status (128 and the
    signal's number where one ended it; 125 where the task was cancelled or lost). Its
    standard input is empty.
    """
    program = Program(ctx.meta[WORDS], ctx.params)
    if not program.words and not any(given[f"on_{kind}"] for kind in KINDS):
        raise click.UsageError("say what to run: hetctl run -- COMMAND...")
    with connect(given["socket"], start=given["start"]) as client:
        specs = program_specs(client, program, given, [{}], given["name"])
        return _followed(client, specs, as_json=given["as_json"])


def _followed(client: Client, specs: list[TaskSpec], *, as_json: bool) -> int:
    with _noted_signals() as signals:
        (handle,) = client.submit_specs(specs)
        client.follow_progress()
        output = Output(sys.stderr.buffer if as_json else sys.stdout.buffer)
        _Session(client, handle, output).follow(signals)
        info = client.show(handle.id)
        output.show(info)
    if as_json:
        emit(task_document(info, emulated_names(client)))
    return _exit_status(info)


def _exit_status(info: TaskInfo) -> int:
    if info.exit_code is not None:
        code = info.exit_code
        if code in NOT_STARTED and info.reason != f"exit status {code}":
            say(f"hetctl: {info.reason}", err=True)
        return code if code >= 0 else SIGNALLED - code
    reason = f": {info.reason}" if info.reason else ""
    say(f"hetctl: task {info.id} {info.state}{reason}", err=True)
    return NOT_ENDED_BY_ITSELF


class _Session:
    """A program that is followed to its end."""

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
        """Send a signal to the program; a task that does not run is cancelled by it."""
        task = self._handle.id
        self._interrupts += number == signal.SIGINT
        runs = self._client.show(task).state == "running"
        if self._interrupts >= IMPATIENT or (not runs and number in ENDING):
            self._client.cancel(task)
        elif runs:
            self._client.signal(number, task)


class Output:
    """What a task has written, shown once, as it is.

    Args:
        target: where it is shown.

    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._shown: dict[tuple[str, int], int] = {}
        """(log, where a stretch begins in it) -> bytes of it that were shown."""
        self._running: tuple[str, Segment] | None = None

    def show(self, info: TaskInfo) -> None:
        """Show what is new of a task."""
        self._running = None
        for segment in info.segments:
            if segment.log:
                self._show(info.owner, segment)
            if segment.log and segment.log_end is None:
                self._running = (info.owner, segment)

    def show_more(self) -> None:
        """Show what the present stretch has written since."""
        if self._running is not None:
            self._show(*self._running)

    def _show(self, owner: str, segment: Segment) -> None:
        place = (segment.log, segment.log_start)
        shown = self._shown.get(place, 0)
        if segment.log_end is not None and segment.log_start + shown >= segment.log_end:
            return
        with contextlib.suppress(OSError):  # a log to which nothing was written
            uid = int(owner.removeprefix("uid:"))
            with opened(Path(segment.log), uid) as log:
                data, stop = read(log, segment.log_start + shown, segment.log_end)
            self._shown[place] = stop - segment.log_start
            self._write(data)

    def _write(self, data: bytes) -> None:
        if data:
            self._target.write(data)
            self._target.flush()


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Note the signals that are for the program, in the order in which they come."""
    noted: list[int] = []
    before = {
        number: signal.signal(number, lambda taken, _frame: noted.append(taken))
        for number in PASSED_ON
    }
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
