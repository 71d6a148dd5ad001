"""Batch files: a TOML list of tasks, checked completely before anything is submitted.

    [[task]]
    app = "heat"
    name = "first"
    params = { n = 4096, steps = 100 }

    [[task]]
    app = "correlation"
    after = ["first"]
    priority = 5

A table with `sweep` describes one task per combination of values, one with `zip` one task
per position in its lists; `{n}` in a text is replaced by the value of `n`:

    [[task]]
    app = "heat"
    params = { steps = 100, output = "plate-{n}.npy" }
    sweep = { n = [1024, 2048], edge = [0.0, 1.0] }

Every mistake is reported with its place, `batch.toml: task[1].priority: …`; tasks are
counted from 0.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import msgspec
from msgspec import Meta
from msgspec.structs import replace as replaced

from hetctl.output import now
from hetctl.submission.programs import (
    KINDS,
    able_kinds,
    check_pattern,
    current_umask,
    resources_in,
    unknown_place,
)
from hetctl.submission.variants import MOST, combinations, filled, member
from hetctl.units import beginning, parse_duration, parse_size
from libtask.apps import Options, check_job, describe, drafted, resolve
from libtask.client.client import Selection
from libtask.commands.command import Command, label_of
from libtask.complaints import complaint_of
from libtask.documents import (
    ALL_CORES,
    LARGEST_WHOLE,
    MAX_AT_ONCE,
    MAX_CORES,
    MAX_RETRIES,
    check_numbers,
    decoded,
)
from libtask.errors import InputError, NotAllowedError
from libtask.inputs import TaskReference
from libtask.messages import ENDED, ResultInput, TaskSpec, renumbered
from libtask.messages.base import ExpectedSeconds
from libtask.whole_files import MIB, read_whole
from libtask.wording import one_line, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hetctl.submission.programs import Environments
    from libtask.client.client import Client
    from libtask.messages import TaskInfo

LARGEST_BATCH = 256 * MIB
"""Maximum bytes of a batch file: programs write such of a million tables, too."""


class Inflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Data from another task."""

    source: str | int = msgspec.field(name="from")
    """Name of an earlier task of the file, or id of a submitted one."""
    bytes: int = 0
    """Amount of the data, for the policy."""
    parameter: str = ""
    """Parameter that gets the result; of several tasks, the list of their results."""


class EarlierTask(TaskReference):
    """Stands for the result of another task, by its number in the file or its negated id."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    @property
    def input_id(self) -> int:
        return self._number


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[task]]` table."""

    app: str = ""
    params: dict[str, Any] = {}
    command: list[str] = []
    """A program and its arguments, in place of an application."""
    env: dict[str, str] = {}
    """Variables of the program, in addition to those of all programs of the file."""
    input: str = ""
    """File of the program's standard input; empty: it has none."""
    output: str = ""
    """File of the program's output; empty: the task's log."""
    error: str = ""
    """File of its standard error; empty: that of the output."""
    sweep: dict[str, list[Any]] = {}
    """Values of parameters, combined in all ways."""
    zip: dict[str, list[Any]] = {}
    """Values of parameters, side by side."""
    name: str = ""
    after: list[str | int] = []
    """Names of earlier tasks of the file, or ids of submitted ones."""
    after_any: list[str | int] = []
    """Those that may end in any way."""
    after_notok: list[str | int] = []
    """Those of which one at least must not complete."""
    inputs: list[Inflow] = []
    """Earlier tasks that pass data to this one."""
    priority: int = 0
    count: int = 1
    hold: bool = False
    on: list[str] = []
    """Allowed resources; empty: any."""
    strip: int | None = None
    deadline: float | str | None = None
    """Time from submission to the deadline: seconds, or a duration such as "5s"."""
    overrun: Literal["continue", "stop"] = "continue"
    cores: Annotated[int, Meta(ge=1, le=MAX_CORES)] | Literal["all"] | None = None
    memory: int | str = 0
    """Memory that each task needs: bytes, or a size such as "4G"."""
    device_memory: int | str = 0
    time: float | str | None = None
    """Time for which each task may run: seconds, or a duration such as "30m"."""
    seconds: dict[str, ExpectedSeconds] = {}
    """Time that is expected of each task, by resource or kind."""
    retries: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] | None = None
    """Maximum number of times that each task is run again if it fails."""
    at_once: Annotated[int, Meta(ge=0, le=MAX_AT_ONCE)] = 0
    """Maximum number of tasks of this table that run at once; 0: any number."""
    begin: Any = None
    """Time from which each task may start: a TOML time, or a text such as "+2h"."""


KEYS = Entry.__struct_fields__
CONDITIONS = ("after", "after_any", "after_notok")
"""Keys that name earlier tasks, as a task has them."""
FOR_APPS = ("params", "strip")
FOR_PROGRAMS = ("env", "input", "output", "error")
"""Keys that only an application, or only a program, may have."""
STANDARD_INPUT = Path("-")


class BatchFile:
    """Reads a file into task descriptions and collects all mistakes in it.

    Args:
        path: the file; `-` is standard input.
        environments: keeps the environments of programs.
        kinds: the kind of each resource of the node; None: not known.
        job: name of the job; empty: that in the file, if there is one.

    """

    def __init__(
        self,
        path: Path,
        environments: Environments,
        kinds: dict[str, str] | None = None,
        job: str = "",
    ) -> None:
        self._path = path
        self._environments = environments
        self._kinds = kinds
        self._job = job
        self._mistakes: list[str] = []
        self._specs: list[TaskSpec] = []
        self._named: dict[str, list[int]] = {}
        self._first: dict[str, TaskSpec] = {}
        """The first task of each table, by its place."""
        self._submitted: dict[int, dict[str, str]] = {}
        """Ids of submitted tasks -> the places that name them, with the keys of these."""

    def read(self) -> list[TaskSpec]:
        """Return the tasks in order.

        Raises:
            InputError: the file has mistakes; the text has a line for each.

        """
        for index, table in enumerate(self._tables()):
            self._add(index, table)
        if self._mistakes:
            raise InputError("\n".join(self._mistakes))
        return self._specs

    def ask(self, client: Client) -> None:
        """Have the daemon check the tasks: it knows the node's limits, and other tasks.

        Raises:
            InputError: it would refuse some of them; the text has a line for each table.

        """
        refused: dict[bytes, InputError | None] = {}
        kind = self._check_submitted(client)
        for where, first in self._first.items():
            spec = _alone(first)
            key = msgspec.msgpack.encode(spec)
            if key not in refused:
                refused[key] = _refusal(client, spec)
            if error := refused[key]:
                kind = type(error)
                self._mistake(where, str(error))
        if self._mistakes:
            raise kind("\n".join(self._mistakes))

    def _check_submitted(self, client: Client) -> type[InputError]:
        """Check that the tasks that are named by id are there, and may be waited for.

        Returns:
            the class of the last mistake.

        """
        kind = InputError
        found = _look_up(client, tuple(self._submitted))
        for task, places in self._submitted.items():
            for where, key in places.items():
                if error := _reference_error(found[task], key):
                    kind = type(error)
                    self._mistake(where, str(error))
        return kind

    def _tables(self) -> list[Any]:
        try:
            document = decoded(tomllib.loads, self._text())
            check_numbers(document, LARGEST_WHOLE)
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror}") from error
        except (ValueError, InputError) as error:  # not TOML, or not UTF-8
            raise InputError(f"{self._path}: {one_line(error)}") from error
        for key in set(document) - {"task", "job"}:
            hint = suggestion(key, ["task", "job"])
            self._mistake(key, f"unknown key{hint}; tasks are [[task]] tables")
        self._read_job(document.get("job", ""))
        tables = document.get("task", [])
        if not isinstance(tables, list) or not tables:
            self._mistake("task", "expected one or more [[task]] tables")
            return []
        return tables

    def _read_job(self, name: object) -> None:
        if not isinstance(name, str):
            self._mistake("job", f"expected a text, got {name!r}")
            return
        try:
            self._job = check_job(self._job or name)
        except InputError as error:
            self._mistake("job", str(error))

    def _text(self) -> str:
        is_input = self._path == STANDARD_INPUT
        source = sys.stdin.buffer if is_input else self._path
        return read_whole(source, LARGEST_BATCH).decode()

    def _add(self, index: int, table: Any) -> None:
        where = f"task[{index}]"
        if not isinstance(table, dict):
            self._mistake(where, f"expected a table, got {table!r}")
            return
        self._check_keys(where, table)
        # wrong values are left out so that the rest is checked in the same run
        entry = _sound(table)
        after, after_any, after_notok = (
            self._references(f"{where}.{key}", getattr(entry, key), key)
            for key in CONDITIONS
        )
        specs = self._described(where, entry)
        first = len(self._specs)
        self._name(where, entry, first, len(specs))
        self._check_places(where, entry, specs)
        if specs:
            self._first[where] = specs[0]
        specs = [
            replaced(spec, after=after, after_any=after_any, after_notok=after_notok)
            for spec in specs
        ]
        self._specs += [
            _relative(spec, first + number) for number, spec in enumerate(specs)
        ]

    def _check_keys(self, where: str, table: dict[str, Any]) -> None:
        for key in table:
            if key not in KEYS:
                self._mistake(f"{where}.{key}", f"unknown key{suggestion(key, KEYS)}")
        self._check_program(where, table)
        for field in msgspec.structs.fields(Entry):
            if field.name in table:
                self._check_value(
                    f"{where}.{field.name}", table[field.name], field.type
                )
        for key in ("count", "strip"):
            if isinstance(table.get(key), int) and table[key] < 1:
                self._mistake(
                    f"{where}.{key}", f"expected at least 1, got {table[key]}"
                )

    def _check_program(self, where: str, table: dict[str, Any]) -> None:
        """Check that a table describes either an application or a program."""
        if "app" in table and "command" in table:
            self._mistake(f"{where}.command", "expected either app or command")
        elif "app" not in table and "command" not in table:
            self._mistake(f"{where}.app", "missing; for a program: command")
        elif table.get("command") == []:
            self._mistake(f"{where}.command", "expected a program and its arguments")
        wrong = FOR_APPS if "command" in table else FOR_PROGRAMS
        for key in table.keys() & set(wrong):
            kind = "an application" if key in FOR_APPS else "a program"
            self._mistake(f"{where}.{key}", f"only {kind} has it")

    def _check_value(self, where: str, value: Any, kind: Any) -> None:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            complaint = complaint_of(error, value, kind, root=where)
            self._mistakes.append(f"{self._path}: {complaint}")

    def _references(
        self, where: str, names: Sequence[str | int], key: str
    ) -> list[int]:
        """Return the positions of tasks in the file, and negated ids of submitted tasks."""
        found: list[int] = []
        for index, name in enumerate(names):
            found += self._reference(f"{where}[{index}]", name, key)
        return found

    def _reference(self, where: str, name: str | int, key: str) -> list[int]:
        """Return the positions of the tasks of a name, or a negated id."""
        if isinstance(name, int) and name > 0:
            self._submitted.setdefault(name, {})[where] = key
            return [-name]
        if isinstance(name, str) and name in self._named:
            return self._named[name]
        hint = suggestion(str(name), self._named)
        self._mistake(where, f"no earlier task {name!r}{hint}")
        return []

    def _described(self, where: str, entry: Entry) -> list[TaskSpec]:
        """Return the tasks of a table; empty if it has a mistake."""
        options = self._options(where, entry)
        inputs, results = self._inflows(where, entry)
        variants = self._variants(where, entry)
        if entry.command:
            specs = self._programs(where, entry, options, variants)
            if results:
                place = f"{where}.inputs"
                self._mistake(place, "a program has no parameter that takes a result")
        elif entry.app:
            specs = self._applications(where, entry, options, (variants, results))
        else:
            return []  # _check_keys has reported it
        count = len(specs) * entry.count
        if count > MOST:
            self._mistake(f"{where}.count", f"{count} tasks; {MOST} are the limit")
            return specs
        return [with_inputs(spec, inputs) for spec in specs for _ in range(entry.count)]

    def _applications(
        self,
        where: str,
        entry: Entry,
        options: Options,
        values: tuple[list[dict[str, Any]], dict[str, Any]],
    ) -> list[TaskSpec]:
        """Return the tasks of an application, for its variants and with given results."""
        variants, results = values
        try:
            app_class = resolve(entry.app)
        except InputError as error:
            self._mistake(f"{where}.app", str(error))
            return []
        specs: list[TaskSpec] = []
        for number, variant in enumerate(variants):
            name = member(entry.name, variant, number)
            params = filled(entry.params, variant) | variant | results
            try:
                task = drafted(app_class, params)
                specs.append(describe(task, entry.app, replace(options, name=name)))
            except InputError as error:
                self._mistake(f"{where}.params", f"{error}{_with(variant)}")
                return []  # the other variants would give the same error
        return specs

    def _programs(
        self,
        where: str,
        entry: Entry,
        options: Options,
        variants: list[dict[str, Any]],
    ) -> list[TaskSpec]:
        """Return the tasks of a program, for its variants."""
        specs: list[TaskSpec] = []
        for number, variant in enumerate(variants):
            name = member(entry.name, variant, number)
            try:
                command = self._command(entry, variant, options.resources)
                specs.append(describe(command, "command", replace(options, name=name)))
            except (ValueError, InputError) as error:
                self._mistake(f"{where}.command", one_line(error) + _with(variant))
                return []
            except click.UsageError as error:
                self._mistake(where, error.format_message() + _with(variant))
                return []
        return specs

    def _command(
        self, entry: Entry, variant: dict[str, Any], resources: Sequence[str]
    ) -> Command:
        """Return a program as a task."""
        files = filled([entry.input, entry.output, entry.error], variant)
        for pattern in files:
            check_pattern(pattern)
        source, output, error = files
        return Command(
            argv=filled(entry.command, variant),
            able=able_kinds(self._kinds or {}, resources),
            environment=self._environments.keep(filled(entry.env, variant)),
            folder=self._environments.folder,
            name=entry.name or label_of(entry.command),
            umask=current_umask(),
            input=source,
            output=output,
            error=error,
        )

    def _inflows(
        self, where: str, entry: Entry
    ) -> tuple[dict[int, int], dict[str, Any]]:
        """Return the bytes from each other task, and the parameters with results."""
        inputs: dict[int, int] = {}
        results: dict[str, Any] = {}
        for index, each in enumerate(entry.inputs):
            place = f"{where}.inputs[{index}]"
            tasks = self._reference(f"{place}.from", each.source, "inputs")
            if each.bytes < 0:
                self._mistake(
                    f"{place}.bytes", f"expected at least 0, got {each.bytes}"
                )
            if each.parameter in {*entry.params, *entry.sweep, *entry.zip, *results}:
                self._mistake(f"{place}.parameter", f"{each.parameter} is given twice")
            inputs |= dict.fromkeys(tasks, max(0, each.bytes))
            if each.parameter and tasks:
                taken = [EarlierTask(task) for task in tasks]
                results[each.parameter] = taken[0] if len(taken) == 1 else taken
        return inputs, results

    def _variants(self, where: str, entry: Entry) -> list[dict[str, Any]]:
        """Return the swept values of each task; without a sweep, one empty variant."""
        taken = set(entry.params)
        for table, values in (("sweep", entry.sweep), ("zip", entry.zip)):
            for key, some in values.items():
                if key in taken:
                    self._mistake(f"{where}.{table}.{key}", "given twice")
                if not some:
                    self._mistake(f"{where}.{table}.{key}", "expected some values")
            taken |= set(values)
        try:
            return combinations(entry.sweep, entry.zip)
        except ValueError as error:
            self._mistake(f"{where}.zip" if entry.zip else f"{where}.sweep", str(error))
            return []

    def _check_places(self, where: str, entry: Entry, specs: list[TaskSpec]) -> None:
        """Check that the node has the resources, and that one can run the task."""
        if self._kinds is None:
            return
        known = {*self._kinds, *KINDS}
        unknown = [name for name in entry.on if name not in known]
        for name in unknown:
            place = f"{where}.on[{entry.on.index(name)}]"
            offered = f"; there are: {', '.join(self._kinds)}"
            hint = suggestion(name, self._kinds)
            self._mistake(place, f"no resource {name!r}{hint}{offered}")
        for spec in specs[:1]:
            allowed = {
                self._kinds[name]
                for name in spec.resources or self._kinds
                if name in self._kinds
            }
            if not unknown and not allowed & set(spec.kinds):
                there = f"on {', '.join(entry.on)}" if entry.on else "on this node"
                able = ", ".join(spec.kinds)
                what = entry.app or entry.command[0]
                text = f"{what} cannot run {there}: it is implemented for {able}"
                self._mistake(f"{where}.on", text)

    def _options(self, where: str, entry: Entry) -> Options:
        return Options(
            priority=entry.priority,
            hold=entry.hold,
            resources=tuple(self._resources(f"{where}.on", entry.on)),
            seconds=self._expected(f"{where}.seconds", entry.seconds),
            strip=entry.strip,
            deadline_s=self._duration(f"{where}.deadline", entry.deadline),
            overrun=entry.overrun,
            cores=ALL_CORES if entry.cores == "all" else entry.cores,
            memory_bytes=self._size(f"{where}.memory", entry.memory),
            device_bytes=self._size(f"{where}.device_memory", entry.device_memory),
            time_limit_s=self._duration(f"{where}.time", entry.time),
            job=self._job,
            retries=entry.retries,
            at_once=entry.at_once,
            begin=self._beginning(f"{where}.begin", entry.begin),
        )

    def _resources(self, place: str, words: list[str]) -> list[str]:
        """Replace the names of kinds by their resources."""
        if self._kinds is None:
            return words
        try:
            return resources_in(self._kinds, words)
        except InputError as error:
            self._mistake(place, str(error))
            return []

    def _expected(self, place: str, seconds: dict[str, float]) -> dict[str, float]:
        """Note a place that the node does not have, if it is known what it has."""
        if self._kinds is not None:
            unknown = unknown_place(list(self._kinds), seconds)
            if unknown:
                self._mistake(place, unknown)
        return seconds

    def _size(self, place: str, size: int | str) -> int:
        try:
            return parse_size(str(size)) if size else 0
        except ValueError as error:
            self._mistake(place, str(error))
            return 0

    def _beginning(self, place: str, begin: object) -> float | None:
        if begin is None:
            return None
        text = begin.isoformat() if isinstance(begin, dt.date | dt.time) else str(begin)
        try:
            return beginning(text, now())
        except ValueError as error:
            self._mistake(place, str(error))
            return None

    def _duration(self, place: str, duration: float | str | None) -> float | None:
        if duration is None:
            return None
        try:
            seconds = _seconds(duration)
        except ValueError as error:
            self._mistake(place, str(error))
            return None
        if not 0 < seconds < math.inf:  # TOML has inf and nan
            self._mistake(place, f"expected seconds above 0, got {duration}")
        return seconds

    def _name(self, where: str, entry: Entry, first: int, count: int) -> None:
        if not entry.name:
            return
        if entry.name in self._named:
            self._mistake(
                f"{where}.name", f"{entry.name!r} is taken by an earlier task"
            )
        self._named[entry.name] = list(range(first, first + count))

    def _mistake(self, where: str, text: str) -> None:
        self._mistakes.append(f"{self._path}: {where}: {text}")


def _sound(table: dict[str, Any]) -> Entry:
    """Return the valid values of a table; wrong ones get their defaults."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(Entry):
        if field.name in table:
            with contextlib.suppress(msgspec.ValidationError):
                values[field.name] = msgspec.convert(table[field.name], field.type)
    if isinstance(values.get("count"), int):
        values["count"] = max(1, values["count"])
    return Entry(**values)


def _with(variant: dict[str, Any]) -> str:
    """Name the values of a variant in a mistake."""
    return "".join(f" with {key} = {value!r}" for key, value in variant.items())


def _seconds(deadline: float | str) -> float:
    return parse_duration(deadline) if isinstance(deadline, str) else deadline


def with_inputs(spec: TaskSpec, amounts: dict[int, int]) -> TaskSpec:
    """Add the amounts of data that other tasks pass."""
    places = {each.task: each.places for each in spec.inputs}
    inputs = [
        ResultInput(task, amount, places.get(task, []))
        for task, amount in amounts.items()
    ]
    return replaced(spec, inputs=inputs)


def _alone(spec: TaskSpec) -> TaskSpec:
    """Return a task without what does not matter to the node, and names no other tasks."""
    return replaced(
        spec, params={}, name="", inputs=[], after=[], after_any=[], after_notok=[]
    )


def _refusal(client: Client, spec: TaskSpec) -> InputError | None:
    """Return the error with which the daemon would refuse a task; None: it would not."""
    try:
        client.estimate_spec(spec)
    except InputError as error:
        return error
    return None


def _look_up(
    client: Client, ids: tuple[int, ...]
) -> Mapping[int, TaskInfo | InputError]:
    """Return what there is of submitted tasks, or why the user may not name them."""
    with contextlib.suppress(InputError):
        return {info.id: info for info in client.iterate(Selection(ids=ids))}
    found: dict[int, TaskInfo | InputError] = {}
    for task in ids:
        try:
            found[task] = client.show(task)
        except InputError as error:
            found[task] = error
    return found


def _reference_error(found: TaskInfo | InputError, key: str) -> InputError | None:
    """Return why hetd would refuse that a task comes after another one; None: it would not.

    Args:
        found: the other task, or why there is none.
        key: `inputs`, or one of `CONDITIONS`.

    """
    if isinstance(found, InputError):
        return found
    if key == "inputs" and found.owner != f"uid:{os.getuid()}":
        return NotAllowedError(f"task {found.id} belongs to another user")
    if key == "after" and found.state in ENDED - {"completed"}:
        reason = f": {found.reason}" if found.reason else ""
        return InputError(f"task {found.id} ended as {found.state}{reason}")
    return None


def _relative(spec: TaskSpec, position: int) -> TaskSpec:
    """Set the references in the form of the wire: `-k` is the k-th task before this one."""
    return renumbered(spec, lambda each: -each if each < 0 else each - position)
