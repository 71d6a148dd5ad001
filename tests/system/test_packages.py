"""`make dist`, `make install` and `make deb`: what they build is installed elsewhere, and used.

Nothing is fetched: the dependencies are those of the tests, referred to where they are.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
BOX = Path(__file__).with_name("deb_box.sh")
SITES = tuple(
    dict.fromkeys(
        str(Path(spec.origin).parents[1])
        for name in ("hatchling", "packaging", "click", "pip")
        if (spec := importlib.util.find_spec(name)) and spec.origin
    )
)
"""Folders with what builds the program, and with what it needs."""
DEBIAN_PYTHON = Path("/usr/bin/python3")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None, reason="needs hatchling"
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what is under version control, so that nothing is built in the checkout."""
    folder = tmp_path_factory.mktemp("sources")
    archive = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d"]
    subprocess.run(
        [*archive, str(folder)], cwd=REPOSITORY, check=True, capture_output=True
    )
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        file.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")


def make(sources: Path, *words: str) -> None:
    """Run make; what it prints is in the error of one that fails."""
    done = try_to_make(sources, *words)
    assert done.returncode == 0, done.stdout + done.stderr


def try_to_make(sources: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run make, under a umask that keeps other users out, as root's may."""
    return subprocess.run(
        ["make", "-s", "-C", str(sources), *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(SITES)},
        umask=0o077,
    )


# ---------------------------------------------------------------- the wheel


class Installation:
    """A virtual environment with a wheel, and a folder for what its programs keep."""

    def __init__(self, home: Path, room: Path) -> None:
        self.home = home
        self.room = room
        self.bin = home / "bin"

    def install(self, wheel: Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(self.home)], check=True
        )
        target = ["--python", str(self.bin / "python")]
        options = ["--quiet", "--no-deps", "--no-index", "--no-compile"]
        subprocess.run(
            [sys.executable, "-m", "pip", *target, "install", *options, str(wheel)],
            check=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(SITES)},
        )
        # dependencies alone: a .pth file in there, as one of a checkout, is not read
        site = next(self.home.glob("lib/python*/site-packages"))
        here = dict.fromkeys([*SITES, sysconfig.get_path("purelib")])
        (site / "dependencies.pth").write_text("\n".join(here), encoding="utf-8")

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.room,
            env={
                "PATH": f"{self.bin}:/usr/bin:/bin",
                "HOME": str(self.room),
                "HETD_SOCKET": str(self.room / "hetd.sock"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def ask(self, *words: str) -> Any:
        return json.loads(self.run("hetctl", *words, "--json"))


@pytest.fixture
def installed(sources: Path, tmp_path: Path) -> Iterator[Installation]:
    make(
        sources,
        "-o",
        ".venv/installed-dev",
        "dist",
        f"BIN={Path(sys.executable).parent}",
    )
    (wheel,) = (sources / "dist").glob("*.whl")
    assert len(list((sources / "dist").glob("*.tar.gz"))) == 1
    # sockets need short paths
    with tempfile.TemporaryDirectory(prefix="hetd-", dir="/tmp") as room:
        installation = Installation(tmp_path / "venv", Path(room))
        installation.install(wheel)
        yield installation
        installation.run("hetctl", "daemon", "stop")


def test_a_wheel_holds_all_that_a_user_needs(installed: Installation) -> None:
    where = installed.run("python", "-c", "import libtask; print(libtask.__file__)")
    assert Path(where).is_relative_to(installed.home)
    share = installed.home / "share"
    pages = {f.name for f in (share / "man").rglob("*.*") if f.is_file()}
    assert pages == {"hetd.8", "hetctl.1", "hetsim.1", "hetd.toml.5"}
    assert (share / "bash-completion/completions/hetctl").stat().st_size
    kernels = sorted(f.name for f in (REPOSITORY / "kernels").rglob("*.cl"))
    assert sorted(f.name for f in installed.home.rglob("*.cl")) == kernels

    installed.run("hetctl", "daemon", "start")

    installed.run("hetctl", "run", "--", "true")
    assert installed.run("hetctl", "run", "--", "echo", "heard") == "heard\n"
    _run_kernels(installed)
    chart = installed.room / "chart.html"
    installed.run("hetctl", "gantt", "all", "-o", str(chart))
    assert "echo" in chart.read_text(encoding="utf-8")


def _run_kernels(installed: Installation) -> None:
    """Run an application, where OpenCL is emulated: on the CPU, Numba takes long."""
    names = [device["name"] for device in installed.ask("devices")["devices"]]
    where = next((name for name in names if name.startswith("gpu")), "cpu")
    words = ("submit", "heat", "--n", "64", "--steps", "5", "--wait", "--on", where)
    assert f"completed on {where}" in installed.run("hetctl", *words)


# ---------------------------------------------------------------- the service


@pytest.fixture(scope="module")
def staged(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the service below a folder."""
    folder = tmp_path_factory.mktemp("staged") / "root"
    here = dict.fromkeys([*SITES, sysconfig.get_path("purelib")])
    make(sources, "install", f"DESTDIR={folder}", f"SITE={':'.join(here)}")
    return folder


@pytest.fixture
def root(staged: Path, tmp_path: Path) -> Path:
    """Copy the installed service, to be changed."""
    return shutil.copytree(staged, tmp_path / "root", symlinks=True)


def test_an_installed_service_is_for_all_users(staged: Path) -> None:
    for path in [staged, *staged.rglob("*")]:
        mode = path.stat().st_mode
        needed = 0o555 if path.is_dir() or path.parent.name == "bin" else 0o444
        assert mode & needed == needed, f"{path}: {mode:o}"
    program = staged / "usr/local/lib/hetd"
    assert str(staged) not in (program / "pyvenv.cfg").read_text("utf-8")
    (byte_code,) = program.glob("lib/python*/site-packages/hetd/__pycache__/loop.*.pyc")
    assert str(staged).encode() not in byte_code.read_bytes()
    assert b"/usr/local/lib/hetd/lib/python" in byte_code.read_bytes()


def test_an_installation_that_fails_leaves_the_one_before(
    sources: Path, root: Path
) -> None:
    done = try_to_make(sources, "install", f"DESTDIR={root}", "SITE=/nonexistent")
    assert done.returncode != 0

    python = root / "usr/local/lib/hetd/bin/python"
    command = [str(python), "-P", "-m", "hetctl", "--version"]
    assert subprocess.check_output(command, text=True).startswith("hetctl ")


def test_what_was_installed_is_uninstalled_but_for_the_configuration(
    sources: Path, root: Path
) -> None:
    make(sources, "uninstall", f"DESTDIR={root}")

    left = [f for f in root.rglob("*") if not f.is_dir()]
    assert left == [root / "etc/hetd/hetd.toml"]


# ---------------------------------------------------------------- the Debian package


def _missing() -> str:
    """Say what keeps the package from being tested here; empty: nothing."""
    if os.getuid() != 0:
        return "needs root: mounts and a change of root"
    tools = ("dpkg", "dpkg-deb", "unshare", "chroot", "setpriv", "make", "gzip")
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if absent:
        return f"needs {', '.join(absent)}"
    needed = ("python3", "python3-venv", "systemd", "init-system-helpers")
    asked = subprocess.run(["dpkg", "-s", *needed], capture_output=True, check=False)
    if asked.returncode != 0:
        return f"needs the packages {', '.join(needed)}"
    minor = "import sys; print(sys.version_info[1])"
    theirs = subprocess.check_output([DEBIAN_PYTHON, "-c", minor], text=True)
    if int(theirs) != sys.version_info[1]:
        return "the modules of the tests are for another Python than Debian's"
    return ""


@pytest.fixture
def package(sources: Path) -> Path:
    here = dict.fromkeys([*SITES, sysconfig.get_path("purelib")])
    make(sources, "deb", f"SITE={':'.join(here)}", "DEB_COMPRESSION=none")
    (package,) = (sources / "dist").glob("*.deb")
    return package


HALF_A_PACKAGE = """#!/bin/sh
for file; do :; done
echo half > "$file"
exit 1
"""
"""A `dpkg-deb` that ends while it writes its last argument, as one that is interrupted."""


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="needs dpkg")
def test_a_package_that_is_not_finished_leaves_the_one_before(
    sources: Path, tmp_path: Path
) -> None:
    stub = tmp_path / "dpkg-deb"
    stub.write_text(HALF_A_PACKAGE, "utf-8")
    stub.chmod(0o755)
    here = dict.fromkeys([*SITES, sysconfig.get_path("purelib")])
    target = tmp_path / "hetd.deb"
    target.write_text("whole", "utf-8")

    done = try_to_make(
        sources,
        "deb",
        f"PATH={tmp_path}:{os.environ['PATH']}",
        f"SITE={':'.join(here)}",
        f"DEB_PYTHON={sys.executable}",
        f"DEB_FILE={target}",
    )

    assert done.returncode != 0
    assert target.with_name("hetd.deb.new").read_text("utf-8") == "half\n", done
    assert target.read_text("utf-8") == "whole"


@pytest.mark.skipif(bool(_missing()), reason=_missing() or "-")
def test_a_package_is_installed_used_removed_and_purged(
    package: Path, tmp_path: Path
) -> None:
    here = dict.fromkeys([*SITES, sysconfig.get_path("purelib")])
    with (tmp_path / "log").open("w") as log:
        subprocess.run(
            ["bash", BOX, package, tmp_path, *here],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
        )
    if not (tmp_path / "ready").exists():
        pytest.skip(f"no namespaces here: {(tmp_path / 'log').read_text()[-300:]}")

    told = {f.name: f.read_text() for f in tmp_path.iterdir() if f.is_file()}
    statuses = dict(line.split() for line in told["statuses"].splitlines())
    assert set(statuses.values()) <= {"0", "1", "4"}, told
    failed = {name for name, status in statuses.items() if status != "0"}
    # nothing is found of what is looked for, and nothing is imported that is not there
    assert failed == {"lacking", "purged", "unknown"}, told
    _judge(told)


def _judge(told: dict[str, str]) -> None:
    listed = set(told["listed"].splitlines())
    assert {
        "/etc/hetd/hetd.toml",
        "/usr/bin/hetd",
        "/usr/lib/hetd/bin/python3",
        "/usr/lib/systemd/system/hetd.socket",
        "/usr/lib/systemd/user/hetd-launcher.service",
        "/usr/lib/systemd/user/hetpool-node.service",
        "/usr/lib/systemd/user/hetpool-scheduler.service",
        "/usr/lib/sysusers.d/hetd.conf",
        "/usr/share/man/man1/hetctl.1.gz",
        "/usr/share/bash-completion/completions/hetctl",
        "/usr/share/zsh/vendor-completions/_hetctl",
    } <= listed
    assert "(hetd)" in told["user"]
    assert "completed on cpu" in told["task"]
    assert told["command"] == "ann\n"
    assert told["own"] == "only ann has this\n"
    assert "No module named 'of_ann'" in told["lacking"]
    assert "no application 'of-ann'" in told["unknown"]
    assert '["only ann has this","/home/ann/own/bin/python"]' in told["own_task"]
    # a removal leaves the configuration and the tasks, and nothing of the program
    left = told["left"].splitlines()
    assert "etc/hetd/hetd.toml" in left
    assert any(name.startswith("var/lib/hetd/") for name in left)
    assert not [name for name in left if name.startswith("usr/")]
    assert told["purged"] == ""
