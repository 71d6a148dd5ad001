"""The folder of a node's files: names, digests, the quota, what an earlier process left."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from hetpool.files.content import (
    CHUNK,
    ContentId,
    ContentStore,
    DamagedError,
    NoRoomError,
    content_id,
    copy_bytes,
    digest_of,
)
from hetpool.files.node_files import Incoming
from libtask.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> ContentStore:
    return ContentStore(folder, 1000)


def id_of(data: bytes) -> ContentId:
    return ContentId(hashlib.blake2b(data, digest_size=32).hexdigest())


def added(store: ContentStore, tmp_path: Path, data: bytes) -> ContentId:
    source = tmp_path / "source"
    source.write_bytes(data)
    return store.add(source)


def pulled(store: ContentStore, data: bytes, name: ContentId) -> None:
    with store.begin(name, len(data), 100) as partial:
        for offset in range(0, len(data), 100):
            partial.write(offset, data[offset : offset + 100])
        partial.finish(digest_of(partial.descriptor))


def test_the_id_is_the_digest_of_the_bytes(store: ContentStore, tmp_path: Path) -> None:
    name = added(store, tmp_path, b"abc")

    assert name == id_of(b"abc")
    assert store.path(name).read_bytes() == b"abc"
    assert (store.size(name), store.read(name, 1, 2)) == (3, b"bc")


def test_files_are_for_nobody_else(store: ContentStore, tmp_path: Path) -> None:
    name = added(store, tmp_path, b"abc")

    assert store.path(name).stat().st_mode & 0o777 == 0o600
    assert store.path(name).parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "text", ["", "../x", "a" * 63, "a" * 65, "A" * 64, "a" * 63 + "\n", "/" + "a" * 63]
)
def test_names_that_are_not_content_ids(text: str) -> None:
    with pytest.raises(InputError, match="64 digits"):
        content_id(text)


def test_a_link_in_place_of_a_file_is_not_followed(
    store: ContentStore, tmp_path: Path
) -> None:
    name = added(store, tmp_path, b"abc")
    secret = tmp_path / "secret"
    secret.write_bytes(b"xyz")
    store.path(name).unlink()
    store.path(name).symlink_to(secret)

    with pytest.raises(OSError, match="symbolic links"):
        store.read(name, 0, 3)


def test_a_link_in_place_of_a_partial_file_is_not_written_to(
    store: ContentStore, folder: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (folder / f"{'a' * 64}.partial").symlink_to(victim)

    with pytest.raises(OSError, match="symbolic links"):
        store.begin(ContentId("a" * 64), 100)
    assert victim.read_bytes() == b"mine"


def test_a_folder_that_others_may_write_into_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(InputError, match="others may write"):
        ContentStore(folder, 1000)


def test_a_folder_with_other_files_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "thesis.tex").write_text("...")

    with pytest.raises(InputError, match=r"thesis\.tex is not a file"):
        ContentStore(folder, 1000)


def test_what_is_not_a_regular_file_is_not_added(
    store: ContentStore, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="not a regular file"):
        store.add(tmp_path)


class Appending:
    """Stands for `os` in the module that reads: another program appends at each read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        with self._path.open("ab") as file:
            file.write(bytes(2 * CHUNK))
        return os.pread(descriptor, count, offset)


def test_a_file_that_is_appended_to_is_refused_and_has_an_end(
    store: ContentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(CHUNK + 1))
    monkeypatch.setattr("hetpool.files.content.os", Appending(path))

    with pytest.raises(InputError, match=r"log: changed while it was read \(\d+ bytes"):
        store.add(path)

    assert store.used() == 0


def test_a_job_does_not_take_a_file_that_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / "input", tmp_path / "incoming"
    path.write_bytes(b"input")
    incoming = Incoming(folder)
    content, size = incoming.leave(path)
    assert (content, size) == (id_of(b"input"), 5)
    assert (folder / content).read_bytes() == b"input"

    def shortened(source: int, target: int, size: int) -> None:
        path.write_bytes(b"")
        copy_bytes(source, target, size)

    monkeypatch.setattr("hetpool.files.node_files.copy_bytes", shortened)
    with pytest.raises(
        InputError, match=r"input: changed .* \(5 bytes before, 0 after"
    ):
        incoming.leave(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="input: not a regular file"):
        incoming.leave(path)

    assert [each.name for each in folder.iterdir()] == [content]


def test_a_pulled_file_gets_its_name_when_its_digest_is_right(
    store: ContentStore,
) -> None:
    data = bytes(range(250))

    pulled(store, data, id_of(data))

    assert store.path(id_of(data)).read_bytes() == data
    assert store.used() == 250


def test_damage_leaves_no_chunk_and_no_file(store: ContentStore) -> None:
    name = id_of(b"something else")

    with pytest.raises(DamagedError):
        pulled(store, bytes(250), name)

    assert name not in store
    with store.begin(name, 250, 100) as partial:
        assert partial.present() == frozenset()


def test_the_next_process_finds_files_and_chunks(
    store: ContentStore, folder: Path, tmp_path: Path
) -> None:
    whole = added(store, tmp_path, b"abc")
    with store.begin(id_of(b"later"), 250, 100) as partial:
        partial.write(100, bytes(100))
    store.close()

    again = ContentStore(folder, 1000)

    assert whole in again
    assert again.used() == 253
    with again.begin(id_of(b"later"), 250, 100) as partial:
        assert partial.present() == frozenset({1})


def test_a_partial_file_of_another_size_begins_again(store: ContentStore) -> None:
    with store.begin(id_of(b"x"), 250, 100) as partial:
        partial.write(0, bytes(100))

    with store.begin(id_of(b"x"), 260, 100) as partial:
        assert partial.present() == frozenset()
    assert store.used() == 260


def test_what_was_used_least_recently_makes_room(
    store: ContentStore, tmp_path: Path
) -> None:
    old, new = (added(store, tmp_path, bytes([n]) * 400) for n in (1, 2))
    store.read(old, 0, 1)

    third = added(store, tmp_path, bytes([3]) * 400)

    assert [name in store for name in (old, new, third)] == [True, False, True]
    assert len(list(store.path(old).parent.iterdir())) == 2


def test_files_in_use_stay(store: ContentStore, tmp_path: Path) -> None:
    name = added(store, tmp_path, bytes(600))
    store.hold(name)
    store.hold(name)
    store.release(name)

    with pytest.raises(NoRoomError, match="500 bytes, and 600 of the quota of 1000"):
        added(store, tmp_path, bytes(500))

    store.release(name)
    added(store, tmp_path, bytes(500))
    assert name not in store


def test_what_is_being_pulled_stays(store: ContentStore, tmp_path: Path) -> None:
    with store.begin(id_of(b"x"), 600), pytest.raises(NoRoomError):
        added(store, tmp_path, bytes(500))

    added(store, tmp_path, bytes(500))


def test_a_file_above_the_quota_removes_nothing(
    store: ContentStore, tmp_path: Path
) -> None:
    name = added(store, tmp_path, bytes(600))

    with pytest.raises(NoRoomError):
        added(store, tmp_path, bytes(1001))
    assert name in store


def test_one_added_while_it_is_pulled_is_there_once(
    store: ContentStore, tmp_path: Path
) -> None:
    data = bytes(250)
    with store.begin(id_of(data), 250, 100) as partial:
        partial.write(0, data[:100])
        added(store, tmp_path, data)
        partial.finish(id_of(data))

    assert store.path(id_of(data)).read_bytes() == data
    assert store.used() == 250


def test_unknown_content_is_not_found(store: ContentStore) -> None:
    with pytest.raises(NotFoundError, match="not on this node"):
        store.path(ContentId("a" * 64))
