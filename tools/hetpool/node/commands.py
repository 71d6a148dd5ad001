"""Commands on a node: their folders and environments, and what of them moves to other nodes.

A command of the pool runs in a folder of its own, which has the files that were sent along.
When it moves, its folder goes along as a tar file, in the place of a snapshot.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.attachments import FOLDER, Attachments
from libtask.commands import Command
from libtask.commands.environment import packed
from libtask.endpoint import launcher_folder
from libtask.errors import HetError, InputError
from libtask.messages import ENDED
from libtask.origin import exported
from libtask.parameters import build

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from hetpool.jobs import PoolJob
    from hetpool.messages import JobTerms
    from libtask.client.client import Client

KEPT_S = 14 * 86_400.0
"""Seconds for which the folder of an ended command stays, so that its files can be fetched."""
MOST_FOLDERS = 1000
"""Folders of ended commands; the oldest are removed first."""


def folder_name(job: str, generation: int) -> str:
    """Return the name of the folder of a command, which each node that it is on gives it."""
    return f"{job}.{generation}"


@dataclass(frozen=True, slots=True)
class PreparedCommand:
    """A command as this node's hetd gets it, and the folder in which it runs."""

    command: Command
    cwd: str


class NodeCommands:
    """The commands of the pool on this node.

    Args:
        client: the connection to hetd.
        root: folder for their folders.

    """

    def __init__(self, client: Client, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._client = client
        self._root = root
        folder = launcher_folder(client.path.absolute()) / FOLDER
        self._attachments = Attachments(folder)

    def folder(self, job: str, generation: int) -> Path:
        """Return the folder of a command, which may not exist."""
        return self._root / folder_name(job, generation)

    # ------------------------------------------------------------ start

    def prepared(
        self,
        job: PoolJob,
        places: Mapping[str, str],
        terms: JobTerms,
        saved: Path | None,
    ) -> PreparedCommand:
        """Make the folder and the environment of a command.

        Args:
            job: the job, with paths of this node among its parameters.
            places: mark -> path of its inputs.
            terms: how it runs here.
            saved: what it left on another node; None: it begins.

        Raises:
            InputError: the folder that it names is not here, or a file cannot be written.

        """
        folder = str(job.options.get("cwd", ""))
        if folder:
            _check_folder(folder)
        else:
            folder = str(self._made(job, places, terms.generation, saved))
        starts = terms.snapshot.starts if terms.snapshot is not None else 0
        own = {
            "environment": self._environment(job),
            "folder": str(self._attachments.path),
            "starts_before": starts,
        }
        return PreparedCommand(build(Command, {**job.params, **own}), folder)

    def _environment(self, job: PoolJob) -> str:
        variables = exported("none", job.options.get("env") or {})
        try:
            return self._attachments.keep(packed(variables))
        except HetError as error:
            raise InputError(str(error)) from error

    def _made(
        self,
        job: PoolJob,
        places: Mapping[str, str],
        generation: int,
        saved: Path | None,
    ) -> Path:
        """Make the folder of a command, whole or not at all."""
        folder = self.folder(job.id, generation)
        if folder.exists():  # its agent ended after it had made it
            return folder
        draft = folder.with_name(f".{folder.name}")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(mode=0o700)
            if saved is None:
                _place(job, places, draft)
            else:
                _unpack(saved, draft)
            draft.rename(folder)
        except (OSError, tarfile.TarError) as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise InputError(f"the command's folder: {error}") from error
        return folder

    # ------------------------------------------------------------ move

    def ask_to_leave(self, job: PoolJob, task: int) -> None:
        """Hold a command: one that runs saves its state and leaves its resource.

        Raises:
            InputError: it runs and cannot save its state, so it stays.

        """
        info = self._client.show(task)
        if (info.state == "running" or info.suspended) and not _saves(job):
            raise InputError(
                f"task {task} is a command that cannot save its state, so it stays where it "
                "runs; stop_signal and resumable are for those that can"
            )
        self._client.hold(task)

    def has_left(self, task: int) -> bool:
        """Return whether a command that was held is gone from its resource."""
        info = self._client.show(task)
        return info.state in ENDED or (info.state == "held" and not info.resource)

    def pack(self, job: PoolJob, generation: int, task: int, target: Path) -> int:
        """Pack the folder of a command that has left into a file.

        Returns:
            the number of its starts; 0: it has not begun or has ended, and there is no file.

        """
        info = self._client.show(task)
        if info.state in ENDED or not (info.segments and _saves(job)):
            return 0
        folder = self.folder(job.id, generation)
        if folder.is_dir():
            _pack(folder, target)
        return len(info.segments) + int(info.params.get("starts_before", 0))

    def drop(self, job: str, generation: int) -> None:
        """Remove the folder of a command that goes on elsewhere."""
        shutil.rmtree(self.folder(job, generation), ignore_errors=True)

    def tidy(self, unfinished: Container[str]) -> None:
        """Remove old folders of ended commands.

        Args:
            unfinished: the folders' names of the commands that have not ended.

        """
        with os.scandir(self._root) as entries:
            found = sorted(
                (
                    (entry.stat(follow_symlinks=False).st_mtime, entry.path)
                    for entry in entries
                    if entry.name not in unfinished
                ),
                reverse=True,
            )
        oldest = time.time_ns() / 1e9 - KEPT_S
        for number, (changed, path) in enumerate(found):
            if changed < oldest or number >= MOST_FOLDERS:
                shutil.rmtree(path, ignore_errors=True)


def _check_folder(folder: str) -> None:
    """Check that a folder is there that a command names.

    Raises:
        InputError: it is not.

    """
    if not Path(folder).is_dir():
        raise InputError(f"no folder {folder}: cwd names one that the node has itself")


def _saves(job: PoolJob) -> bool:
    """Return whether a command can save its state and go on from it."""
    return bool(job.params.get("stop_signal") or job.params.get("resumable"))


def _place(job: PoolJob, places: Mapping[str, str], folder: Path) -> None:
    """Copy the files that were sent along: the command may change its copies."""
    for each in job.sent:
        target = folder / each.name
        shutil.copyfile(places[each.mark], target)
        target.chmod(0o700 if each.executable else 0o600)


def _pack(folder: Path, target: Path) -> None:
    """Write the files of a folder into one; without sockets, pipes and devices."""

    def kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return info if info.isfile() or info.isdir() or info.issym() else None

    try:
        with tarfile.open(target, "w") as archive:
            archive.add(folder, ".", filter=kept)
    except OSError as error:
        target.unlink(missing_ok=True)
        raise InputError(f"the command's folder: {error}") from error


def _unpack(source: Path, folder: Path) -> None:
    with tarfile.open(source) as archive:
        # nothing outside of the folder; links of the user's are left as they are
        archive.extractall(folder, filter="tar")
