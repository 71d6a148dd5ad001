"""Applications by name: find the class, describe a task of it for the scheduler.

An application is an entry point of group `libtask.apps` (`heat`), a class in a user's
file (`path/to/file.py:Class`), or a class by value (`libtask.classes`). Clients use it before submission, workers
before execution; hetd never does.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import math
import operator
import os
import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from libtask.app_modules import module_name
from libtask.documents import ALL_CORES
from libtask.errors import HetError, InputError, NotFoundError
from libtask.inputs import taken_out
from libtask.messages import Kind, TaskSpec
from libtask.origin import current_folder
from libtask.parameters import build, check_all, plain, values_of
from libtask.task import Size, Task
from libtask.wording import one_line, shown, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType


__all__ = ["Options", "available", "build", "describe", "name_of", "resolve", "size_of"]

GROUP = "libtask.apps"
VALUE = "value:"
"""Start of the name of a class by value: `value:ATTACHMENT:MODULE:Class`."""
VERSION_CHARACTERS = 32
BUILT_IN = {
    "call": "libtask.client.call:Call",
    "command": "libtask.commands.command:Command",
}
"""Applications that are part of libtask itself and hidden from listings."""

_NAMES: dict[type[Task], str] = {}
_VERSIONS: dict[type[Task], str] = {}


@dataclass(frozen=True, slots=True)
class Options:
    """Scheduling options of a task.

    Attributes:
        priority: higher runs first within a queue.
        after: ids of tasks that must complete first; `-k`: the k-th before in the submit.
        after_any: ids of tasks that must end first, in whatever way.
        after_notok: ids of tasks that must end first, at least one of them without
            completing; if all complete, the task is cancelled.
        hold: wait for a release.
        resources: allowed resource names; empty: any.
        seconds: expected of the whole task, by resource (`gpu0`) or kind (`gpu`); what was
            measured of its type on a resource counts more.
        strip: fixed strip size in iterations, at least 1; None: sized to the target
            interval.
        name: the user's label.
        deadline_s: seconds from submission to the deadline; None: none.
        overrun: whether to `continue` or to `stop` at the deadline.
        cores: processor cores that it needs; -1: all; None: as its class says.
        memory_bytes: host memory that it needs; 0: none is counted.
        device_bytes: memory that it needs of the device that runs it.
        time_limit_s: seconds for which it may run; None: any time.
        job: name of the user's job that it belongs to; empty: none.
        retries: how often it is run again after failures of its own; None: as its class
            says.
        begin: time before which it does not begin, in seconds since the epoch; None: at
            once.
        at_once: maximum number of the tasks submitted with these options that run at
            once; 0: any number.
        array: name of their array; empty: a new one.
        resume: continue at its first start from a snapshot that was adopted for it.
        lease: name of the lease of its submitter; it may be empty.
        lease_s: seconds without a renewal after which it is held; 0: it has no lease.
        cwd: folder in which it runs, relative to the present one; empty: that one.

    """

    priority: int = 0
    after: tuple[int, ...] = ()
    after_any: tuple[int, ...] = ()
    after_notok: tuple[int, ...] = ()
    hold: bool = False
    resources: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    strip: int | None = None
    name: str = ""
    deadline_s: float | None = None
    overrun: Literal["continue", "stop"] = "continue"
    cores: int | None = None
    memory_bytes: int = 0
    device_bytes: int = 0
    time_limit_s: float | None = None
    job: str = ""
    retries: int | None = None
    begin: float | None = None
    at_once: int = 0
    array: str = field(default_factory=lambda: os.urandom(8).hex())
    resume: bool = False
    lease: str = ""
    lease_s: float = 0.0
    cwd: str = ""


LONGEST_JOB = 100
"""Most characters of a job's name."""


def check_job(name: str) -> str:
    """Check the name of a job, which must fit into a selector.

    Raises:
        InputError: it is too long, or contains commas, spaces or control characters.

    """
    bad = any(each == "," or each.isspace() or not each.isprintable() for each in name)
    if bad or len(name) > LONGEST_JOB:
        raise InputError(
            f"job {name[:LONGEST_JOB]!r}: expected up to {LONGEST_JOB} characters, "
            "without commas and spaces"
        )
    return name


# ---------------------------------------------------------------- find


def resolve(app: str) -> type[Task]:
    """Find the application's class.

    Raises:
        NotFoundError: no application has that name; lists the available ones.
        InputError: the file or class is missing, invalid, or fails to import.

    """
    if is_value(app):
        raise InputError(f"{short_name(app)}: defined in a program or notebook")
    if ".py:" in app or app.endswith(".py"):
        return _class_in_file(app)
    return _named(app)


def available() -> list[str]:
    """List the names of the installed applications."""
    return sorted(_entry_points())


def absolute(app: str) -> str:
    """Return the name under which any process finds the application."""
    if is_value(app) or ".py:" not in app:
        return app
    path, _, class_name = app.rpartition(":")
    return f"{Path(path).expanduser().resolve()}:{class_name}"


def name_of(app_class: type[Task]) -> str:
    """Return the name by which `resolve` finds this class.

    Raises:
        InputError: the class was defined interactively, so no file contains it.

    """
    if app_class not in _NAMES:
        _NAMES[app_class] = _find_name(app_class)
    return _NAMES[app_class]


def version_of(app_class: type[Task]) -> str:
    """Return a digest of the file that contains the class, as its version."""
    if app_class not in _VERSIONS:
        import hashlib  # it loads a large library, which most commands do not need

        try:
            source = Path(inspect.getfile(app_class)).read_bytes()
        except (OSError, TypeError):
            source = b""  # defined interactively
        _VERSIONS[app_class] = hashlib.blake2b(source, digest_size=16).hexdigest()
    return _VERSIONS[app_class]


def set_version(app_class: type[Task], attachment: str) -> None:
    """Set the version of a class by value, that of its attachment."""
    _VERSIONS[app_class] = attachment[:VERSION_CHARACTERS]


def goes_by_value(app_class: type[Task]) -> bool:
    """Return whether no other process can import this class as this one did."""
    local = "<locals>" in app_class.__qualname__
    return local or app_class.__module__ == "__main__" or _source_of(app_class) is None


def value_name(app_class: type[Task], attachment: str) -> str:
    """Return the name of a class by value: the same as in its file, but for the attachment."""
    path = _file_of(app_class) if app_class.__module__ == "__main__" else None
    module = path.stem if path else app_class.__module__
    return f"{VALUE}{attachment}:{module}:{app_class.__name__}"


def is_value(app: str) -> bool:
    """Return whether an application is a class by value."""
    return app.startswith(VALUE)


def attachment_of(app: str) -> str:
    """Return the name of the attachment with a class by value."""
    return app.split(":", 2)[1]


def _file_of(app_class: type[Task]) -> Path | None:
    """Return the file that defines a class; None: it was defined interactively."""
    source = _source_of(app_class)
    return None if source is None else Path(source).resolve()


def _source_of(app_class: type[Task]) -> str | None:
    """Return what the module of a class names as its file, if that exists."""
    try:
        source = inspect.getfile(app_class)
    except (OSError, TypeError):
        return None
    return source if os.path.isfile(source) else None  # noqa: PTH113  for speed


def _find_name(app_class: type[Task]) -> str:
    place = f"{app_class.__module__}:{app_class.__qualname__}"
    for name, value in (_entry_points() | BUILT_IN).items():
        if value == place:
            return name
    path = _file_of(app_class)
    if path is None:
        text = "defined interactively; submit it with `Client.submit`"
        raise InputError(f"{app_class.__name__}: {text}")
    return f"{path}:{app_class.__qualname__}"


@functools.cache
def _entry_points() -> dict[str, str]:
    from importlib.metadata import entry_points  # takes a fifth of a command's start

    return {point.name: point.value for point in entry_points(group=GROUP)}


@functools.cache
def _named(app: str) -> type[Task]:
    place = BUILT_IN.get(app) or _entry_points().get(app)
    if place is None:
        _entry_points.cache_clear()  # it may have been installed meanwhile
        importlib.invalidate_caches()
        place = _entry_points().get(app)
    if place is None:
        names = available()
        listing = ", ".join(names) or "none installed"
        raise NotFoundError(
            f"no application {app!r}{suggestion(app, names)}; there are: {listing};"
            " your own: path/to/file.py:Class"
        )
    module_name, _, class_name = place.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(f"application {app}: {_failure(error)}") from error
    return _task_class(module, class_name, app)


def _class_in_file(app: str) -> type[Task]:
    path_text, _, class_name = app.rpartition(":")
    if not path_text or app.endswith(".py"):
        raise InputError(f"{app}: say which class, as {app}:Class")
    path = Path(path_text).expanduser().resolve()
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        raise InputError(f"{path_text}: {error.strerror}") from error
    return _task_class(_module_of(path, changed), class_name, path_text)


@functools.cache
def _module_of(path: Path, changed: int) -> ModuleType:
    """Import a file under a unique name; an edited file is a new module."""
    name = module_name(path, changed)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module by name
    _allow_siblings(path)
    try:
        with _no_byte_code_written():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"{path}: {_failure(error)}") from error
    return module


@contextmanager
def _no_byte_code_written() -> Iterator[None]:
    """Keep no byte code: it is compared with its source by the second only.

    A module beside the file that is edited within the second would run as it was before.
    """
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _allow_siblings(path: Path) -> None:
    """Let the file import modules beside it, after those of the library."""
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)


def _failure(error: BaseException) -> str:
    """Describe a failed import in one line, with the line of the application's code."""
    place = _place_of(error)
    line = f" at line {place[1]} of {place[0]}" if place else ""
    return f"import fails{line}: {type(error).__name__}: {one_line(error)}"


def _place_of(error: BaseException) -> tuple[str, int | None] | None:
    """Return the file and line of the application at which an import failed."""
    from libtask.tracebacks import is_apps_file

    if isinstance(error, SyntaxError) and Path(error.filename or "").is_file():
        return str(error.filename), error.lineno
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_apps_file(frame.filename):
            return frame.filename, frame.lineno
    return None


def _task_class(module: ModuleType, class_name: str, place: str) -> type[Task]:
    found = getattr(module, class_name, None)
    if found is None:
        names = [name for name, value in vars(module).items() if _is_task(value)]
        listing = ", ".join(names) or "none"
        hint = suggestion(class_name, names)
        raise InputError(
            f"{place}: no class {class_name!r}{hint}; tasks there: {listing}"
        )
    if not _is_task(found):
        raise InputError(f"{place}: {class_name} is not a subclass of libtask.Task")
    app_class: type[Task] = found
    return app_class


def _is_task(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Task) and value is not Task


# ---------------------------------------------------------------- describe


@dataclass(frozen=True, slots=True)
class LateTask:
    """A task that is built in its worker: parameters are results of other tasks.

    Attributes:
        app_class: its application.
        params: parameter name -> value, with references.

    """

    app_class: type[Task]
    params: Mapping[str, Any]


def drafted(app_class: type[Task], params: Mapping[str, Any]) -> Task | LateTask:
    """Build a task, or check its parameters if some are results of other tasks.

    Raises:
        InputError: a parameter is unknown, missing or invalid.

    """
    _, inputs = taken_out(params)
    if not inputs:
        return build(app_class, params)
    late = {str(place[0]) for each in inputs for place in each.places}
    check_all(app_class, params, late)
    return LateTask(app_class, params)


def describe(
    task: Task | LateTask, app: str, options: Options, *, fits_here: bool = True
) -> TaskSpec:
    """Describe a task for submission.

    The size of a task is unknown as long as parameters are results of other tasks.

    Args:
        task: the task, parameters checked.
        app: its application's name, as `resolve` takes it.
        options: scheduling options.
        fits_here: whether to refuse a task that needs more memory than this machine has:
            not for one that another machine is to run, which refuses it itself.

    Raises:
        InputError: an input file is bad, or the task needs more memory than this machine has.

    """
    app_class = class_of(task)
    values = task.params if isinstance(task, LateTask) else values_of(task)
    cleared, inputs = taken_out(values)
    if isinstance(task, LateTask) or (inputs and task.sized_by_inputs):
        size, kinds, further = Size(), list(app_class.implementations), {}
    else:
        size, kinds, further = size_of(task), _kinds(task), task.described()
    if fits_here:
        _refuse_too_big(app_class, size)
    if options.resume and not app_class.keeps_snapshots:
        raise InputError(
            f"{app}: keeps no snapshots, so that it cannot resume from one"
        )
    return TaskSpec(
        app=absolute(app),
        params=plain(app_class, cleared),
        inputs=inputs,
        type=f"{short_name(app)}/{size.signature}",
        kinds=kinds,
        work=float(size.work),
        input_bytes=int(size.input_bytes),
        state_bytes=int(size.state_bytes),
        priority=options.priority,
        after=list(options.after),
        after_any=list(options.after_any),
        after_notok=list(options.after_notok),
        hold=options.hold,
        resources=list(options.resources),
        seconds=dict(options.seconds),
        strip=options.strip,
        iterations=size.iterations,
        name=options.name,
        job=options.job,
        deadline_s=options.deadline_s,
        overrun=options.overrun,
        cores=_cores(app_class, options),
        memory_bytes=options.memory_bytes,
        device_bytes=options.device_bytes,
        time_limit_s=options.time_limit_s,
        retries=_retries(app_class, options),
        begin=options.begin,
        array=options.array if options.at_once else "",
        at_once=options.at_once,
        cwd=options.cwd or current_folder(),
        version=version_of(app_class),
        resume=options.resume,
        lease=options.lease,
        lease_s=options.lease_s,
        parallel=app_class.parallel and app_class.keeps_snapshots,
        **further,
    )


def class_of(task: Task | LateTask) -> type[Task]:
    """Return the application of a task."""
    return task.app_class if isinstance(task, LateTask) else type(task)


def _cores(app_class: type[Task], options: Options) -> int:
    """Return the cores that a task needs, by its options or else by its class."""
    if options.cores is not None:
        return options.cores
    cores = app_class.needs_cores
    _refuse_cores(app_class, cores)
    return ALL_CORES if cores == "all" else cores


def _refuse_cores(app_class: type[Task], cores: object) -> None:
    if cores != "all" and (not isinstance(cores, int) or cores < 0):
        text = f"expected a whole number from 0, or 'all', got {shown(cores)}"
        raise InputError(f"{app_class.__name__}: needs_cores: {text}")


def _retries(app_class: type[Task], options: Options) -> int:
    """Return how often a task is run again, by its options or else by its class."""
    given = options.retries
    return app_class.retries_failures if given is None else given


def size_of(task: Task) -> Size:
    """Return a task's size; an error becomes one line.

    Raises:
        InputError: `size` failed, for example because of an unreadable input, or returned
            something else.

    """
    name = type(task).__name__
    try:
        size: object = task.size()
    except HetError:
        raise
    except Exception as error:
        raise InputError(
            f"{name}: size: {type(error).__name__}: {one_line(error)}"
        ) from error
    if not isinstance(size, Size):
        raise InputError(f"{name}: size: expected a libtask.Size, got {shown(size)}")
    for amount in ("work", "input_bytes", "state_bytes", "memory_bytes"):
        value: object = getattr(size, amount)
        if not _is_amount(value):
            text = f"{name}: size: {amount}: expected a finite number from 0"
            raise InputError(f"{text}, got {shown(value)}")
    return size


def _is_amount(value: object) -> bool:
    """Return whether a value is a finite number that is not negative, of any library."""
    try:
        return 0 <= float(value) < math.inf  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False


def total_of(task: Task) -> int | None:
    """Return the iterations of a loaded task's outer loop; None: it ends by itself.

    Raises:
        InputError: `total` returned something else.

    """
    given: Any = task.total()
    if given is None:
        return None
    return _whole(task, given, 0, "total: expected a whole number from 0, or None,")


def part_granule_of(task: Task) -> int:
    """Return the iterations of a task that belong together in a part.

    Raises:
        InputError: `part_granule` returned something else.

    """
    given: Any = task.part_granule()
    return _whole(task, given, 1, "part_granule: expected a whole number from 1,")


def _whole(task: Task, given: Any, least: int, expected: str) -> int:
    try:
        found = operator.index(given)  # msgspec does not encode NumPy's integers
    except TypeError:
        found = least - 1
    if found < least or isinstance(given, bool):
        raise InputError(f"{type(task).__name__}: {expected} got {shown(given)}")
    return found


def short_name(app: str) -> str:
    """Shorten `/a/b/file.py:Class` to `file:Class`, as well as classes by value."""
    if is_value(app):
        return app.removeprefix(VALUE).partition(":")[2] or app
    if ".py:" not in app:
        return app
    path, _, class_name = app.rpartition(":")
    return f"{Path(path).stem}:{class_name}"


def _kinds(task: Task) -> list[Kind]:
    """Return the kinds that can run a task, by its `kinds` or its implementations."""
    own: Any = getattr(task, "kinds", None)
    kinds: list[Kind] = list(own()) if callable(own) else list(task.implementations)
    if not kinds:
        raise InputError(
            f"{type(task).__name__}: no implementation for any kind of device"
        )
    return kinds


def _refuse_too_big(app_class: type[Task], size: Size) -> None:
    needed = size.memory_bytes or size.input_bytes + size.state_bytes
    there = machine_memory()
    if needed > there:
        raise InputError(
            f"{app_class.__name__}: needs {readable_bytes(needed)},"
            f" this machine has {readable_bytes(there)}"
        )


@functools.cache
def machine_memory() -> int:
    """Return the memory of the machine or its container in bytes."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical


def readable_bytes(count: float) -> str:
    """Format a number of bytes with a suitable unit, e.g. `23.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if count < 1024:  # noqa: PLR2004  the step of binary prefixes
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} EiB"
