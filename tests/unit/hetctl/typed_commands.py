"""Commands as a user types them, and their output."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from hetctl.__main__ import main


def text(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == status, result.output
    return result.stdout


def complaint(*words: str, status: int = 2) -> str:
    """Return what a command prints about its bad input."""
    result = CliRunner().invoke(main, words)
    assert result.exit_code == status, result.output
    return result.stderr


def document(*words: str, status: int = 0) -> Any:
    return json.loads(text(*words, "--json", status=status))
