"""Threads that meet a type at the same time, which msgspec alone does not survive."""

from __future__ import annotations

import subprocess
import sys

import pytest

CONVERT = """
import dataclasses, sys, threading
from libtask import Task
from libtask.parameters import build

sys.setswitchinterval(1e-6)
wrong = []

def an_application(number):
    numbers = [(f"x{i}", "int | None", None) for i in range(10)]
    inner = dataclasses.make_dataclass("Inner", numbers)
    empty = dataclasses.field(default=())
    lists = [(f"y{i}", list[inner], empty) for i in range(10)]
    outer = dataclasses.make_dataclass("Outer", lists)
    return dataclasses.make_dataclass(f"App{number}", [("outer", outer)], bases=(Task,))

for number in range(200):
    app = an_application(number)
    start = threading.Barrier(4)

    def submit():
        start.wait()
        task = build(app, {"outer": {"y3": [{"x1": number}]}})
        if task.outer.y3[0].x1 != number:
            wrong.append(number)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print("wrong:", wrong)
"""


DECODE = """
import sys, threading
from libtask.messages import Register, Registered, decode_from_daemon, encode

sys.setswitchinterval(1e-6)
frame = encode(Registered(protocol=1, version="x", pid=1, launcher=False))
start, found = threading.Barrier(8), []

def decode():
    start.wait()
    found.append(decode_from_daemon(frame).version)

threads = [threading.Thread(target=decode) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("wrong:", [each for each in found if each != "x"])
"""


@pytest.mark.parametrize("program", [CONVERT, DECODE], ids=["convert", "decode"])
def test_threads_meet_a_type_for_the_first_time(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "wrong: []\n"), done.stderr
