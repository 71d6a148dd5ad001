"""JSON Schemas of the documents, generated from their types: they cannot rot."""

from __future__ import annotations

from types import ModuleType
from typing import Any, get_args, get_type_hints, is_typeddict

import msgspec

from hetctl.documents import accounts, node, tasks
from libtask.errors import NotFoundError
from libtask.parameters import suggestion

MODULES: tuple[ModuleType, ...] = (tasks, accounts, node)
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def documents() -> dict[str, type]:
    """Return the type of each document by its format, as `hetctl/task-1`."""
    found = [each for module in MODULES for each in vars(module).values()]
    return {
        get_args(get_type_hints(each)["format"])[0]: each
        for each in found
        if is_typeddict(each) and "format" in each.__annotations__
    }


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, named by its format or the part after `/`.

    Raises:
        NotFoundError: there is no such document.

    """
    known = documents()
    full = name if "/" in name else f"hetctl/{name}"
    if full not in known:
        hint = suggestion(full, known)
        raise NotFoundError(
            f"no document {name!r}{hint}; there are: {', '.join(known)}"
        )
    head = {"$schema": DIALECT, "$id": f"urn:{full.replace('/', ':')}"}
    return head | msgspec.json.schema(known[full])


def file_name(name: str) -> str:
    """Return the name of a document's file in `docs/schemas`."""
    return name.replace("/", "-") + ".json"
