"""The prose of code and pages in plain English: docstrings, messages, help, documentation.

A package is checked once it is in `CLEAN`; every page of the documentation is checked, but
for its code. Each pattern is a habit that readers stumble over; the text behind it is the
way out.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CLEAN = (
    "apps",
    "daemon",
    "kernels",
    "libtask",
    "tests/simulated",
    "tests/torture",
    "tests/unit/hetctl",
    "tests/unit/hetsched/scheduler",
    "tools/hetbench",
    "tools/hetctl",
    "tools/hetdemo",
    "tools/hetdocs",
    "tools/hetpapers",
    "tools/hetpool",
    "tools/hetsim",
)
"""Folders whose prose is checked; whoever cleans another adds it."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

ANYWHERE = {
    r"\bin vain\b": "unsuccessfully, or `failed`",
    r"\banew\b": "again, or `from the beginning`",
    r"\bonce more\b": "again",
    r"\bbesides\b": "in addition, or `other than`",
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more than\b|such\b)": "is not a",
    r"\bso (?:many|much|long|often|few)\b(?! (?:that|as)\b)": "this many, or a number",
    r"\bas far as\b": "if, where, or up to",
    r"\btake note (?:of|that)\b": "record, set",
    r"\btake it that\b": "assume",
    r"\b(?:is|are|was|were) told\b": "is printed, is reported",
    r"\btells? of\b": "describes, reports",
    r"\bcomplains? (?:of|that)\b": "reports",
    r"\b(?:she|him|his|hers|himself|herself)\b|\bhe \w": "they",
    r"\brulers?\b|\bmay rule\b": "administrator",
    r"\b(?:sent|sends?|goes|go) home\b": "released, exits",
    r"\bgreet(?:s|ed|ing)?\b": "registers, connects",
    r"\bobey(?:s|ed|ing)?\b": "follows, stops",
    r"\bstillborn\b": "failed to start",
    r"\bis deaf\b": "does not respond",
    r"\bslips? of the finger\b": "a typing error",
    r"\b(?:it|them|that) no more\b": "no longer",
    r"\bwhat (?:is|are) to be\b": "a noun",
    r"(?:^|[.;:] )who(?:ever)? (?!else\b)\w+": "a noun: users who, the task that",
    r"\bunended\b(?! ON tasks)": "unfinished",  # the name of an index on disk stays
    r"\bstretch(?:es)?\b": "segment",
    r"\bby turns\b": "alternately, round robin",
    r"\ball the same\b": "nevertheless",
}
"""Pattern -> what to write instead."""

OPENINGS = {
    r"(?:Who|Whom|Whose|What)\b": "a noun phrase",
    r"(?:Whether who|Where|How (?:far|many|much|long|often))\b": "a noun phrase",
}
"""Patterns at the beginning of a docstring."""


def mistakes(text: str, *, docstring: bool = False) -> list[str]:
    """Return the hints for a text."""
    flat = " ".join(text.split())
    found = [
        hint
        for pattern, hint in ANYWHERE.items()
        if re.search(pattern, flat, re.IGNORECASE)
    ]
    if docstring:
        found += [hint for each, hint in OPENINGS.items() if re.match(each, flat)]
    return found


def prose(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, whether it is a docstring) of all texts with several words."""
    tree = ast.parse(source)
    bare = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if " " in node.value.strip():
            yield node.lineno, node.value, id(node) in bare
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# "), False


def passages(page: str) -> Iterator[str]:
    """Yield the paragraphs, list items and table cells of a page, without its code."""
    page = re.sub(r"^ *```.*?^ *```", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"^\n( {4}\S.*\n)+", "\n", page, flags=re.MULTILINE)
    page = re.sub(r"`[^`]*`", "X", page)
    page = re.sub(r"\]\([^)]*\)", "]", page).replace("**", "")
    for passage in re.split(
        r"\n\s*\n|\||^\s*(?:[-*]|\d+\.|#+)\s", page, flags=re.MULTILINE
    ):
        if " " in passage.strip():
            yield passage


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_plain_english(page: Path) -> None:
    found = [
        f"{' '.join(passage.split())[:80]!r}; try: {hint}"
        for passage in passages(page.read_text("utf-8"))
        for hint in mistakes(passage)
    ]

    assert found == []


def test_the_code_on_a_page_is_not_prose() -> None:
    page = "# A\n\n```sh\nanew\n```\n\n    in vain\n\nText `besides` it.\n\n| a b | c d |\n"

    assert [" ".join(p.split()) for p in passages(page)] == ["Text X it.", "a b", "c d"]


@pytest.mark.parametrize("package", CLEAN)
def test_prose_is_plain_english(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {' '.join(text.split())[:80]!r}; try: {hint}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text, docstring in prose(path.read_text("utf-8"))
        for hint in mistakes(text, docstring=docstring)
    ]

    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "There is no task; the device is no longer used.",
        "There are no more than 3, so long as this holds, so many that it fails.",
        "Return whether the process runs, and what it waits for.",
        "Users who have a quota; the history of this task; the other one.",
        "the heading; where the task ran; an order that the worker follows",
    ],
)
def test_plain_prose_passes(text: str) -> None:
    assert mistakes(text, docstring=True) == []


@pytest.mark.parametrize(
    "text",
    [
        "Who has slots is first.",
        "What a task printed.",
        "the passed socket is no listening socket",
        "At most so many, the newest.",
        "The user and his tasks.",
        "It stops; who waits hears of it.",
        "Begin anew; tried in vain.",
        "an unended task",
    ],
)
def test_odd_prose_is_found(text: str) -> None:
    assert mistakes(text, docstring=True)
