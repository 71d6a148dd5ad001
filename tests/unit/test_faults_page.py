"""The page on faults names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "faults.md"
NAMED = re.compile(
    r"`((?:hardware|hostile|property|sim\w*|system|unit)/[\w/]+)?(\.py)?(?:::(\w+))?`"
)
"""A file of tests, and a test of it; without the file, one of the file named before."""


def test_every_test_that_the_page_on_faults_names_is_there() -> None:
    file, found = Path(), 0
    for name, suffix, test in NAMED.findall(PAGE.read_text(encoding="utf-8")):
        if name:
            file = TESTS / (name + suffix)
            assert file.exists(), name
        if test:
            found += 1
            text = file.read_text(encoding="utf-8")
            assert f"def {test}(" in text, f"{file.name}::{test}"
    assert found > 20  # the page is read as it is written
