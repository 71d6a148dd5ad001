"""Jobs from what users write: applications, functions and `Input` files."""

from __future__ import annotations

import inspect
import os
import sysconfig
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from hetpool.jobs import OPTIONS, InputFile, PoolJob, new_id
from hetpool.messages import encode
from libtask.apps import resolve
from libtask.errors import InputError
from libtask.parameters import parameters
from libtask.task import Task
from libtask.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType

    Bring = Callable[[Path], InputFile]
    """Makes a file available in the pool."""

_REGISTERING = threading.Lock()
"""cloudpickle registers modules for the whole process."""

OWN = ("id", "nodes", "seconds")
"""Options of a job that hetd does not know."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file of this machine that a job reads; on its node a path takes its place.

    Attributes:
        path: the file here.

    """

    path: str | os.PathLike[str]


def described(
    app: Any, arguments: Sequence[Any], options: Mapping[str, Any], bring: Bring
) -> PoolJob:
    """Describe a job.

    Args:
        app: an application's name, class or object, or a function.
        arguments: of an application, a map of its parameters; else of the function.
        options: of hetd, and those in `OWN`.
        bring: makes an input file available.

    Raises:
        InputError: a value is invalid; names it.

    """
    files: dict[str, InputFile] = {}
    marked = [_marked(each, files, bring) for each in arguments]
    own = {name: options[name] for name in OWN if name in options}
    rest = {name: value for name, value in options.items() if name not in OWN}
    _check_options(rest)
    by_name = isinstance(app, str)
    if by_name and (len(marked) > 1 or not all(isinstance(x, Mapping) for x in marked)):
        raise InputError("submit: give the parameters of an application as one map")
    job = PoolJob(
        id=own.get("id") or new_id(),
        app=_label(app),
        params=dict(marked[0]) if by_name and marked else {},
        call=b"" if by_name else _pickled(app, marked),
        options=rest,
        inputs=tuple(files.values()),
        seconds=dict(own.get("seconds", {})),
        nodes=tuple(own.get("nodes", ())),
    )
    encode(job)  # parameters and options have a plain form, or this raises
    return job


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in OPTIONS:
            known = sorted([*OPTIONS, *OWN])
            hint = suggestion(name, known)
            raise InputError(
                f"no option {name!r}{hint}; a pool knows {', '.join(known)}"
            )


def zipped(app: Any, iterables: Sequence[Iterable[Any]]) -> list[tuple[Any, ...]]:
    """Return the arguments of each job of a `map`, as for `described`."""
    groups = list(zip(*iterables, strict=False))
    if not (isinstance(app, str) or _is_class(app)):
        return groups
    names = list(parameters(resolve(app) if isinstance(app, str) else app))
    for group in groups[:1]:
        if len(group) > len(names):
            raise InputError(f"{app}: takes {len(names)} parameters, got {len(group)}")
    return [(dict(zip(names, group, strict=False)),) for group in groups]


def _is_class(app: Any) -> bool:
    return isinstance(app, type) and issubclass(app, Task)


def _label(app: Any) -> str:
    if isinstance(app, str):
        return app
    return str(getattr(app, "__name__", None) or type(app).__name__)


def _pickled(app: Any, arguments: Sequence[Any]) -> bytes:
    if not (callable(app) or isinstance(app, Task)):
        raise InputError(f"submit: expected an application or a function, got {app!r}")
    try:
        with _by_value(inspect.getmodule(app if callable(app) else type(app))):
            content: bytes = cloudpickle.dumps((app, tuple(arguments)))
    except Exception as error:
        text = f"{_label(app)}: cannot be sent: {type(error).__name__}: {error}"
        raise InputError(text) from error
    return content


@contextmanager
def _by_value(module: ModuleType | None) -> Iterator[None]:
    """Pickle what a module defines by value if it is not installed: nodes do not have it."""
    file = getattr(module, "__file__", None)
    own = module is not None and module.__name__ != "__main__"
    if not own or file is None or _is_installed(Path(file)):
        yield
        return
    with _REGISTERING:
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def _is_installed(file: Path) -> bool:
    paths = sysconfig.get_paths()
    return any(
        file.is_relative_to(paths[name]) for name in ("stdlib", "purelib", "platlib")
    )


def _marked(value: Any, files: dict[str, InputFile], bring: Bring) -> Any:
    """Put marks in place of input files, in maps, lists and tuples too."""
    if isinstance(value, Input):
        file = bring(Path(value.path).expanduser().absolute())
        files[file.content + file.suffix] = file
        return file.mark
    if isinstance(value, dict):
        return {key: _marked(each, files, bring) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_marked(each, files, bring) for each in value)
    return value
