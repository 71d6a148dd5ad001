"""The picture of the modules in `docs/architecture.md`, drawn from their imports.

    python -m hetdocs.modules      draws it again into the page

Type-only imports count. An import that follows from others is left out.
"""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Graph = Mapping[str, frozenset[str]]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- modules: drawn by hetdocs.modules -->", "<!-- modules: end -->"
PACKAGES = {"hetd": ROOT / "daemon/hetd", "hetsched": ROOT / "daemon/hetsched"}


def imports_among(package: str, folder: Path) -> Graph:
    """Find which modules and folders at the top of a package import which others."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        own = path.relative_to(folder).parts[0].removesuffix(".py")
        if own != "__init__":
            found.setdefault(own, set()).update(_imported(path, package))
    return {name: frozenset(found[name] & (found.keys() - {name})) for name in found}


def _imported(path: Path, package: str) -> Iterator[str]:
    """List the names at the top of a package that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module == package:
            yield from (alias.name for alias in node.names)
        elif node.module.startswith(f"{package}."):
            yield node.module.split(".")[1]


def reduced(graph: Graph) -> Graph:
    """Leave out the imports that follow from others."""
    below: dict[str, frozenset[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        below[name] = graph[name].union(*(below[each] for each in graph[name]))
    return {
        name: graph[name].difference(*(below[each] for each in graph[name]))
        for name in graph
    }


def levels(graph: Graph) -> list[list[str]]:
    """Order by levels, the highest first: each imports from lower levels only."""
    height: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        height[name] = 1 + max((height[each] for each in graph[name]), default=-1)
    found: list[list[str]] = [[] for _ in range(1 + max(height.values()))]
    for name in sorted(height):
        found[-1 - height[name]].append(name)
    return found


def picture() -> str:
    """Draw the modules: a line each, above all that it imports."""
    return "\n".join(line for package in PACKAGES for line in _drawn(package)) + "\n"


def _drawn(package: str) -> Iterator[str]:
    graph = imports_among(package, PACKAGES[package])
    direct = reduced(graph)
    width = max(map(len, graph))
    yield package
    for level in levels(graph):
        for name in level:
            below = ", ".join(sorted(direct[name]))
            yield f"    {name:{width}} ─► {below}" if below else f"    {name}"


def redrawn(page: str) -> str:
    """Return the page with the picture as the imports are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n```\n{picture()}```\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
