"""The unit files, under a real systemd: root only, in namespaces of its own.

One run of the box serves all assertions: it starts by socket activation, is killed,
hangs, is reloaded and stopped, and is used by several users meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hetd.devices.discovery import discover

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent / "systemd"
REPOSITORY = Path(__file__).parents[2]
SYSTEMD = Path("/lib/systemd/systemd")
LIMIT_S = 280.0
"""Some seconds are enough on a quiet machine."""
BLOWS = 12
"""As in `driver.py`, which runs elsewhere: kills of the daemon, one after the other."""
ATTACKS = int(os.environ.get("HETD_ATTACKS", "6"))
"""Of a member of the group on the service, in a row; `make torture` makes 30."""
ANN = 4001
"""uid of the first user in the box."""
ROOTS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
"""Where version 2 of control groups is mounted, beside version 1 or alone."""

TARGET = """
[Unit]
Requires=driver.service
"""
DRIVER = """
[Unit]
DefaultDependencies=no
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
TimeoutStartSec=infinity
Environment=PYTHONPATH={path} ATTACKS={attacks}
ExecStart={python} /out/driver.py
StandardOutput=file:/out/driver.log
StandardError=file:/out/driver.log
"""
USER = """
[Service]
Type=notify
User=ben
Delegate=yes
Environment=XDG_RUNTIME_DIR=/run/user/4002
ExecStart=/lib/systemd/systemd --user
"""
"""What `user@.service` does, without logging in."""
DROP_IN = """
[Service]
WatchdogSec=2s
TimeoutStopSec=2s
StandardOutput=append:/out/hetd.log
StandardError=append:/out/hetd.log
"""
CONFIG = """
policy = "affinity"
[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
slots = 2
"""
FURNISH = """
set -eu
root=$1
{binds}
make -s -C {repository} install-files DESTDIR="$root" prefix=/usr
cp {out}/test.target {out}/*.service "$root/etc/systemd/system/"
mkdir -p "$root/etc/systemd/system/hetd.service.d"
cp {out}/test.conf "$root/etc/systemd/system/hetd.service.d/"
cp {out}/hetd.toml "$root/etc/hetd/hetd.toml"
mkdir -p "$root/usr/lib/hetd/bin"
for name in bin/hetd bin/hetctl lib/hetd/bin/python; do
    case $name in */python) words= ;; *) words="-m $(basename $name)" ;; esac
    # its own libpython: where it was installed is out of users' reach
    printf '#!/bin/sh\\nexport PYTHONPATH=%s LD_LIBRARY_PATH=%s\\nexec %s %s "$@"\\n' \\
        '{path}' /opt/python/lib '{python}' "$words" > "$root/usr/$name"
    chmod 755 "$root/usr/$name"
done
chroot "$root" systemd-sysusers >/dev/null 2>&1
n=4001
for name in ann ben zoe eve mal; do
    echo "$name:x:$n:$n::/home/$name:/bin/sh" >> "$root/etc/passwd"
    echo "$name:x:$n:" >> "$root/etc/group"
    mkdir -p "$root/home/$name"
    chown $n:$n "$root/home/$name"
    n=$((n + 1))
done
sed -i 's/^hetd:\\(.*\\):$/hetd:\\1:ann,ben,zoe,mal/; s/^hetd-admin:\\(.*\\):$/hetd-admin:\\1:zoe/' \\
    "$root/etc/group"
"""


def _cgroups() -> Path | None:
    return next((r for r in ROOTS if (r / "cgroup.procs").exists()), None)


def _missing() -> str:
    """Say what keeps the box from working here; empty: nothing."""
    if os.getuid() != 0:
        return "needs root: namespaces, mounts and a control group"
    tools = ("unshare", "setpriv", "pivot_root", "make", "systemd-sysusers", "ps")
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if not SYSTEMD.exists() or absent:
        return f"needs {', '.join([*absent, str(SYSTEMD)])}"
    root = _cgroups()
    if root is None or not os.access(root, os.W_OK):
        return "needs version 2 of control groups, writable"
    return ""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Make a control group for the box, and remove it with all that is in it."""
    root = _cgroups()
    assert root is not None
    group = root / f"hetd-test-{os.getpid()}"
    group.mkdir()
    yield group
    (group / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + 30
    while "populated 1" in (group / "cgroup.events").read_text():
        assert time.monotonic() < deadline, "processes of the box do not end"
        time.sleep(0.02)
    for folder in sorted(group.rglob("*/"), key=lambda f: -len(f.parts)):
        folder.rmdir()
    group.rmdir()


def _python_path() -> dict[str, str]:
    """Say where the box has each folder of code: ours may be hidden there, or closed."""
    here = [folder for folder in sys.path if folder and Path(folder).is_dir()]
    base = str(Path(sys.base_prefix).resolve())
    code = [folder for folder in here if not folder.startswith(base)]
    return {folder: f"/opt/code/{number}" for number, folder in enumerate(code)}


def _binds(code: dict[str, str]) -> str:
    """Write the commands that bring folders into the box."""
    return "\n".join(
        f'mkdir -p "$root{there}" && mount --bind {shlex.quote(here)} "$root{there}"'
        for here, there in code.items()
    )


def _furnish(out: Path) -> Path:
    """Write what the box needs; return the Python installation it is to have."""
    base = Path(sys.base_prefix).resolve()
    python = f"/opt/python/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    code = _python_path()
    path = ":".join(code.values())
    files = {
        "test.target": TARGET,
        "user-of-ben.service": USER,
        "driver.service": DRIVER.format(path=path, python=python, attacks=ATTACKS),
        "test.conf": DROP_IN,
        "hetd.toml": CONFIG,
        "furnish.sh": FURNISH.format(
            repository=REPOSITORY,
            out=out,
            path=path,
            python=python,
            binds=_binds(code),
        ),
    }
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8")
    shutil.copy(HERE / "driver.py", out)
    return base


def _run(cgroup: Path, out: Path) -> dict[str, Any]:
    base = _furnish(out)
    script = 'echo $$ > "$0/cgroup.procs" && exec bash "$@"'
    words = [str(HERE / "box.sh"), str(cgroup), str(out), str(base), "driver.py"]
    with (out / "console.log").open("wb") as console:
        subprocess.run(
            ["bash", "-c", script, str(cgroup), *words],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            timeout=LIMIT_S,
            check=False,
        )
    return _seen(out)


def _seen(out: Path) -> dict[str, Any]:
    logs = "\n".join(
        f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}"
        for log in sorted(out.glob("*.log"))
    )
    if not (out / "driver.log").exists():
        pytest.skip(f"no systemd starts in a box here: {logs[-300:]}")
    assert (out / "seen.json").exists(), logs
    seen: dict[str, Any] = json.loads((out / "seen.json").read_text())
    told = f"{seen.get('broken')}\n{json.dumps(seen, indent=1)}\n{logs}"
    assert "broken" not in seen, told
    return seen


@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(_missing()), reason=_missing() or "-")
def test_the_service_holds_under_systemd(cgroup: Path, tmp_path: Path) -> None:
    seen = _run(cgroup, tmp_path)

    # socket activation: hetd is not there until someone asks; who may not ask, does not
    assert seen["socket"] == ["660 root hetd", "active"]
    assert seen["before"] == "inactive"
    assert (seen["stranger"]["status"], seen["stranger"]["answer"]) == (3, None)
    assert "no permission" in seen["stranger"]["error"]
    assert seen["activated"] == ["active", "running", "1 unfinished task on cpu"]
    assert seen["user_of_hetd"] == "hetd"
    workers = seen["workers"]
    assert len(workers) == 2
    assert set(workers.values()) == {ANN}

    # killed, or hung: it is back, and the task never knew
    for name, restarts in (("killed", 1), ("hung", 2)):
        assert seen[name]["restarts"] == restarts
        assert seen[name]["pid"] == seen[name]["main_pid"]
        assert seen[name]["state"] == "active"
    times = ("begun", "after_kill", "after_hang", "after_hammer", "after_stop")
    _ran_on(*(seen[name] for name in times))
    # again and again, at once: neither the service nor its socket stays down
    assert seen["hammered"] == {
        "sockets": ["active"],
        "restarts": BLOWS,
        "states": ["active", "active"],
    }
    # nor does a member of the group take either down, or keep others from being served
    attacked = seen["attacked"]
    assert min(attacked["asked"]) > 0
    assert attacked["served"] == [0] * ATTACKS
    assert (attacked["sockets"], attacked["same_process"]) == (["active"], True)
    assert seen["bad_asked"][1] == "active"
    assert seen["workers_after"] == workers
    assert seen["socket_after"] == "660 root hetd"

    _judge_users(seen)
    _judge_the_end(seen)


def _judge_users(seen: dict[str, Any]) -> None:
    # users are kept apart; administrators are not
    for name in ("foreign", "no_admin"):
        assert seen[name]["status"] == 5
    assert seen["foreign_list"]["answer"]["tasks"] == []
    assert seen["admin"]["answer"]["state"] == "draining"
    assert seen["cancelled"]["answer"]["ids"] == [1]


def _judge_the_end(seen: dict[str, Any]) -> None:
    # a reload is no restart
    assert seen["reload"] == 0
    assert "you may have 1 unfinished tasks" in seen["limited"]["error"]
    assert seen["restarts_after_reload"] == 2 + BLOWS

    assert seen["stopped"] == [0, "inactive", "success"]
    assert seen["socket_gone"]
    assert seen["workers_without"] == seen["workers"]
    # it may wait for tasks: it asks for the time, and is not killed
    assert seen["deaf"]["status"] == 0
    assert seen["drained_s"] >= 3.0
    assert seen["drained"] == ["inactive", "success", "0"]
    assert seen["bad_config"] != 0
    assert seen["bad_result"] == ["exit-code", "2", "0"]

    # what keeps it in does not keep the devices out
    assert seen["devices"] == [each.spec.name for each in discover(60.0)]

    # the same for one user alone
    assert seen["user_started"] == [0, ""]
    assert "/app.slice/hetd-launcher.service" in seen["user_launcher"]
    assert (seen["user_devices"], seen["user_hetd"]) == (0, "active")

    # and a pool of this user
    assert seen["pool_up"] == [0, ""]
    assert seen["pool_units"] == ["active", "active"]
    assert seen["pool_task"] == [0, ""]
    assert seen["pool_back"] == [True, True]
    assert seen["pool_down"] == 0
    assert seen["pool_units_after"] == ["inactive", "inactive"]


def _ran_on(*tasks: dict[str, Any]) -> None:
    """One stretch of one task, which goes on and on."""
    assert all(task["state"] == "running" for task in tasks)
    assert all(task["starts"] == tasks[0]["starts"] for task in tasks)
    assert len(tasks[0]["starts"]) == 1
    assert sorted(t["progress"] for t in tasks) == [t["progress"] for t in tasks]


UNITS = ("hetd.service", "hetd.socket")
USER_UNITS = (
    *UNITS,
    "hetd-launcher.service",
    "hetpool-node.service",
    "hetpool-scheduler.service",
)
EXPOSURE = 10
"""The most that `systemd-analyze security` may find, times ten."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install all but the program, which is a stand-in, below a folder."""
    root = tmp_path_factory.mktemp("root")
    command = ["make", "-s", "-C", str(REPOSITORY), "install-files"]
    subprocess.run([*command, f"DESTDIR={root}", f"prefix={root}/usr"], check=True)
    return root


def _units(installed: Path, folder: Path, kind: str, names: tuple[str, ...]) -> None:
    """Copy units, with programs that are there: what they start is looked at too."""
    found = Path(f"{installed}{installed}/usr/lib/systemd", kind)
    for name in names:
        text = (found / name).read_text(encoding="utf-8")
        for program in ("bin/hetd", "lib/hetd/bin/python"):
            text = text.replace(f"{installed}/usr/{program}", "/bin/true")
        (folder / name).write_text(text, encoding="utf-8")


_LATER = re.compile(r"Unknown key( name)? '(RestartSteps|RestartMaxDelaySec)'")
"""What systemd says before version 254 of pauses that grow."""

needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


@needs_analyze
@pytest.mark.parametrize(
    ("kind", "names"), [("system", UNITS), ("user", USER_UNITS)], ids=["system", "user"]
)
def test_the_units_are_right(
    installed: Path, tmp_path: Path, kind: str, names: tuple[str, ...]
) -> None:
    _units(installed, tmp_path, kind, names)
    files = [str(tmp_path / name) for name in names]
    command = ["systemd-analyze", f"--{kind}", "verify", "--man=no", *files]

    # it wants to know where user units would find their runtime directory
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )

    # a wrong directive is only a warning, with status 0
    told = [line for line in done.stderr.splitlines() if not _LATER.search(line)]
    assert (done.returncode, told) == (0, [])


@needs_analyze
def test_the_service_is_hardly_exposed(installed: Path, tmp_path: Path) -> None:
    _units(installed, tmp_path, "system", UNITS)
    service = str(tmp_path / "hetd.service")
    limits = ["--offline=true", f"--threshold={EXPOSURE}"]

    done = subprocess.run(
        ["systemd-analyze", "security", *limits, service],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
