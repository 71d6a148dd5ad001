"""The seeded bugs fit the code as it is; `python -m hettorture bugs` tries them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hettorture.bugs import SOURCES
from hettorture.seeds import SEEDS
from libtask.faultpoints import POINTS


@pytest.mark.parametrize("name", SEEDS)
def test_a_seeded_bug_fits(name: str) -> None:
    bug = SEEDS[name]

    source = (SOURCES / bug.file).read_text(encoding="utf-8")

    assert source.count(bug.right) == 1, "write it anew in tools/hettorture/seeds.py"
    compile(source.replace(bug.right, bug.wrong), bug.file, "exec")


@pytest.mark.parametrize("name", SEEDS)
def test_who_notices_a_bug_is_there(name: str) -> None:
    program, *words = SEEDS[name].noticed_by

    if program == "pytest":
        for word in (word for word in words if word.startswith("tests/")):
            path, _, test = word.partition("::")
            source = Path(SOURCES, path).read_text(encoding="utf-8")
            assert not test or re.search(rf"^def {test}\(", source, re.MULTILINE), word
    elif words[0] == "points":
        assert set(words[2].split(",")) <= set(POINTS)


def test_there_are_enough() -> None:
    assert len(SEEDS) >= 20
