"""The keys of `hetd.toml`, from the code that reads them: types, defaults, docs."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hetd import config
from hetd.config import RELOADABLE, Config

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES: dict[str, type[msgspec.Struct]] = {
    "[limits]": config.LimitsTable,
    "[limits.user.NAME]": config.UserTable,
    "[snapshots]": config.SnapshotsTable,
    "[contention]": config.ContentionTable,
    "[[contention.shared]]": config.SharedTable,
    "[[contention.load]]": config.LoadTable,
    "[[resource]]": config.ResourceTable,
}
"""Tables below the top, by their written names."""

AT_START = (
    config.ResourceTable,
    config.ContentionTable,
    config.SharedTable,
    config.LoadTable,
)
"""Tables that are read at a start only."""

TYPES = {
    "str": "string",
    "float": "number",
    "int": "integer",
    "bool": "true or false",
    "Count": 'integer or "unlimited"',
    "Count | None": 'integer or "unlimited"',
    "float | None": "number",
    "Kind": '"cpu", "gpu" or "fpga"',
    "dict[str, Any]": "table",
    "dict[str, str]": "table of strings",
    "dict[str, dict[str, str]]": "table of tables of strings",
    "Literal['cores', 'memory', 'link', 'slices', 'bus', 'network']": (
        '"cores", "memory", "link", "slices", "bus" or "network"'
    ),
    "Literal['leave', 'preempt']": '"leave" or "preempt"',
}
"""Names of types for readers; a missing one is a bug."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `default` has the form of the file; empty: there is none."""

    name: str
    type: str
    default: str
    text: str
    reloaded: bool


def tables() -> Iterator[tuple[str, str, list[Key]]]:
    """Iterate over tables: (written name, description, keys)."""
    yield "", inspect.getdoc(Config) or "", list(keys_of(Config))
    for written, table in TABLES.items():
        yield written, inspect.getdoc(table) or "", list(keys_of(table))


def configuration() -> str:
    """Return all keys as one page of Markdown."""
    parts = [INTRODUCTION]
    for written, text, keys in tables():
        parts.append(f"## `{written}`\n\n{text}" if written else text)
        rows = [
            f"| `{key.name}` | {key.type} | {_code(key.default)} | {key.text} |"
            f" {'yes' if key.reloaded else ''} |"
            for key in keys
        ]
        head = ["| key | value | default | means | reloaded |", "|---|---|---|---|---|"]
        parts.append("\n".join([*head, *rows]))
    return "\n\n".join(parts) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


INTRODUCTION = """\
# hetd.toml

Every key may be left out. A key that does not exist, or a value of the wrong type, keeps hetd from
starting, with exit status 2 and one line that names the place. *Reloaded* keys take effect on
SIGHUP, the others at the next start."""


def keys_of(table: type[msgspec.Struct]) -> Iterator[Key]:
    """List the keys of a table that are not tables themselves."""
    texts = _texts(table)
    below = {kind.__name__ for kind in TABLES.values()}
    for field in msgspec.structs.fields(table):
        annotation, text = texts[field.name]
        if any(name in annotation for name in below):
            continue
        reloaded = table is not Config or field.name in RELOADABLE
        yield Key(
            field.name,
            TYPES[annotation],
            _default(field),
            text,
            reloaded and table not in AT_START,
        )


def _default(field: msgspec.structs.FieldInfo) -> str:
    value: Any = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT or value is None:
        return ""
    return json.dumps(value)


def _texts(table: type) -> dict[str, tuple[str, str]]:
    """Read field -> (annotation, the string below it)."""
    (body,) = ast.parse(inspect.getsource(table)).body
    assert isinstance(body, ast.ClassDef)  # noqa: S101  it is the source of a class
    found = {}
    for position, statement in enumerate(body.body):
        if isinstance(statement, ast.AnnAssign):
            following = body.body[position + 1 : position + 2]
            name = ast.unparse(statement.target)
            found[name] = ast.unparse(statement.annotation), _string(following)
    return found


def _string(following: list[ast.stmt]) -> str:
    for statement in following:
        if isinstance(statement, ast.Expr) and isinstance(
            statement.value, ast.Constant
        ):
            return " ".join(str(statement.value.value).split())
    return ""
