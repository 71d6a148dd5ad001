"""The files of a node: inputs of its jobs, by content id, and files that it gives to others.

Names from the network are content ids; clients on this machine leave their files in a
folder of the same user (`Incoming`), so that no path ever comes from the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetpool.files.content import ContentStore, content_id, copy_bytes, digest_of
from hetpool.files.intake import READ, EnginePeers, FileIntake, FileOffer
from hetpool.inquiry import TransferRecord
from hetpool.jobs import BY_ENGINE
from hetpool.messages import SnapshotFile
from libtask.errors import InputError, NotFoundError
from libtask.whole_files import demand_unchanged, status_of_regular

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from hetpool.files.content import ContentId
    from hetpool.jobs import InputFile, PoolJob
    from hetpool.messages import JobTerms
    from hetpool.seam import WorkerEngine

QUOTA = 64 << 30
"""Bytes of input files and snapshots that a node keeps."""


MOST_RECORDS = 10_000


class Incoming:
    """The folder in which clients leave files for the nodes of the same machine.

    Args:
        folder: made with mode 0700 where it is absent.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def leave(self, path: Path) -> tuple[ContentId, int]:
        """Copy a file into the folder; return its content id and its size.

        Raises:
            InputError: it cannot be read, or was changed meanwhile.

        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._folder / f".{os.getpid()}-{os.urandom(8).hex()}"
        try:
            content, size = _copied(path, draft)
            draft.rename(self._folder / content)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise InputError(f"{path}: {error.strerror or error}") from error
        except InputError as error:
            draft.unlink(missing_ok=True)
            raise InputError(f"{path}: {error}") from error
        return content, size

    def take(self, content: ContentId) -> Path:
        """Return where a file was left.

        Raises:
            NotFoundError: it is not there.

        """
        path = self._folder / content
        if not path.is_file():
            raise NotFoundError(f"content {content[:12]}: no client left it here")
        return path


class NodeFiles:
    """The files of one node.

    Args:
        root: folder of the node's own.
        incoming: where clients of this machine leave files.
        engine: the way to other nodes.

    """

    def __init__(self, root: Path, incoming: Path, engine: WorkerEngine) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._named = root / "named"
        self._named.mkdir(mode=0o700, exist_ok=True)
        self.store = ContentStore(root / "contents", QUOTA)
        self.intake = FileIntake(self.store, EnginePeers(engine))
        self._incoming = Incoming(incoming)
        self.pulled: deque[TransferRecord] = deque(maxlen=MOST_RECORDS)
        """The newest files that the intake brought, for pictures."""
        engine.answer(READ, FileOffer(self.store).answer)

    async def close(self) -> None:
        await self.intake.close()
        self.store.close()

    async def receive(self, content: str) -> int:
        """Take over a file that a client of this machine left; return its size."""
        name = content_id(content)
        if name not in self.store:
            path = self._incoming.take(name)
            if await asyncio.to_thread(self.store.add, path) != name:
                raise InputError(f"content {name[:12]}: other bytes than its id")
            path.unlink(missing_ok=True)
        return self.store.size(name)

    async def read(self, content: str) -> Any:
        """Return a file as an array, for the engine."""
        name = content_id(content)
        if name not in self.store:
            await self.receive(content)
        path = self.store.path(name)
        return await asyncio.to_thread(np.fromfile, path, dtype=np.uint8)

    async def place(
        self, job: PoolJob, terms: JobTerms, arrays: Mapping[str, Any]
    ) -> dict[str, str]:
        """Bring the inputs of a job here.

        Args:
            job: with its input files.
            terms: order, cap and sources of transfers.
            arrays: content id -> bytes of the files that the engine carried.

        Returns:
            mark -> path of each input.

        Raises:
            InputLostError: no node has one of them any longer.

        """
        places = {}
        for file in job.inputs:
            if file.content in arrays:
                await asyncio.to_thread(self._keep, file, arrays[file.content])
            path = await self.fetch(file, terms)
            places[file.mark] = str(self._under_name(job.id, path, file))
        return places

    async def fetch(self, file: InputFile, terms: JobTerms) -> Path:
        """Return the path of a file, pulled from other nodes if it is not here."""
        sources = [
            terms.sources[each] for each in file.sources if each in terms.sources
        ]
        fetching = self.intake.fetch(
            file.content, file.size, sources, terms.order, terms.cap
        )
        return await self._recorded(file.content, file.size, fetching)

    async def keep(self, snapshot: SnapshotFile, source: str, order: int) -> Path:
        """Pull a snapshot, and keep it until `drop`."""
        sources = [source] if source else []
        fetching = self.intake.fetch(snapshot.content, snapshot.size, sources, order)
        return await self._recorded(snapshot.content, snapshot.size, fetching)

    async def _recorded(
        self, content: str, size: int, fetching: Awaitable[Path]
    ) -> Path:
        """Wait for a file that the intake fetches, and record its transfer."""
        here, begun = content_id(content) in self.store, _now()
        path = await fetching
        if not here:
            self.pulled.append(TransferRecord(content, size, begun, _now()))
        return path

    def drop(self, content: str) -> None:
        """Let a snapshot go when room is needed."""
        with contextlib.suppress(NotFoundError):
            self.store.release(content_id(content))

    def draft(self, job: str) -> Path:
        """Return where a snapshot of a job is exported to; nothing is there."""
        path = self._named / f"{job}.snapshot"
        path.unlink(missing_ok=True)
        return path

    async def added(self, draft: Path, node: str) -> SnapshotFile:
        """Take an exported snapshot into the store, for other nodes."""
        content = await asyncio.to_thread(self._added, draft)
        return SnapshotFile(content, self.store.size(content), node)

    def _added(self, draft: Path) -> ContentId:
        try:
            return self.store.add(draft)
        finally:
            draft.unlink(missing_ok=True)

    def _keep(self, file: InputFile, content: Any) -> None:
        name = content_id(file.content)
        if name in self.store:
            return
        with self.store.begin(name, file.size) as partial:
            partial.write(0, memoryview(content).cast("B").tobytes())
            partial.finish(digest_of(partial.descriptor))

    def _under_name(self, job: str, path: Path, file: InputFile) -> Path:
        """Give an input a name with its ending, in a folder of the job's."""
        folder = self._named / job
        folder.mkdir(mode=0o700, exist_ok=True)
        named = folder / f"{file.content}{file.suffix}"
        with contextlib.suppress(FileExistsError):
            named.hardlink_to(path)
        return named

    def release(self, job: PoolJob) -> None:
        """Let the inputs of a job that has ended go when room is needed."""
        if not job.inputs:
            return
        shutil.rmtree(self._named / job.id, ignore_errors=True)
        for file in job.inputs:
            with contextlib.suppress(NotFoundError):
                self.store.release(content_id(file.content))


def _copied(path: Path, draft: Path) -> tuple[ContentId, int]:
    """Copy a regular file; return the content id and the size of the copy."""
    status_of_regular(path)  # to open a pipe might take for ever
    with path.open("rb") as source, draft.open("xb+") as target:
        status = status_of_regular(source.fileno())
        copy_bytes(source.fileno(), target.fileno(), status.st_size)
        demand_unchanged(source.fileno(), status)
        return digest_of(target.fileno()), status.st_size


def _now() -> float:
    return time.time()  # noqa: TID251  pictures compare it with hetd's times


def by_engine(files: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Return the files that the engine carries; the intake pulls the others."""
    return tuple(each for each in files if each.size <= BY_ENGINE)
