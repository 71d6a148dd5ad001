"""The launcher reads how much memory a worker's processes use, and what its task may use."""

from __future__ import annotations

import mmap
import os

from libtask.phase import Phase, PhasePage
from libtask.processes import private_bytes

MIB = 1 << 20


def test_the_private_memory_of_a_process_grows_with_what_it_writes() -> None:
    before = private_bytes(os.getpid())

    # new pages: what is freed of others may be used again, and adds nothing
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE) as held:
        held.write(b"1" * (64 * MIB))
        grown = private_bytes(os.getpid()) - before

    assert grown >= 60 * MIB


def test_a_process_that_is_gone_uses_no_memory() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)

    assert private_bytes(pid) == 0


def test_a_limit_of_memory_holds_while_a_task_is_there() -> None:
    page = PhasePage.shared()

    page.limit_memory(5 * MIB)
    before = page.memory_limit()
    page.begin(1, 1, 0, Phase.LOADING)
    during = page.memory_limit()
    page.enter(Phase.IDLE)

    assert (before, during, page.memory_limit()) == (0, 5 * MIB, 0)
