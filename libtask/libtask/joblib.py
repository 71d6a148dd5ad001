"""joblib over hetd: `parallel_config(backend="hetd")` runs joblib's calls as tasks.

    import libtask.joblib
    libtask.joblib.register()
    with joblib.parallel_config(backend="hetd"):
        cross_val_score(model, x, y, n_jobs=-1)

Calls run in the user's own workers, with as many in parallel as the node has slots of the
kind. Large arrays are written once for each `Parallel` and mapped read-only by every call,
as joblib does. Nested parallelism inside a call runs in its threads.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
import sys
import tempfile
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from libtask.client.client import Client
from libtask.extras import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.call_future import CallFuture
    from libtask.client.executor import TaskExecutor
    from libtask.messages import Kind

try:
    from joblib import register_parallel_backend
    from joblib._parallel_backends import (
        AutoBatchingMixin,
        FallbackToBackend,
        ParallelBackendBase,
        SequentialBackend,
    )
except ModuleNotFoundError as error:
    text = f"libtask.joblib needs joblib: {how_to_install('joblib')}"
    raise ModuleNotFoundError(text, name=error.name) from error

LARGE = 1 << 20
"""Minimum bytes of an array that is mapped instead of copied; joblib's own limit."""


def register(*, default: bool = False) -> None:
    """Register the backend `hetd` with joblib, optionally as the default."""
    register_parallel_backend("hetd", HetdBackend, make_default=default)


class HetdBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """joblib's backend for hetd.

    Args:
        socket: the daemon's socket; None: the default one.
        kind: kind of resource that each call uses.
        nesting_level: joblib's own, as `inner_max_num_threads`.

    Workers also serve other tasks, so joblib's `initializer` of workers is refused.

    """

    supports_retrieve_callback = True

    def __init__(
        self,
        socket: str | Path | None = None,
        kind: Kind = "cpu",
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
    ) -> None:
        super().__init__(
            nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads
        )
        self._socket = socket
        self._kind: Kind = kind
        self._client: Client | None = None
        self._executor: TaskExecutor | None = None
        self._arrays: Arrays | None = None
        self._mapping = Mapping()
        self._pending: set[CallFuture] = set()

    def configure(
        self, n_jobs: int | None = 1, parallel: Any = None, **options: Any
    ) -> int:
        """Connect; return the number of parallel calls.

        Args:
            n_jobs: as for `joblib.Parallel`.
            parallel: the `joblib.Parallel`.
            options: its options; `max_nbytes`, `mmap_mode`, `temp_folder` are used.

        """
        if n_jobs is None or n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._mapping = Mapping(
            options.get("max_nbytes", LARGE),
            options.get("mmap_mode", "r"),
            options.get("temp_folder"),
        )
        self._open()
        return self.effective_n_jobs(n_jobs)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of parallel calls: all slots for -1, all but one for -2."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or n_jobs > 0:
            return n_jobs or 1
        with Client(self._socket) as client:
            devices = [each for each in client.devices() if each.state == "up"]
        slots = sum(each.slots for each in devices if each.spec.kind == self._kind)
        return max(1, slots + 1 + n_jobs)

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None
    ) -> CallFuture:
        """Submit a batch of calls as one task; `callback` is called at its end."""
        executor, arrays = self._open()
        future: Any = executor.submit(run_pickled, arrays.pickled(func), sys.path)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future  # type: ignore[no-any-return]  # an executor's futures are these

    def retrieve_result_callback(self, out: CallFuture) -> Any:
        """Return the value of a batch, or raise its exception."""
        found = out.result()
        if isinstance(found, Interrupted):
            raise found.by
        return found

    def abort_everything(self, ensure_ready: bool = True) -> None:  # noqa: FBT001, FBT002  joblib's signature
        """Cancel all unfinished batches; the launcher stops running ones."""
        for future in list(self._pending):
            if not future.cancel() and future.handle is not None:
                future.handle.cancel()
        self.terminate()
        if ensure_ready:
            self._open()

    def terminate(self) -> None:
        """Close the connection and remove the arrays' files after all calls have ended."""
        client, executor, arrays = self._client, self._executor, self._arrays
        self._client = self._executor = self._arrays = None
        if client is not None and executor is not None and arrays is not None:
            threading.Thread(
                target=_close, args=(client, executor, arrays), daemon=True
            ).start()
        self._pending.clear()
        self.reset_batch_stats()

    def _open(self) -> tuple[TaskExecutor, Arrays]:
        if self._executor is None or self._arrays is None:
            self._client = Client(self._socket)
            self._executor = self._client.executor(self._kind)
            self._arrays = Arrays(self._mapping)
        return self._executor, self._arrays


def _close(client: Client, executor: TaskExecutor, arrays: Arrays) -> None:
    """Wait for the end of cancelled calls, then close everything."""
    executor.shutdown(wait=True)
    client.close()
    arrays.remove()


@dataclass(frozen=True, slots=True)
class Mapping:
    """Settings for the transfer of large arrays, as in joblib.

    Attributes:
        max_nbytes: minimum bytes of a mapped array; None: no mapping.
        mmap_mode: mode of the mapping in workers; None: no mapping.
        temp_folder: folder of the files; None: `$JOBLIB_TEMP_FOLDER`, else the system's.

    """

    max_nbytes: int | None = LARGE
    mmap_mode: str | None = "r"
    temp_folder: str | None = None

    def maps(self, value: Any) -> bool:
        """Return whether a value is a plain array to be mapped."""
        if self.max_nbytes is None or self.mmap_mode is None:
            return False
        plain = type(value) in (np.ndarray, np.memmap) and not value.dtype.hasobject
        return plain and value.nbytes >= self.max_nbytes


class Arrays:
    """Large arrays as files, each written once for all calls."""

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping
        room = mapping.temp_folder or os.environ.get("JOBLIB_TEMP_FOLDER")
        self._folder = Path(tempfile.mkdtemp(prefix="hetd-joblib-", dir=room))
        self._remover = weakref.finalize(self, _removed, self._folder)
        self._files: dict[int, tuple[weakref.ref[Any], Path]] = {}

    def pickled(self, value: Any) -> bytes:
        """Pickle a value, with paths in place of large arrays."""
        buffer = io.BytesIO()
        _Pickler(buffer, self).dump(value)
        return buffer.getvalue()

    def file_of(self, array: Any) -> Path:
        """Return the file of an array, written at its first use."""
        known = self._files.get(id(array))
        if known is not None and known[0]() is array:
            return known[1]
        path = self._folder / f"{len(self._files)}-{id(array)}.npy"
        np.save(path, array, allow_pickle=False)
        self._files[id(array)] = (weakref.ref(array), path)
        return path

    def remove(self) -> None:
        """Remove the files; existing mappings in workers stay valid."""
        self._remover()


def _removed(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, buffer: io.BytesIO, arrays: Arrays) -> None:
        super().__init__(buffer)
        self._arrays = arrays

    def reducer_override(self, value: Any) -> Any:
        """Replace a large plain array by the path of its file."""
        mapping = self._arrays.mapping
        if mapping.maps(value):
            return mapped, (str(self._arrays.file_of(value)), mapping.mmap_mode)
        return super().reducer_override(value)


def mapped(path: str, mode: Any) -> Any:
    """Map an array's file; called in the worker."""
    return np.load(path, mmap_mode=mode)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Result of a batch that raised KeyboardInterrupt or SystemExit; the worker continues."""

    by: BaseException


def run_pickled(pickled: bytes, path: list[str]) -> Any:
    """Run a batch of joblib; called in the worker.

    Args:
        pickled: the batch.
        path: folders of the submitter's modules.

    """
    sys.path += [place for place in path if place not in sys.path]
    try:
        return pickle.loads(pickled)()  # noqa: S301  the user's own function
    except (KeyboardInterrupt, SystemExit) as error:
        return Interrupted(error)
