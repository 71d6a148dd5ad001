"""The implementation of the application `command`, for every kind of resource.

The generator is driven like any other. It yields when its process has reported progress,
when a message from hetd has arrived, and periodically as a sign of life.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libtask.commands.context import CommandContext
from libtask.commands.environment import cores, variables
from libtask.commands.process import Process, Start, describe
from libtask.commands.progress import ProgressFile
from libtask.errors import CommandFailedError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.commands.command import Command
    from libtask.messages import DeviceSpec

SAVED = os.EX_TEMPFAIL
"""Exit status of a command that has saved its state and must be started again."""
FIRST_BEAT_S = 0.05
BEAT_S = 1.0
"""Seconds between two checkpoints of a command without events."""
CANCEL_S = 2.0
"""Seconds for a cancelled command to exit by itself; hetd waits for 5."""


def run(task: Command, device: Any, checkpoint: Any) -> Iterator[None]:
    """Run the command until it ends, or has left its resource on request."""
    context: CommandContext = checkpoint.context or CommandContext()
    with ExitStack() as stack:
        running = Running(task, device.spec, checkpoint, context, stack)
        checkpoint.begin()
        try:
            yield from running.follow()
        except BaseException:
            # cancelled, or its worker exits
            running.process.end(task.stop_signal or signal.SIGTERM, CANCEL_S)
            raise


class Running:
    """One execution of a command.

    Args:
        task: the command.
        device: its device.
        checkpoint: holds its progress.
        context: state shared with its worker.
        stack: closes its resources.

    """

    def __init__(
        self,
        task: Command,
        device: DeviceSpec,
        checkpoint: Any,
        context: CommandContext,
        stack: ExitStack,
    ) -> None:
        self._task = task
        self._device = device
        self._checkpoint = checkpoint
        self._situation = context
        self._asked_at: float | None = None
        self._killed = False
        folder = Path(task.folder or "/nonexistent").parent / "progress"
        name = f"{os.getpid()}-{context.task}-{context.attempt}"
        self._progress = ProgressFile(folder / name)
        stack.callback(self._progress.remove)
        self.process = Process(self._start(stack))
        stack.callback(self.process.close)

    def follow(self) -> Iterator[None]:
        """Wait for the end of the process, with a checkpoint after each wait."""
        beat = FIRST_BEAT_S
        while True:
            self._send_signals()
            self._heed()
            self._situation.wait(self.process.descriptor, beat)
            beat = BEAT_S
            code = self.process.poll()
            if code is not None:
                break
            self._note_progress()
            yield
        self._conclude(code)

    # ------------------------------------------------------------ start

    def _start(self, stack: ExitStack) -> Start:
        task = self._task
        output = self._open(task.output, stack)
        same = not task.error or task.error == task.output
        error = output if same else self._open(task.error, stack)
        return Start(
            task.words(self._device.kind),
            self._environment(),
            task.umask,
            output,
            error,
            cores(self._device, self._situation.slot),
        )

    def _environment(self) -> dict[str, str]:
        own = self._task.variables
        environment = dict(os.environ if own is None else own)
        for name in [name for name in environment if name.startswith("HETD_")]:
            if name != "HETD_SOCKET":
                del environment[name]
        context, index = self._situation, self._task.index
        return environment | {
            **variables(self._device),
            "HETD_TASK": str(context.task),
            "HETD_INDEX": "" if index is None else str(index),
            "HETD_RESOURCE": self._device.name,
            "HETD_KIND": self._device.kind,
            "HETD_ATTEMPT": str(context.attempt),
            "HETD_PROGRESS": str(self._progress.path),
        }

    def _open(self, pattern: str, stack: ExitStack) -> int | None:
        """Open an output file, in append mode after the first attempt.

        Raises:
            InputError: it cannot be opened.

        """
        if not pattern:
            return None
        path = Path(self._filled(pattern))
        anew = os.O_TRUNC if self._situation.attempt == 1 else os.O_APPEND
        try:
            mask = os.umask(self._task.umask) if self._task.umask >= 0 else None
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | anew, 0o666)
            finally:
                if mask is not None:
                    os.umask(mask)
        except OSError as error:
            raise InputError(f"output file {path}: {error.strerror}") from error
        stack.callback(os.close, descriptor)
        return descriptor

    def _filled(self, pattern: str) -> str:
        index = self._task.index
        for mark, value in (
            ("{id}", self._situation.task),
            ("{index}", "" if index is None else index),
            ("{name}", self._task.name),
            ("{attempt}", self._situation.attempt),
            ("{resource}", self._device.name),
        ):
            pattern = pattern.replace(mark, str(value))
        return pattern

    # ------------------------------------------------------------ running

    def _send_signals(self) -> None:
        while self._situation.signals:
            self.process.send(self._situation.signals.pop(0))

    def _heed(self) -> None:
        """Ask the process to stop if hetd requested that; kill it after its grace time."""
        if not self._situation.leaving:
            return
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            self.process.ask(self._task.stop_signal or signal.SIGTERM)
        elif now > self._asked_at + self._task.grace_s and not self._killed:
            self._killed = True
            self.process.kill()

    def _note_progress(self) -> None:
        share = self._progress.share()
        checkpoint = self._checkpoint
        if share is not None and checkpoint.total:
            # the last part is accounted at its end
            done = min(int(share * checkpoint.total), checkpoint.total - 1)
            if done > checkpoint.done:
                checkpoint.advance_to(done)

    # ------------------------------------------------------------ the end

    def _conclude(self, code: int) -> None:
        """Interpret the exit status.

        Raises:
            CommandFailedError: the command failed.

        """
        if code == 0:
            self._checkpoint.advance_to(self._checkpoint.total)
        elif self._asked_at is not None and self._has_saved(code):
            self._situation.left = True
            if not self._task.movable:
                self._checkpoint.restart()
        elif self._asked_at is not None:
            raise CommandFailedError(self._why_not_saved(code), code)
        else:
            raise CommandFailedError(describe(code), code)

    def _has_saved(self, code: int) -> bool:
        kept = self._task.resumable or code == SAVED
        return kept or self._situation.requeue or not self._task.movable

    def _why_not_saved(self, code: int) -> str:
        name = signal.Signals(self._task.stop_signal).name
        if self._killed:
            return f"did not leave in {self._task.grace_s:g} s after {name}: killed"
        return f"{describe(code)} after {name}: not {SAVED}, so its state is not saved"
