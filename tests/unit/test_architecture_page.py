"""`docs/architecture.md`: its picture is that of the imports, its files are there."""

from __future__ import annotations

import re

import pytest

from hetdocs.modules import PACKAGES, PAGE, ROOT, imports_among, levels, redrawn

NAMED = re.compile(r"`((?:daemon|libtask|tools|tests|apps|kernels)/[\w/.]+)`")


def test_the_picture_is_that_of_the_imports() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert redrawn(page) == page, "draw it again: python -m hetdocs.modules"


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_import_downwards_only(package: str) -> None:
    graph = imports_among(package, PACKAGES[package])
    height = {
        name: -number for number, level in enumerate(levels(graph)) for name in level
    }

    assert all(height[low] < height[high] for high in graph for low in graph[high])


def test_the_files_that_it_names_are_there() -> None:
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))

    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
