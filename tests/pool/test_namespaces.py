"""Machines of a pool as network namespaces: their links carry what was set, and no more.

Rates are compared with each other or with the rate of the kernel's own limiter, which also
holds on a busy machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hetpool.setup.namespaces import LinkedMachines, LinkRates, NamespaceError, obstacle
from libtask.errors import InputError
from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NODE = str(Path(__file__).parent / "plain_node.py")
MB = 1_000_000
WIRE = 1500 / 1448
"""Bytes on the link for a byte of a file: headers of Ethernet, IP and TCP."""

pytestmark = pytest.mark.namespaces


@contextmanager
def offering(
    machines: LinkedMachines, name: str, folder: Path, sizes: list[int], cap: float = 0
) -> Iterator[list[str]]:
    """Offer files of random bytes on a machine; give their names with their sizes."""
    run = [sys.executable, NODE, "offer", str(folder), machines.address(name), str(cap)]
    process = subprocess.Popen(
        machines.command(name, [*run, *map(str, sizes)]), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        names = json.loads(process.stdout.readline())
        yield [f"{each}:{size}" for each, size in zip(names, sizes, strict=True)]
    finally:
        for pid in machines.processes(name):
            os.kill(pid, 9)
        process.communicate(timeout=60)


def pulled(
    machines: LinkedMachines, name: str, source: str, files: list[str], **options: Any
) -> dict[str, Any]:
    folder, cap = options["folder"], options.get("cap", 0)
    run = [sys.executable, NODE, "pull", str(folder), machines.address(source)]
    done = subprocess.run(
        machines.command(name, [*run, str(cap), *files]),
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("side", ["ingress", "egress"])
def test_a_link_carries_the_rate_that_was_set(
    linked_machines: Callable[..., LinkedMachines], tmp_path: Path, side: str
) -> None:
    rate = 2.5 * MB
    narrow = LinkRates(**{side: rate})
    rates = {"n1": narrow if side == "ingress" else LinkRates(), "gw": LinkRates()}
    if side == "egress":
        rates["gw"] = narrow
    machines = linked_machines(rates)

    with offering(machines, "gw", tmp_path / "gw", [6 * MB]) as files:
        got = pulled(machines, "n1", "gw", files, folder=tmp_path / "n1")

    assert 0.85 <= 6 * MB * WIRE / got["seconds"] / rate <= 1.03


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_cap_below_four_fifths_of_the_link_holds_within_five_percent(
    linked_machines: Callable[..., LinkedMachines], tmp_path: Path, share: float
) -> None:
    link = 6.25 * MB
    cap, size = share * link, int(share * 25 * MB)
    machines = linked_machines({"n1": LinkRates(ingress=link), "gw": LinkRates()})

    with offering(machines, "gw", tmp_path / "gw", [size]) as files:
        got = pulled(machines, "n1", "gw", files, folder=tmp_path / "n1", cap=cap)

    assert 0.95 <= size / got["seconds"] / cap <= 1.05


def test_a_sender_keeps_its_cap_whatever_the_receivers_ask(
    linked_machines: Callable[..., LinkedMachines], tmp_path: Path
) -> None:
    machines = linked_machines({"n1": LinkRates(), "gw": LinkRates()})
    sizes = [4 * MB] * 4

    with offering(machines, "gw", tmp_path / "gw", sizes, cap=8 * MB) as files:
        got = pulled(machines, "n1", "gw", files, folder=tmp_path / "n1")

    assert 0.85 <= 16 * MB / got["seconds"] / (8 * MB) <= 1.07


def test_files_arrive_in_the_order_that_was_asked_for(
    linked_machines: Callable[..., LinkedMachines], tmp_path: Path
) -> None:
    machines = linked_machines({"n1": LinkRates(ingress=8 * MB), "gw": LinkRates()})

    with offering(machines, "gw", tmp_path / "gw", [4 * MB] * 5) as files:
        got = pulled(machines, "n1", "gw", files, folder=tmp_path / "n1")

    # neighbours may end together: chunks of both are on their way at once
    assert all(abs(order - place) <= 1 for place, order in enumerate(got["ended"]))


def test_a_cut_link_carries_nothing_until_it_is_mended(
    linked_machines: Callable[..., LinkedMachines],
) -> None:
    machines = linked_machines({"n1": LinkRates(), "n2": LinkRates()})
    # a machine that is there refuses: nothing listens
    knock = (
        "import socket, sys\n"
        "try: socket.create_connection((sys.argv[1], 9000), 2)\n"
        "except ConnectionRefusedError: sys.exit(0)\n"
        "except OSError: sys.exit(1)"
    )
    run = [sys.executable, "-c", knock, machines.address("n2")]

    def answers() -> bool:
        done = subprocess.run(machines.command("n1", run), check=False)
        return done.returncode == 0

    assert answers()
    machines.cut("n2")
    assert not answers()
    machines.mend("n2")
    assert any(answers() for _ in range(20))


def test_closing_ends_the_processes_and_removes_the_names() -> None:
    reason = obstacle()
    if reason:
        pytest.skip(f"no network namespaces: {reason}")
    machines = LinkedMachines.make({"n1": LinkRates()})
    process = subprocess.Popen(machines.command("n1", ["sleep", "1000"]))
    eventually(lambda: process.pid in machines.processes("n1"), "its start")

    machines.close()

    assert process.wait(60) == -9
    assert (
        machines.tag
        not in subprocess.run(
            ["ip", "netns", "list"], capture_output=True, text=True, check=True
        ).stdout
    )
    machines.close()


def test_closing_ends_the_processes_that_are_still_entering() -> None:
    reason = obstacle()
    if reason:
        pytest.skip(f"no network namespaces: {reason}")
    machines = LinkedMachines.make({"n1": LinkRates()})
    command = machines.command("n1", ["sleep", "1000"])
    processes = [
        subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(30)
    ]

    machines.close()

    # who came too late finds no machine of this name
    assert {process.wait(60) for process in processes} <= {-9, 1, 255}


KILLED = """
import os, subprocess
from hetpool.setup.namespaces import LinkedMachines, LinkRates
machines = LinkedMachines.make({"n1": LinkRates()})
command = machines.command("n1", ["sleep", "1000"])
print(machines.tag, subprocess.Popen(command, stdout=subprocess.DEVNULL).pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.usefixtures("linked_machines")
def test_nothing_is_left_of_a_program_that_is_killed() -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, check=False
    )
    tag, pid = killed.stdout.split()
    listed = ["ip", "netns", "list"]

    def gone() -> bool:
        names = subprocess.run(listed, capture_output=True, text=True, check=True)
        return tag not in names.stdout and not Path(f"/proc/{pid}").exists()

    assert killed.returncode == -9
    eventually(gone, "its namespaces' end")


def test_the_callers_own_process_is_not_ended(
    linked_machines: Callable[..., LinkedMachines],
) -> None:
    machines = linked_machines({"n1": LinkRates()})
    # what a test has run on a machine is its own process only in that it asks for it
    script = (
        "import os, sys; from hetpool.setup.namespaces import LinkedMachines;"
        "m = LinkedMachines(sys.argv[1], ['n1']); assert os.getpid() not in"
        " m.processes('n1'); print('alive')"
    )
    run = machines.command("n1", [sys.executable, "-c", script, machines.tag])

    done = subprocess.run(run, capture_output=True, text=True, check=False)

    assert done.stdout == "alive\n", done.stderr


def test_a_tag_in_use_is_refused_and_left_alone(
    linked_machines: Callable[..., LinkedMachines],
) -> None:
    if os.geteuid():
        pytest.skip("each user namespace has names of its own")
    machines = linked_machines({"n1": LinkRates()})

    with pytest.raises(NamespaceError, match="another run uses the tag"):
        LinkedMachines.make({"n2": LinkRates()}, tag=machines.tag)

    subprocess.run(machines.command("n1", ["true"]), check=True)


def test_without_privileges_they_are_made_in_a_user_namespace(tmp_path: Path) -> None:
    reason = obstacle(in_user_namespace=True)
    if reason:
        pytest.skip(f"no network namespaces: {reason}")
    rates = {"n1": LinkRates(ingress=2.5 * MB), "gw": LinkRates()}

    with (
        LinkedMachines.make(rates, in_user_namespace=True) as machines,
        offering(machines, "gw", tmp_path / "gw", [6 * MB]) as files,
    ):
        got = pulled(machines, "n1", "gw", files, folder=tmp_path / "n1")

    assert 0.85 <= 6 * MB * WIRE / got["seconds"] / (2.5 * MB) <= 1.03


@pytest.mark.parametrize("name", ["", "hub", "a/b", "a b", "ä"])
def test_names_that_cannot_be_machines(name: str) -> None:
    with pytest.raises(InputError, match="machine"):
        LinkedMachines.make({name: LinkRates()})
