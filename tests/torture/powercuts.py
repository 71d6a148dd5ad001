"""Power cuts: `python -m torture powercuts`, as root.

An ext4 file system on a loop device is shut down under a writing store, or a writer of
snapshots, without a flush of its log (`EXT4_IOC_SHUTDOWN`), mounted again, and the store
opened as hetd does. What was acknowledged must be there. Everything happens in a private mount namespace.

It does not show what a disk does that lies about flushes, or reorders within one.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hetd.store import Batch, Store
from libtask.errors import HetError
from torture import cut_snapshots, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""
NO_LOG_FLUSH = struct.pack("I", 2)
IMAGE_BYTES = 96 << 20
INSIDE = "--inside"
ACK = struct.Struct("qq")
"""Task and version that the store said is durable."""
LONGEST_S = 0.08
"""Until a cut, at most; the shortest times hit the first commits after a start."""


@dataclass(slots=True)
class Outcome:
    """The result of all cuts."""

    cuts: int = 0
    acknowledged: int = 0
    """Pages of tasks that were said to be durable."""
    lost: int = 0
    """Those of them that were not there after the next cut, or older than said."""
    refusals: list[str] = field(default_factory=list)
    """Why the store did not open after a cut; it must always."""
    seconds: float = 0.0


def possible() -> str | None:
    """Say why it cannot be done here; None: it can."""
    if os.geteuid() != 0:
        return "only root can mount a file system"
    probe = ["unshare", "--mount", "sh", "-c", "losetup --find && mkfs.ext4 -V"]
    try:
        done = subprocess.run(probe, capture_output=True, check=False)
    except FileNotFoundError:
        return "there is no unshare"
    return None if done.returncode == 0 else "no loop device, or no mkfs.ext4"


def cut_often(
    cuts: int, seed: int = 1, *, subject: str = "store", careless: bool = False
) -> Outcome:
    """Cut the power this number of times.

    Args:
        cuts: how many.
        seed: of the draws; the moments of the cuts differ nevertheless.
        subject: what writes: "store" or "snapshots".
        careless: with one that does not wait for the disk, to see that losses show.

    Raises:
        RuntimeError: it could not be done.

    """
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m"]
    command += ["torture.powercuts", INSIDE, "--cuts", str(cuts)]
    command += ["--seed", str(seed), "--subject", subject, *["--careless"] * careless]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment()
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return Outcome(**json.loads(done.stdout))


def main(words: list[str]) -> int:
    """Cut, and print what became of it; exit status 1 where something was lost."""
    arguments = _parse(words)
    if arguments.inside:
        print(json.dumps(asdict(_cut_here(arguments))))
        return 0
    obstacle = possible()
    if obstacle is not None:
        sys.stderr.write(f"torture powercuts: {obstacle}\n")
        return 2
    outcome = cut_often(
        arguments.cuts,
        arguments.seed,
        subject=arguments.subject,
        careless=arguments.careless,
    )
    print(json.dumps(asdict(outcome)))
    return 1 if outcome.lost or outcome.refusals else 0


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torture powercuts")
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--subject", choices=("store", "snapshots"), default="store")
    parser.add_argument("--careless", action="store_true")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(words)


# ---------------------------------------------------------------- inside the namespace


def _cut_here(arguments: argparse.Namespace) -> Outcome:
    draw, outcome = random.Random(arguments.seed), Outcome()
    begin = time.monotonic()
    with _image() as (image, place):
        durable: dict[int, int] = {}
        for _ in range(arguments.cuts):
            written = _write_until_cut(place, draw, arguments)
            _mount(image, place)
            durable.update(written)
            outcome.cuts += 1
            outcome.acknowledged += len(written)
            compare = _COMPARERS[arguments.subject]
            compare(place, durable, outcome)
    outcome.seconds = round(time.monotonic() - begin, 2)
    return outcome


@contextmanager
def _image() -> Iterator[tuple[Path, Path]]:
    """Make a file system in a file, and mount it."""
    with tempfile.TemporaryDirectory(prefix="hetd-cut-") as folder:
        image, place = Path(folder, "image"), Path(folder, "disk")
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _do("mkfs.ext4", "-qF", str(image))
        _mount(image, place)
        yield image, place
        _do("umount", str(place))


def _mount(image: Path, place: Path) -> None:
    _do("mount", "-o", "loop", str(image), str(place))


def _do(*command: str) -> None:
    subprocess.run(command, check=True)


def _write_until_cut(
    place: Path, draw: random.Random, arguments: argparse.Namespace
) -> dict[int, int]:
    """Let a process write; cut, and return the newest versions that were reported."""
    reader, writer = os.pipe()
    seed, wait = draw.random(), draw.uniform(0.0, LONGEST_S)
    child = os.fork()
    if child == 0:
        os.close(reader)
        write = _WRITERS[arguments.subject]
        write(place, writer, random.Random(seed), careless=arguments.careless)
    os.close(writer)
    told = os.read(reader, ACK.size)  # it has begun
    time.sleep(wait)
    told += _drained(reader)
    _cut(place)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    _do("umount", str(place))
    whole = len(told) - len(told) % ACK.size
    return dict(ACK.iter_unpack(told[:whole]))


def _drained(reader: int) -> bytes:
    """Read what was said until now.

    What is said later does not count: a sync that is under way when the file system is
    shut down may return as if it had done its work, to a process that with a real power
    cut would be there no more.
    """
    os.set_blocking(reader, False)
    told = b""
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(reader, 1 << 20):
            told += piece
    return told


def _cut(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUTDOWN, NO_LOG_FLUSH)
    finally:
        os.close(descriptor)


def _write(place: Path, writer: int, draw: random.Random, *, careless: bool) -> None:
    """Write new and changed tasks until killed; report each one that is durable."""
    try:
        store = Store(place / "state" / "hetd.db")
        if careless:
            store._writer.execute("PRAGMA synchronous = OFF")
        last = store.last_id()
        while True:
            new = range(last + 1, last + 1 + draw.randint(1, 30))
            changed = {draw.randint(1, last) for _ in range(5)} if last else set()
            last = new[-1]
            version = time.monotonic_ns()
            pages = [(task, 0, _page(task, version), 7) for task in {*new, *changed}]
            replies = [(task, version) for task, *_ in pages]
            store.submit(Batch(tasks=pages, replies=replies))
            told = b"".join(ACK.pack(*each) for each in store.flush())
            os.write(writer, told)
    finally:
        os._exit(0)  # whatever happened: the disk is gone


def _page(task: int, version: int) -> bytes:
    return b"%d %d " % (task, version) + bytes(task % 700)


def _compare(place: Path, durable: dict[int, int], outcome: Outcome) -> None:
    """Open the store as a daemon would; count what is missing or older than told."""
    try:
        with closing(Store(place / "state" / "hetd.db")) as store:
            found = [page.split(b" ", 2) for page in store.unfinished()]
    except HetError as error:
        outcome.refusals.append(str(error))
        return
    versions = {int(task): int(version) for task, version, _ in found}
    outcome.lost += sum(
        versions.get(task, -1) < version for task, version in durable.items()
    )
    durable.clear()
    durable.update(versions)


_WRITERS = {"store": _write, "snapshots": cut_snapshots.write}
_COMPARERS = {"store": _compare, "snapshots": cut_snapshots.compare}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
