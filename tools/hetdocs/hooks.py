"""Hooks of MkDocs that add the pages generated from the code.

`python -m hetdocs.hooks` writes the published schemas again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hetctl.__main__ import main
from hetctl.documents.schemas import PRINTED, documents, file_name, schema_of
from hetctl.reference import manual
from hetdocs.keys import configuration

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def on_files(files: Any, config: Any) -> Any:
    """Add the manual and the list of documents; MkDocs calls it with all files known."""
    from mkdocs.structure.files import File

    pages = {
        "reference/hetctl.md": manual(main),
        "reference/configuration.md": configuration(),
        "reference/documents.md": listing(),
    }
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    return files


def listing() -> str:
    """List the JSON documents with their content, their commands and their schemas."""
    printers: dict[str, list[str]] = {}
    for command, printed in PRINTED.items():
        for name in printed:
            printers.setdefault(name, []).append(f"`{command}`")
    rows = [
        f"| [{name}](../schemas/{file_name(name)}) | {kind.__doc__} |"
        f" {', '.join(printers.get(name, []))} |"
        for name, kind in documents().items()
    ]
    return "\n".join(
        [INTRODUCTION, "| document | content | printed by |", "|---|---|---|", *rows]
    )


INTRODUCTION = """\
# JSON documents

Every command prints one JSON value with `--json` (`logs`, `events` and `models export` print one
per line), and its `"format"` names the document. Each document has a JSON Schema, generated from
the types that the commands are checked against; `hetctl doc --schema NAME` prints it. Keys may be
added. Removing a key, or changing its meaning, takes a new number in the name.
"""


def write_schemas() -> None:
    """Write `docs/schemas` again, and remove schemas of former documents."""
    wanted = {file_name(name): schema_of(name) for name in documents()}
    for path in SCHEMAS.iterdir():
        if path.name not in wanted:
            path.unlink()
    for name, schema in wanted.items():
        (SCHEMAS / name).write_text(json.dumps(schema, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    write_schemas()
