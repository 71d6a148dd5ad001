"""What `make install` puts where, without the program: that takes a package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hetctl.__main__ import COMMANDS
from hetd.config import Config, read_config
from hetdocs.keys import keys_of, tables
from hetdocs.manpages import PAGES, write
from hetsim.__main__ import COMMANDS as SIMULATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
SYSTEMD = REPOSITORY / "systemd"


def make(target: str, root: Path) -> None:
    command = ["make", "-s", "-C", str(REPOSITORY), target]
    subprocess.run([*command, f"DESTDIR={root}", "prefix=/usr"], check=True)


def files_below(root: Path) -> set[str]:
    return {str(f.relative_to(root)) for f in root.rglob("*") if not f.is_dir()}


# ---------------------------------------------------------------- files


def test_everything_lies_where_systemd_looks(tmp_path: Path) -> None:
    make("install-files", tmp_path)

    assert files_below(tmp_path) == {
        "etc/hetd/hetd.toml",
        "usr/lib/systemd/system/hetd.service",
        "usr/lib/systemd/system/hetd.socket",
        "usr/lib/systemd/user/hetd-launcher.service",
        "usr/lib/systemd/user/hetd.service",
        "usr/lib/systemd/user/hetd.socket",
        "usr/lib/systemd/user/hetpool-node.service",
        "usr/lib/systemd/user/hetpool-scheduler.service",
        "usr/lib/sysusers.d/hetd.conf",
        "usr/lib/tmpfiles.d/hetd.conf",
    }
    texts = [(tmp_path / name).read_text() for name in files_below(tmp_path)]
    assert not any(re.search(r"@\w+@", text) for text in texts)
    assert not any(str(tmp_path) in text for text in texts)


def test_a_configuration_that_is_there_is_kept(tmp_path: Path) -> None:
    own = tmp_path / "etc/hetd/hetd.toml"
    own.parent.mkdir(parents=True)
    own.write_text('policy = "affinity"\n', encoding="utf-8")

    make("install-files", tmp_path)
    make("uninstall", tmp_path)

    assert files_below(tmp_path) == {"etc/hetd/hetd.toml"}
    assert read_config(own).policy == "affinity"


def test_the_shipped_configuration_is_the_default() -> None:
    shipped = (SYSTEMD / "hetd.toml").read_text(encoding="utf-8")
    lines = [line for line in shipped.splitlines() if line and not line.startswith("#")]

    assert lines == []
    assert read_config(SYSTEMD / "hetd.toml") == Config()


def test_what_it_shows_as_an_example_is_right(tmp_path: Path) -> None:
    shipped = (SYSTEMD / "hetd.toml").read_text(encoding="utf-8")
    example = tmp_path / "hetd.toml"
    shown = re.sub(r"^# (?=\[|\w+ = )", "", shipped, flags=re.MULTILINE)
    example.write_text(shown, encoding="utf-8")

    config = read_config(example)

    assert config.policy == Config().policy
    assert config.limits.user["alice"].running == 8
    assert config.resource[0].name == "gpu0"


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("systemd-sysusers") is None,
    reason="needs root and systemd-sysusers",
)
def test_users_and_groups_are_made(tmp_path: Path) -> None:
    make("install-files", tmp_path)
    (tmp_path / "etc").mkdir(exist_ok=True)

    subprocess.run(["systemd-sysusers", f"--root={tmp_path}"], check=True)

    groups = dict(
        line.split(":", 1) for line in (tmp_path / "etc/group").read_text().splitlines()
    )
    assert {"hetd", "hetd-admin", "video", "render"} <= set(groups)
    assert groups["video"].endswith(":hetd")
    assert groups["hetd-admin"].endswith(":")
    (user,) = (tmp_path / "etc/passwd").read_text().splitlines()
    assert user.startswith("hetd:")
    assert user.endswith("nologin")


# ---------------------------------------------------------------- what is fetched


def _pins(name: str) -> dict[str, int]:
    """Read a lock file: package -> hashes of its files."""
    pins: dict[str, int] = {}
    package = ""
    for line in (REPOSITORY / "lock" / name).read_text("utf-8").splitlines():
        if not line.startswith(" "):
            package, equals, _ = line.partition("==")
            assert equals, line
            pins[package] = pins.get(package, 0)
        pins[package] += "--hash=sha256:" in line
    return pins


@pytest.mark.parametrize("path", sorted((REPOSITORY / "lock").iterdir()), ids=str)
def test_every_pinned_package_has_hashes_and_no_registry_is_named(path: Path) -> None:
    pins = _pins(path.name)

    assert [package for package, hashes in pins.items() if not hashes] == []
    assert "://" not in path.read_text("utf-8")


def _expanded(needed: list[str], extras: dict[str, list[str]]) -> Iterator[str]:
    """List packages, in the place of `hetd[extra]` those of that extra."""
    for each in needed:
        own = re.fullmatch(r"hetd\[(.+)\]", each)
        if own is None:
            yield each
        else:
            yield from (more for name in own[1].split(",") for more in extras[name])


def test_all_that_the_program_needs_is_pinned() -> None:
    document = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    extras = document["project"]["optional-dependencies"]
    del extras["compiled"]  # its wheel is made here
    wanted = {"hetd": [], **extras}

    for name, more in wanted.items():
        needed = [*document["project"]["dependencies"], *_expanded(more, extras)]
        names = {re.split(r"[\[<>=~ ]", each)[0] for each in needed}
        assert names <= _pins(f"{name}.txt").keys(), name
    assert "hatchling" in _pins("build.txt")


# ---------------------------------------------------------------- manual pages


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    write(REPOSITORY / "docs" / "man", folder)
    return folder


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_right(pages: Path, name: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(pages / name)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert not re.search(r"@\w+@", (pages / name).read_text())


def test_the_pages_name_every_option_command_and_key(pages: Path) -> None:
    hetd, hetctl, hetsim, toml = (
        (pages / name).read_text().replace("\\-", "-") for name in PAGES
    )

    for option in ("--socket", "--state", "--config", "--policy"):
        assert option in hetd
    for command in COMMANDS:
        assert f'.SS "hetctl {command} ' in hetctl
    for command in SIMULATIONS:
        assert f'.SS "hetsim {command} ' in hetsim
    for _, _, keys in tables():
        for key in keys:
            assert f'.B "{key.name} = ' in toml


def test_every_key_says_what_it_means() -> None:
    mute = [
        (table, key.name) for table, _, keys in tables() for key in keys if not key.text
    ]

    assert mute == []


def test_no_table_of_the_configuration_is_left_out() -> None:
    told = {key.name for key in keys_of(Config)}
    below = {written.strip("[]").split(".")[0] for written, _, _ in tables() if written}

    assert told | below == set(Config.__struct_fields__)
