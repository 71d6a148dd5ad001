"""The pool's authority: what it makes, what it renews, and files that it refuses."""

from __future__ import annotations

import datetime as dt
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hetpool.errors import CertificateError
from hetpool.setup.certificates import (
    MEMBER_LIFE,
    RENEWED_BEFORE,
    Authority,
    Member,
    check_files,
)
from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from pathlib import Path

    from hetpool.setup.endpoint import TlsFiles

NOW = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
THIS = Member("this", ("127.0.0.1", "head"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "hetd" / "pool"


@pytest.fixture
def files(folder: Path) -> TlsFiles:
    return Authority(folder, NOW).member(THIS)


def test_files_are_made_for_their_owner_alone(folder: Path, files: TlsFiles) -> None:
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes == dict.fromkeys(("ca.pem", "ca.key", "this.pem", "this.key"), 0o600)
    assert check_files(files, NOW) == NOW + MEMBER_LIFE


def test_what_lasts_is_kept_and_what_ends_soon_is_renewed(
    folder: Path, files: TlsFiles
) -> None:
    before = files.cert.read_bytes()
    late = NOW + MEMBER_LIFE - RENEWED_BEFORE + dt.timedelta(days=1)

    Authority(folder, NOW + dt.timedelta(days=30)).member(THIS)
    assert files.cert.read_bytes() == before
    authority = (folder / "ca.pem").read_bytes()
    Authority(folder, late).member(THIS)
    assert files.cert.read_bytes() != before
    assert (folder / "ca.pem").read_bytes() == authority
    assert check_files(files, late) == late + MEMBER_LIFE


def test_an_authority_near_its_end_is_made_again_with_all_that_it_signs(
    folder: Path, files: TlsFiles
) -> None:
    late = NOW + dt.timedelta(days=3600)

    Authority(folder, late).member(THIS)

    assert check_files(files, late) == late + MEMBER_LIFE
    with pytest.raises(CertificateError, match=r"valid from 2036-"):
        check_files(files, NOW)


def test_members_have_files_of_their_own(folder: Path) -> None:
    authority = Authority(folder, NOW)
    one, other = (authority.member(Member(name)) for name in ("n1", "n2"))

    assert one.cert == folder / "nodes" / "n1.pem"
    assert check_files(one, NOW) == check_files(other, NOW)
    with pytest.raises(CertificateError, match="does not belong to the certificate"):
        check_files(replace(one, key=other.key), NOW)


def test_an_expired_certificate_is_refused_with_the_remedy(files: TlsFiles) -> None:
    late = NOW + MEMBER_LIFE + dt.timedelta(seconds=1)

    with pytest.raises(
        CertificateError,
        match=r"this\.pem: the certificate expired on 2027-06-01; `hetctl",
    ):
        check_files(files, late)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o602])
def test_a_key_that_others_may_read_is_refused(files: TlsFiles, mode: int) -> None:
    files.key.chmod(mode)

    with pytest.raises(
        CertificateError, match=rf"mode {mode:04o} lets others .* chmod 600"
    ):
        check_files(files, NOW)
    with pytest.raises(CertificateError, match="chmod 600"):
        Authority(files.key.parent, NOW).member(THIS)


def test_a_folder_that_others_may_enter_is_refused(
    folder: Path, files: TlsFiles
) -> None:
    folder.chmod(0o750)

    with pytest.raises(CertificateError, match="mode 0750 lets others in; chmod 700"):
        Authority(folder, NOW)


def test_links_in_place_of_keys_are_refused(files: TlsFiles, tmp_path: Path) -> None:
    elsewhere = tmp_path / "key"
    files.key.rename(elsewhere)
    files.key.symlink_to(elsewhere)

    with pytest.raises(CertificateError, match="expected a plain file"):
        check_files(files, NOW)


def test_a_certificate_of_another_pool_is_refused(
    files: TlsFiles, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", NOW).member(THIS)

    with pytest.raises(CertificateError, match="did not sign this certificate"):
        check_files(replace(files, ca=other.ca), NOW)


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_absent_and_damaged_files_are_named(files: TlsFiles, name: str) -> None:
    path: Path = getattr(files, name)
    path.write_bytes(b"-----BEGIN NOTHING-----")
    with pytest.raises(InputError, match=rf"{path}: not a "):
        check_files(files, NOW)
    path.unlink()
    with pytest.raises(
        InputError, match=rf"{path}: No such file or directory; `hetctl"
    ):
        check_files(files, NOW)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(files: TlsFiles) -> None:
    os.chown(files.key, 12345, -1)

    with pytest.raises(CertificateError, match="belongs to another user"):
        check_files(files, NOW)


def test_a_broken_authority_is_not_replaced_silently(
    folder: Path, files: TlsFiles
) -> None:
    before = files.cert.read_bytes()
    (folder / "ca.key").write_text("damaged")

    with pytest.raises(HetError, match=r"ca\.key: not a private key"):
        Authority(folder, NOW)
    assert files.cert.read_bytes() == before
