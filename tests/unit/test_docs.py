"""The documentation builds without a warning, and names only commands that there are."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from hetctl.__main__ import ALIASES, main
from hetctl.reference import SELECTORS, commands, manual
from hetctl.selectors import EVERY, JOB, WORDS
from hetsim.__main__ import cli as simulator
from libtask.documents import LARGEST_WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROMPT = re.compile(r"^\$ (hetctl .*?)(?:  +#.*)?$", re.MULTILINE)
KNOWN = dict(commands(main))


def shown() -> Iterator[tuple[str, str]]:
    """Find the commands that pages show at a prompt: (page, line)."""
    for page in PAGES:
        for line in PROMPT.findall(page.read_text(encoding="utf-8")):
            yield page.name, line.partition(" | ")[0]


@pytest.mark.parametrize(("page", "line"), sorted(set(shown())))
def test_a_command_that_a_page_shows_exists(page: str, line: str) -> None:
    words = [ALIASES.get(word, word) for word in shlex.split(line)[1:]]
    if "--" in words:  # what follows that is a program's
        words = words[: words.index("--")]
    found = next(
        (n for n in (" ".join(words[:2]), words[0], "") if n in KNOWN or not n), ""
    )
    assert found, f"{page}: {line}"
    command = KNOWN[found]
    options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    options |= {"--help", "-h"}
    given = {w.partition("=")[0] for w in words if re.match(r"--?[a-z]", w)}
    if (
        "submit" not in found.split()
    ):  # what is no option of it is a parameter of the application
        assert given <= options, f"{page}: {line}"


def test_the_manual_has_a_page_for_every_command_and_option() -> None:
    text = manual(main)

    for name, command in KNOWN.items():
        assert f"## hetctl {name}\n" in text
        _every_option_has_help(name, command)
    for name, command in commands(simulator):
        _every_option_has_help(name, command)
    assert "hetctl run [OPTIONS] [-- COMMAND...]" in text
    assert str(LARGEST_WHOLE) not in text


def _every_option_has_help(name: str, command: click.Command) -> None:
    for each in command.params:
        if isinstance(each, click.Option):
            assert each.help, f"{name} {each.opts}: no word on what it does"


def test_texts_on_selectors_name_every_form_of_one() -> None:
    for page in ("how-to/steer.md", "man/hetctl.1.in"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8").replace("\\-", "-")
        for form in (
            "3-9",
            *WORDS,
            "@NAME",
            f"@NAME{EVERY}",
            f"{JOB}NAME",
            "wildcards",
        ):
            assert form in text, page
            assert form in SELECTORS


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*mkdocs, "--site-dir", str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    site = tmp_path / "site"
    assert "hetctl submit" in (site / "reference" / "hetctl.html").read_text()
    assert "Client.submit" in (site / "reference" / "python.html").read_text()
    assert (site / "schemas" / "hetctl-task-1.json").exists()
