"""Options of `hetsim` that are numbers: nan and what is too large are refused, in one line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hetctl.pool.tasks import get_command
from hetsim.__main__ import cli
from libtask.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
SCENARIO = str(EXAMPLES / "scenario.json")
FAMILY = str(EXAMPLES / "family-node.json")
LIVE = ("paper", "loesch-2016", "--live")


@pytest.mark.parametrize(
    "words",
    [
        ("run", SCENARIO, "--noise", "nan"),
        ("arena", "--scenarios", "1", "--noise", "nan"),
        ("arena", "--scenarios", "1", "--strip-variation", "nan"),
        ("arena", "--scenarios", "1", "--strip-variation", "1e308"),
        ("train", FAMILY, "-o", "none.npz", "--minutes", "nan"),
        ("pool", "none.json", "--window", "nan"),
        ("pool", "none.json", "--window", "inf"),
        ("pool", "none.json", "--replace", "nan"),
        ("pool", "none.json", "--deviation", "nan"),
        ("pool", "none.json", "--deviation", "-1"),
        ("pool", "none.json", "--share", "0"),
        ("pool", "none.json", "--error", "1"),
        ("pool", "none.json", "--rack", "-1"),
        (*LIVE, "--scale", "nan"),
        (*LIVE, "--scale", "inf"),
        (*LIVE, "--scale", "1e300"),
        (*LIVE, "--scale", "1e-300"),
        (*LIVE, "--delay", "nan"),
    ],
    ids=" ".join,
)
def test_no_number(words: tuple[str, ...]) -> None:
    with pytest.raises(click.BadParameter) as caught:
        cli.main(words, prog_name="hetsim", standalone_mode=False)

    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.format_message()
    assert words[-2] in caught.value.format_message()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Return a file that is none: as /dev/null, it must not be replaced."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_no_training_takes_the_place_of_a_device(pipe: Path) -> None:
    words = ("train", FAMILY, "-o", str(pipe), "--updates", "1", "--held-out", "1")

    with pytest.raises(InputError, match="pipe: not a regular file"):
        cli.main(words, prog_name="hetsim", standalone_mode=False)

    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_no_file_of_a_pool_takes_the_place_of_a_device(pipe: Path) -> None:
    done = CliRunner().invoke(get_command, ["7", "-o", str(pipe)])

    assert isinstance(done.exception, InputError)
    assert str(done.exception) == f"{pipe}: not a regular file"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
