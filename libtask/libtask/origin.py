"""Origins: the interpreter, module path and environment that tasks were submitted from.

An origin is kept as an attachment, so that hetd and listings know only its digest. A
client writes it; the owner's launcher reads it to start a worker of that interpreter,
which then takes on the path and the environment.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENVIRONMENT_BYTES = 256 << 10
"""Maximum bytes of an environment."""
PATH_BYTES = 64 << 10
"""Maximum bytes of a module path."""
ALWAYS = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER")
"""Variables that a task always has."""
OF_ONE_PROCESS = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
"""Variables of a shell that differ from command to command; tasks have a folder instead."""
SOCKET = "HETD_SOCKET"
AT_START = frozenset({"GLIBC_TUNABLES", "HOME", "LANG", "LANGUAGE", "TZ"})
"""Variables that an interpreter, or a library that launchers import, reads at its start."""
AT_START_PREFIXES = (
    "BLIS_",
    "GOMP_",
    "KMP_",
    "LC_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NPY_",
    "NUMBA_",
    "NUMPY_",
    "OMP_",
    "OPENBLAS_",
    "PYOPENCL_",
    "PYTHON",
)


class Origin(msgspec.Struct, frozen=True):
    """The interpreter, module path and environment of a submission.

    Attributes:
        python: path of the interpreter; empty: unknown, so that the launcher's is used.
        prefix: its `sys.prefix`, that of a virtual environment.
        path: its `sys.path`.
        variables: its environment, as bytes: variables need not be text.

    """

    python: bytes
    prefix: bytes
    path: list[bytes]
    variables: dict[bytes, bytes]

    @property
    def interpreter(self) -> str:
        return os.fsdecode(self.python)

    def enter(self) -> None:
        """Take on the environment and the module path in this new process."""
        os.environb.clear()
        os.environb.update(self.variables)
        time.tzset()
        own = [os.fsdecode(each) for each in self.path]
        # libtask itself may be elsewhere
        sys.path[:] = list(dict.fromkeys([*own, *sys.path]))
        importlib.invalidate_caches()


def exported(export: str, variables: Mapping[str, str]) -> dict[bytes, bytes]:
    """Choose variables from this process's environment.

    Args:
        export: `all`, `none`, or names separated by commas.
        variables: further ones, which take precedence.

    Raises:
        InputError: there is no such variable, or they are too large.

    """
    found = _chosen(export)
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise InputError(f"environment: expected KEY=VALUE, got {name}={value!r}")
        found[os.fsencode(name)] = os.fsencode(value)
    size = sum(len(name) + len(value) + 2 for name, value in found.items())
    if size > ENVIRONMENT_BYTES:
        raise InputError(
            f"the environment has {size} bytes, at most {ENVIRONMENT_BYTES}; "
            "pass fewer variables, such as export=A,B"
        )
    return found


def _chosen(export: str) -> dict[bytes, bytes]:
    if export == "all":
        return dict(os.environb)
    names = () if export == "none" else tuple(map(str.strip, export.split(",")))
    absent = [name for name in names if name not in os.environ]
    if absent:
        raise InputError(f"export: there is no variable {absent[0]!r}")
    there = [name for name in (*ALWAYS, *names) if name in os.environ]
    return {os.fsencode(name): os.environb[os.fsencode(name)] for name in there}


def current_folder() -> str:
    """Return the path of the current folder, which relative names in a task refer to.

    Raises:
        InputError: it was removed.

    """
    try:
        return os.getcwd()  # noqa: PTH109  for speed
    except FileNotFoundError:
        raise InputError(
            "the current folder was removed; change to one that exists"
        ) from None


def here(variables: Mapping[bytes, bytes]) -> Origin:
    """Return the origin of tasks that this process submits.

    Args:
        variables: its environment; without those of one process and of another task.

    Raises:
        InputError: the module path is too long.

    """
    path = [os.fsencode(each) for each in _module_path()]
    if sum(map(len, path)) > PATH_BYTES:
        raise InputError(f"sys.path has more than {PATH_BYTES} bytes")
    kept = {name: variables[name] for name in sorted(variables) if _is_kept(name)}
    return Origin(os.fsencode(sys.executable or ""), _prefix(), path, kept)


def _prefix() -> bytes:
    return os.fsencode(sys.prefix)


def _module_path() -> Iterable[str]:
    """Return `sys.path` with absolute folders; without that of a program like hetctl."""
    programs = os.path.dirname(sys.executable or "")  # noqa: PTH120  for speed
    for place in sys.path:
        if place != programs:
            yield place if place.startswith("/") else str(Path(place).absolute())


def _is_kept(name: bytes) -> bool:
    text = os.fsdecode(name)
    if text in OF_ONE_PROCESS:
        return False
    return not text.startswith("HETD_") or text == SOCKET


def packed(origin: Origin) -> bytes:
    """Encode an origin; equal origins have equal encodings."""
    return msgspec.msgpack.encode(origin)


def unpacked(content: bytes) -> Origin:
    """Decode an origin.

    Raises:
        InputError: the content is not an origin.

    """
    try:
        return msgspec.msgpack.decode(content, type=Origin)
    except msgspec.MsgspecError as error:
        raise InputError(f"not the environment of a submission: {error}") from error


# ---------------------------------------------------------------- interpreters


class Interpreter(msgspec.Struct, frozen=True):
    """An interpreter with the variables that it has read at its start.

    Workers of equal ones can be forked from the same process.
    """

    program: str
    """The file that is executed, symbolic links resolved."""
    prefix: str
    variables: tuple[tuple[bytes, bytes], ...]


def interpreter_of(origin: Origin) -> Interpreter:
    """Return the interpreter that tasks of an origin need."""
    program = os.path.realpath(origin.interpreter)
    variables = tuple(sorted(at_start(origin.variables).items()))
    return Interpreter(program, os.fsdecode(origin.prefix), variables)


def own_interpreter() -> Interpreter:
    """Return the interpreter of this process with its present environment."""
    python, variables = os.fsencode(sys.executable or ""), dict(os.environb)
    return interpreter_of(Origin(python, _prefix(), [], variables))


def at_start(variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that matter when an interpreter starts."""
    return {name: value for name, value in variables.items() if _matters(name)}


def _matters(name: bytes) -> bool:
    text = os.fsdecode(name)
    return text in AT_START or text.startswith(AT_START_PREFIXES)
