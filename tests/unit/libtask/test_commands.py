"""The application `command`: what it is made of, without a worker."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

import pytest

from libtask.attachments import KEPT_S, YOUNG_S, Attachments
from libtask.commands.command import Command, label_of, split
from libtask.commands.environment import cores, variables
from libtask.commands.progress import ProgressFile
from libtask.errors import HetError, InputError
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import Kind

UUID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python train.py --n 3", ["python", "train.py", "--n", "3"]),
        ("sh -c 'a; b | c'", ["sh", "-c", "a; b | c"]),
        ("cd x && ./run", ["/bin/sh", "-c", "cd x && ./run"]),
        ("A=1 ./run", ["/bin/sh", "-c", "A=1 ./run"]),
        ('echo "$HOME"', ["/bin/sh", "-c", 'echo "$HOME"']),
    ],
)
def test_a_shell_reads_what_only_a_shell_can(text: str, words: list[str]) -> None:
    assert split(text) == words


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (["/usr/bin/make", "-j2"], "make"),
        (["python3.11", "/a/train.py", "x"], "train.py"),
        (["python", "-m", "train"], "python"),
        (["sh"], "sh"),
    ],
)
def test_a_command_is_called_by_what_it_runs(words: list[str], label: str) -> None:
    assert label_of(words) == label


@pytest.mark.parametrize(
    ("platform", "kind", "name", "value"),
    [
        (
            "NVIDIA CUDA",
            "gpu",
            "CUDA_VISIBLE_DEVICES",
            "GPU-01234567-89ab-cdef-0123-456789abcdef",
        ),
        ("AMD Accelerated Parallel Processing", "gpu", "ROCR_VISIBLE_DEVICES", "1"),
        ("Intel(R) OpenCL Graphics", "gpu", "ZE_AFFINITY_MASK", "1"),
        ("", "cpu", "CUDA_VISIBLE_DEVICES", ""),
        ("", "cpu", "OMP_NUM_THREADS", "3"),
    ],
)
def test_one_device_is_in_sight(
    platform: str, kind: Kind, name: str, value: str
) -> None:
    spec = DeviceSpec(
        "x",
        kind,
        platform=platform,
        index=1,
        threads=3,
        uuid=UUID,
    )

    assert variables(spec)[name] == value


def test_processors_are_counted_off_by_slots() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    spec = DeviceSpec("cpu", "cpu", threads=1)

    assert cores(spec, 0) == {allowed[0]}
    assert cores(spec, len(allowed)) is None
    assert cores(spec, None) is None
    assert cores(DeviceSpec("gpu0", "gpu"), 0) is None


@pytest.mark.parametrize(
    ("written", "share"),
    [
        ("", None),
        ("0.42\n", 0.42),
        ("0.1\n0.2\n", 0.2),
        ("1\n", 1.0),
        ("7\n", None),
        ("nan\n", None),
        ("x" * 9000 + " 0.5", 0.5),
    ],
)
def test_progress_is_the_last_number(
    tmp_path: Path, written: str, share: float | None
) -> None:
    progress = ProgressFile(tmp_path / "sub" / "p")
    progress.path.write_text(written)

    assert progress.share() == share


def test_progress_is_read_of_a_file_only(tmp_path: Path) -> None:
    progress = ProgressFile(tmp_path / "p")
    os.mkfifo(progress.path)
    assert progress.share() is None
    progress.path.unlink()
    (tmp_path / "other").write_text("0.5")
    progress.path.symlink_to(tmp_path / "other")
    assert progress.share() is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"argv": [""]},
        {"by_kind": {"gpu": []}},
        {"argv": ["a\0b"]},
        {"argv": ["\udc80"]},
        {"argv": ["x" * 70_000]},
        {"argv": ["x"], "stop_signal": 99},
        {"argv": ["x"], "grace_s": 1e9},
    ],
)
def test_what_is_no_command_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Command(**fields)  # type: ignore[arg-type]  # wrong on purpose


def test_a_content_is_kept_once_for_its_owner_alone(tmp_path: Path) -> None:
    kept = Attachments(tmp_path / "a")
    name = kept.keep(b"K=V")

    assert kept.keep(b"K=V") == name
    assert [path.name for path in kept.path.iterdir()] == [name]
    assert kept.file(name).stat().st_mode & 0o777 == 0o600
    assert kept.path.stat().st_mode & 0o777 == 0o700
    assert kept.read(name) == b"K=V"


def test_a_changed_or_missing_content_is_not_used(tmp_path: Path) -> None:
    kept = Attachments(tmp_path / "a")
    name = kept.keep(b"K=V")
    kept.file(name).write_bytes(b"K=W")

    with pytest.raises(InputError, match="it was changed"):
        kept.read(name)
    kept.file(name).unlink()
    with pytest.raises(InputError, match="No such file"):
        kept.read(name)
    with pytest.raises(InputError, match="no name of an attachment"):
        kept.file("../../etc/passwd")


@pytest.mark.parametrize(
    ("code", "hint"),
    [(errno.ENOSPC, "; free some space there"), (errno.EACCES, "")],
)
def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, hint: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    kept = Attachments(tmp_path / "a")
    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(HetError) as caught:
        kept.keep(b"K=V")

    text = f"{tmp_path}/a: cannot store the task there: {os.strerror(code)}{hint}"
    assert str(caught.value) == text
    assert list(kept.path.iterdir()) == []


def test_only_what_was_not_used_for_long_is_asked_for(tmp_path: Path) -> None:
    kept = Attachments(tmp_path / "a")
    old, new = kept.keep(b"old"), kept.keep(b"new")
    _age(kept, old, KEPT_S + 1)
    _age(kept, new, KEPT_S - 60)

    assert kept.to_ask_for() == [old]
    assert kept.to_ask_for() == []  # it was asked just now


def test_what_is_used_meanwhile_stays(tmp_path: Path) -> None:
    kept = Attachments(tmp_path / "a")
    used, idle = kept.keep(b"used"), kept.keep(b"idle")
    _age(kept, idle, YOUNG_S + 1)

    kept.drop([used, idle, "../x"])

    assert [path.name for path in kept.path.iterdir()] == [used]


def _age(kept: Attachments, name: str, seconds: float) -> None:
    then = time.time_ns() / 1e9 - seconds
    os.utime(kept.file(name), (then, then))
