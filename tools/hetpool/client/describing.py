"""Jobs from what users write: applications, functions and `Input` files."""

from __future__ import annotations

import inspect
import io
import os
import sysconfig
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from hetpool.client.commands import checked, parameters_of, sent_files, variables_of
from hetpool.jobs import OPTIONS, InputFile, PoolJob, SentFile, new_id
from hetpool.messages import encode
from libtask.apps import goes_by_value, name_of, resolve
from libtask.classes import ClassPickler
from libtask.commands import Command
from libtask.errors import InputError
from libtask.messages import COMMAND
from libtask.parameters import parameters, values_of
from libtask.task import Task
from libtask.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType

    Bring = Callable[[Path], InputFile]
    """Makes a file available in the pool."""

_REGISTERING = threading.Lock()
"""cloudpickle registers modules for the whole process."""

OWN = ("id", "nodes", "seconds", "files")
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
    own = {name: options[name] for name in OWN if name in options}
    rest = {name: value for name, value in options.items() if name not in OWN}
    _check_options(rest)
    rest = _with_variables(rest)
    if isinstance(app, Command):
        app, arguments = COMMAND, (parameters_of(app), *arguments)
    elif app is Command:
        app = COMMAND
    else:
        app, arguments = _by_name(app, arguments)
    marked = [_marked(each, files, bring) for each in arguments]
    by_name = isinstance(app, str)
    if by_name and (len(marked) > 1 or not all(isinstance(x, Mapping) for x in marked)):
        raise InputError("submit: give the parameters of an application as one map")
    params = dict(marked[0]) if by_name and marked else {}
    sent: tuple[SentFile, ...] = ()
    if app == COMMAND:
        sent = _sent(own.get("files", ()), files, bring)
        params = checked(params, str(rest.get("cwd", "")), sent)
    elif own.get("files"):
        raise InputError("files are for commands; give other applications an Input")
    job = PoolJob(
        id=own.get("id") or new_id(),
        app=_label(app),
        params=params,
        call=b"" if by_name else _pickled(app, marked),
        options=rest,
        inputs=tuple(files.values()),
        seconds=dict(own.get("seconds", {})),
        nodes=tuple(own.get("nodes", ())),
        sent=sent,
    )
    encode(job)  # parameters and options have a plain form, or this raises
    return job


def _with_variables(options: Mapping[str, Any]) -> dict[str, Any]:
    """Take the variables of this process where options name some: the node has its own."""
    rest = {name: each for name, each in options.items() if name != "export"}
    variables = variables_of(options)
    return rest | ({"env": variables} if variables else {})


def _sent(
    paths: Iterable[Any], files: dict[str, InputFile], bring: Bring
) -> tuple[SentFile, ...]:
    found = sent_files(paths, bring)
    files |= {file.content + file.suffix: file for _, file in found}
    return tuple(each for each, _ in found)


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in OPTIONS:
            known = sorted([*OPTIONS, *OWN])
            hint = suggestion(name, known)
            raise InputError(
                f"no option {name!r}{hint}; a pool knows {', '.join(known)}"
            )
    cwd = str(options.get("cwd", ""))
    if cwd and not Path(cwd).is_absolute():
        raise InputError(f"cwd: expected a whole path on the node, got {cwd!r}")


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


def _class_of(app: Any) -> type[Task] | None:
    """Return the class of an application that is not given by name; None: a function."""
    if isinstance(app, Task):
        return type(app)
    return app if _is_class(app) else None


def _by_name(app: Any, arguments: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """Name an application that is installed here, and so on the nodes: it has no need to travel."""
    app_class = _class_of(app)
    if app_class is None or goes_by_value(app_class):
        return app, arguments
    name = name_of(app_class)
    if ".py:" in name or not all(isinstance(each, Mapping) for each in arguments):
        return app, arguments
    return name, ([values_of(app)] if isinstance(app, Task) else arguments)


def _pickled(app: Any, arguments: Sequence[Any]) -> bytes:
    """Pickle a call, or a task with the parameters of its class: nodes lack its module."""
    if not (callable(app) or isinstance(app, Task)):
        raise InputError(f"submit: expected an application or a function, got {app!r}")
    app_class, file = _class_of(app), io.BytesIO()
    known = parameters(app_class) if app_class is not None else None
    try:
        with _by_value(inspect.getmodule(app_class or app)):
            ClassPickler(file).dump((app, tuple(arguments), known))
            content = file.getvalue()
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
