"""Runs inside the box, as a unit: uses hetd as users and an administrator would.

Writes what it saw to /out/seen.json; the test outside judges it.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from libtask.client.client import Client
from torture.attacks import (
    Attacker,
    amend_many,
    list_large_history,
    list_one_often,
)

PATIENCE = 120.0
BLOWS = 12
"""More than any limit of starts that systemd has by itself."""
ATTACKS = (list_one_often, amend_many, list_large_history)
"""What once ended the service: F1, F2 and F4 of the attacks, in turns."""
ATTACKED = int(os.environ["ATTACKS"])
ATTACK_S = 1.0
MAL = 4005
CONFIG = Path("/etc/hetd/hetd.toml")
SOCKET = Path("/run/hetd/hetd.sock")
SEEN = Path("/out/seen.json")
POOL = ("hetpool-scheduler.service", "hetpool-node.service")
seen: dict[str, Any] = {}


def run(*command: str, user: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command, as a user where one is named."""
    if user:
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        home = f"HOME=/home/{user}"
        command = (*become, "env", "-i", home, "PATH=/usr/bin:/bin", *command)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def hetctl(user: str, *words: str) -> dict[str, Any]:
    """Ask hetd as a user; return the status and the document or the complaint."""
    verb, *rest = words
    done = run("hetctl", verb, *rest, "--json", user=user)
    document = json.loads(done.stdout) if done.stdout.startswith(("{", "[")) else None
    return {"status": done.returncode, "answer": document, "error": done.stderr.strip()}


def show(name: str, unit: str = "hetd.service") -> str:
    """Return a property of a unit."""
    return run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()


def until(look: Any, what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)
    return found


def look() -> dict[str, Any]:
    """Look at the first task as root, who sees all; cheaper than a command."""
    with Client(SOCKET, timeout=PATIENCE) as client:
        task = client.show(1)
    starts = [segment.start for segment in task.segments]
    return {"state": task.state, "progress": task.progress, "starts": starts}


def grown(progress: float) -> dict[str, Any]:
    """Wait until the task has gone on; return what is told of it."""
    return until(  # type: ignore[no-any-return]  # a task
        lambda: (task := look())["progress"] > progress and task, "progress"
    )


def uids_of_workers() -> dict[int, int]:
    """Find launchers and workers: pid -> uid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            uid = entry.stat().st_uid
        except OSError:
            continue
        if b"libtask.launcher" in words:
            found[int(entry.name)] = uid
    return found


def restarted(end: signal.Signals) -> dict[str, Any]:
    """End or stop the daemon; tell how long it takes until another one answers."""
    before, since = int(show("MainPID")), time.monotonic()
    os.kill(before, end)
    until(lambda: int(show("MainPID")) not in (0, before), "another main process")
    until(lambda: show("ActiveState") == "active", "another daemon that is ready")
    ready = time.monotonic() - since
    with Client(SOCKET, timeout=PATIENCE) as client:
        pid = client.welcome.pid
    return {
        "ready_s": ready,
        "answered_s": time.monotonic() - since,
        "pid": pid,
        "main_pid": int(show("MainPID")),
        "restarts": int(show("NRestarts")),
        "result": show("Result"),
        "state": show("ActiveState"),
    }


def socket_file() -> str:
    return run("stat", "-c", "%a %U %G", "/run/hetd/hetd.sock").stdout.strip()


def begin() -> None:
    """Let the first request start the daemon."""
    seen["sysusers"] = run("systemd-sysusers").stderr
    run("systemctl", "start", "hetd.socket")
    seen["socket"] = [socket_file(), show("ActiveState", "hetd.socket")]
    seen["before"] = show("ActiveState")
    seen["stranger"] = hetctl("eve", "list")

    work = ("synthetic", "--seconds", '{"cpu": 600}', "--strips", "60000")
    seen["submitted"] = hetctl("ann", "submit", *work)
    seen["begun"] = grown(0.0)
    seen["activated"] = [show("ActiveState"), show("SubState"), show("StatusText")]
    seen["workers"] = uids_of_workers()
    seen["user_of_hetd"] = run(
        "ps", "-o", "user=", "-p", show("MainPID")
    ).stdout.strip()


def harm() -> None:
    """Kill the daemon, and let it hang."""
    seen["killed"] = restarted(signal.SIGKILL)
    seen["after_kill"] = grown(seen["begun"]["progress"])
    seen["hung"] = restarted(signal.SIGSTOP)
    seen["after_hang"] = grown(seen["after_kill"]["progress"])
    seen["workers_after"] = uids_of_workers()
    seen["socket_after"] = socket_file()


def hammer() -> None:
    """Kill and abort the daemon again and again, as soon as it is there."""
    sockets = set()
    for number in range(BLOWS):
        before = int(show("MainPID"))
        os.kill(before, signal.SIGKILL if number % 3 else signal.SIGABRT)
        until(lambda was=before: int(show("MainPID")) not in (0, was), "another one")
        sockets.add(show("ActiveState", "hetd.socket"))
        with Client(SOCKET, timeout=PATIENCE) as client:
            client.devices()
    seen["hammered"] = {
        "sockets": sorted(sockets),
        "restarts": int(show("NRestarts")) - seen["hung"]["restarts"],
        "states": [show("ActiveState"), show("ActiveState", "hetd.socket")],
    }
    seen["after_hammer"] = grown(seen["after_hang"]["progress"])


def attack() -> None:
    """Let a member of the group attack, one attack after the other."""
    main, restarts = show("MainPID"), show("NRestarts")
    sockets, served, asked = set(), [], []
    for make in itertools.islice(itertools.cycle(ATTACKS), ATTACKED):
        fork = multiprocessing.get_context("fork")
        mine, theirs = fork.Pipe(duplex=False)
        attacker = fork.Process(target=attack_as_mal, args=(make, theirs))
        attacker.start()
        mine.poll(PATIENCE)  # it begins
        served.append(hetctl("ann", "list", "--limit", "5")["status"])
        sockets.add(show("ActiveState", "hetd.socket"))
        asked.append(mine.recv() if mine.poll(PATIENCE) else 0)
        attacker.join()
    hetctl("mal", "cancel", "all")
    seen["attacked"] = {
        "asked": asked,
        "served": served,
        "sockets": sorted(sockets),
        "same_process": [show("MainPID"), show("NRestarts")] == [main, restarts],
    }


def attack_as_mal(make: Any, report: Any) -> None:
    """Send requests of one attack for some time; report how many were answered."""
    os.setgroups([int(run("getent", "group", "hetd").stdout.split(":")[2])])
    os.setgid(MAL)
    os.setuid(MAL)
    attacker, asked = Attacker(SOCKET), 0
    ends = None
    for request in make(attacker):
        ends = ends or time.monotonic() + ATTACK_S  # not before it is prepared
        attacker.ask(request)
        asked += 1
        if time.monotonic() > ends:
            break
    report.send(asked)


def share() -> None:
    """Come as another user, and as an administrator."""
    seen["foreign"] = hetctl("ben", "cancel", "1")
    seen["foreign_list"] = hetctl("ben", "list")
    seen["no_admin"] = hetctl("ben", "drain", "cpu")
    seen["admin"] = hetctl("zoe", "drain", "cpu")
    seen["admin_resumes"] = hetctl("zoe", "resume", "cpu")


def reload() -> None:
    """Set a limit while it runs."""
    CONFIG.write_text(CONFIG.read_text() + "\n[limits]\ntasks = 1\n")
    seen["reload"] = run("systemctl", "reload", "hetd.service").returncode
    seen["limited"] = until(
        lambda: (
            (a := hetctl("ann", "submit", "synthetic", "--seconds", '{"cpu": 1}'))[
                "status"
            ]
            and a
        ),
        "a refused submit",
    )
    seen["restarts_after_reload"] = int(show("NRestarts"))


def stop() -> None:
    """Stop, come back, and come back with a mistake in the configuration."""
    # the socket first: tasks' launchers knock there as long as there is one
    done = run("systemctl", "stop", "hetd.socket", "hetd.service")
    seen["stopped"] = [done.returncode, show("ActiveState"), show("Result")]
    seen["socket_gone"] = not Path("/run/hetd/hetd.sock").exists()
    seen["workers_without"] = uids_of_workers()
    run("systemctl", "start", "hetd.socket")
    seen["after_stop"] = grown(seen["after_hammer"]["progress"])
    seen["cancelled"] = hetctl("zoe", "cancel", "1")

    # longer than systemd would wait, if it were not asked to
    CONFIG.write_text(
        'on_stop = "preempt"\nstop_timeout_s = 3.0\n' + CONFIG.read_text()
    )
    run("systemctl", "reload", "hetd.service")
    deaf = ("synthetic", "--seconds", '{"cpu": 600}', "--strips", "1")
    seen["deaf"] = hetctl("ben", "submit", *deaf)
    since = time.monotonic()
    run("systemctl", "stop", "hetd.socket", "hetd.service")
    seen["drained_s"] = time.monotonic() - since
    seen["drained"] = [show("ActiveState"), show("Result"), show("ExecMainStatus")]
    for pid in uids_of_workers():
        os.kill(pid, signal.SIGKILL)
    CONFIG.write_text('polcy = "mm"\n')
    run("systemctl", "start", "hetd.socket")
    # it knocks until it gives up: that must not take the socket down
    asked = hetctl("zoe", "daemon", "status", "--timeout", "8s")
    seen["bad_asked"] = [asked["status"], show("ActiveState", "hetd.socket")]
    run("systemctl", "stop", "hetd.socket", "hetd.service")
    run("systemctl", "reset-failed", "hetd.service")
    seen["bad_config"] = run("systemctl", "start", "hetd.service").returncode
    seen["bad_result"] = [show("Result"), show("ExecMainStatus"), show("NRestarts")]


def discover() -> None:
    """Let the daemon find the devices through all that keeps it in."""
    CONFIG.write_text("")
    run("systemctl", "reset-failed", "hetd.service")
    run("systemctl", "start", "hetd.socket")
    seen["asked_devices"] = hetctl("zoe", "devices")
    found = seen["asked_devices"]["answer"]["devices"]
    seen["devices"] = [each["name"] for each in found]
    run("systemctl", "stop", "hetd.socket", "hetd.service")


def run_as_ben(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the session of a user."""
    return run("env", "XDG_RUNTIME_DIR=/run/user/4002", *words, user="ben")


def systemctl_of_ben(*words: str) -> subprocess.CompletedProcess[str]:
    return run_as_ben("systemctl", "--user", *words)


def serve_one() -> None:
    """Use the units of a single user: a daemon of his own, and the launcher."""
    Path("/run/user/4002").mkdir(mode=0o700, parents=True)
    shutil.chown("/run/user/4002", "ben", "ben")
    run("systemctl", "start", "user-of-ben.service")
    started = systemctl_of_ben("start", "hetd.socket", "hetd-launcher.service")
    seen["user_started"] = [started.returncode, started.stderr]
    launcher = systemctl_of_ben("show", "--value", "-p", "MainPID", "hetd-launcher")
    seen["user_launcher"] = cgroup(int(launcher.stdout)) if launcher.stdout else ""
    own = ("--socket", "/run/user/4002/hetd/hetd.sock")
    seen["user_devices"] = hetctl("ben", "devices", *own)["status"]
    shown = systemctl_of_ben("show", "--value", "-p", "ActiveState", "hetd.service")
    seen["user_hetd"] = shown.stdout.strip()


def serve_pool() -> None:
    """Use the units of a pool, beside the daemon of its user; kill what they run."""
    up = run_as_ben("hetctl", "pool", "up")
    seen["pool_up"] = [up.returncode, up.stderr]
    seen["pool_units"] = states_of_pool()
    seen["pool_task"] = submitted_to_pool()
    seen["pool_back"] = [killed_unit_is_back(unit) for unit in POOL]
    # the new scheduler takes a moment to listen
    until(lambda: submitted_to_pool()[0] == 0, "a task of the pool")
    seen["pool_down"] = run_as_ben("hetctl", "pool", "down").returncode
    seen["pool_units_after"] = states_of_pool()


def states_of_pool() -> list[str]:
    return systemctl_of_ben("is-active", *POOL).stdout.split()


def submitted_to_pool() -> list[Any]:
    words = ("--timeout", "60", "--", "true")
    done = run_as_ben("hetctl", "pool", "submit", "--wait", *words)
    return [done.returncode, done.stderr]


def killed_unit_is_back(unit: str) -> bool:
    """Kill the process of a unit; return whether systemd has started another one."""
    before = pid_of_ben(unit)
    if not before:
        return False
    os.kill(before, signal.SIGKILL)
    until(lambda: pid_of_ben(unit) not in (0, before), f"{unit} to be back")
    return True


def pid_of_ben(unit: str) -> int:
    return int(systemctl_of_ben("show", "--value", "-p", "MainPID", unit).stdout or 0)


def end_one() -> None:
    systemctl_of_ben("stop", "hetd.socket", "hetd.service", "hetd-launcher.service")


def cgroup(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text().strip() if pid else ""


if __name__ == "__main__":
    try:
        for part in (
            begin,
            harm,
            hammer,
            attack,
            share,
            reload,
            stop,
            discover,
            serve_one,
            serve_pool,
            end_one,
        ):
            part()
    except Exception:  # noqa: BLE001  whatever it is, the test outside tells it
        seen["broken"] = traceback.format_exc()
    SEEN.write_text(json.dumps(seen, indent=1))
    sys.exit(0)
