"""The certificates of a pool: its own authority, and what that signs for each machine.

A member of a pool runs code as the pool's user on all of its nodes, so whoever is signed
for is trusted with everything. The authority therefore belongs to one pool of one user, its
key stays on the machine where `hetctl pool up` ran, and private keys that others could read
are refused. `hetctl pool up` makes and renews the files; everybody else only checks them.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import secrets
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hetpool.errors import CertificateError
from hetpool.setup.endpoint import TlsFiles
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

AUTHORITY_LIFE = dt.timedelta(days=3650)
MEMBER_LIFE = dt.timedelta(days=365)
RENEWED_BEFORE = dt.timedelta(days=60)
"""A member's certificate with less time left is made again by `hetctl pool up`."""
AUTHORITY_RENEWED_BEFORE = MEMBER_LIFE
"""An authority never ends before what it signs."""
BACKDATED = dt.timedelta(minutes=5)
"""Clocks of machines differ; a new certificate must be valid everywhere at once."""
OTHERS = 0o077
LARGEST = 1 << 16
"""Bytes of a certificate or key; a larger file is not one."""
ORGANIZATION = "hetd pool"
THIS = "this"
"""Name of the files of the machine itself."""
TO_DO = "`hetctl pool up` makes one"

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Member:
    """A machine that gets a certificate."""

    name: str
    hosts: Sequence[str] = ()
    """Its host names and IP addresses."""


# ------------------------------------------------------------ make and renew


class Authority:
    """The authority of a pool, in its folder.

    Args:
        folder: `ca.pem`, `ca.key`, and the members' files; made with mode 0700.
        now: the present time, with its zone.

    Raises:
        CertificateError: the folder or a key is open to others, or belongs to another user.

    """

    def __init__(self, folder: Path, now: dt.datetime) -> None:
        self._folder = folder
        self._now = now
        own_folder(folder)
        self._key, self._certificate = self._authority()

    @property
    def certificate_file(self) -> Path:
        return self._folder / "ca.pem"

    def member(self, member: Member) -> TlsFiles:
        """Return a member's files; make or renew them where that is necessary."""
        files = self._files(member.name)
        if not self._lasts(files):
            key = ec.generate_private_key(ec.SECP256R1())
            write_private(files.key, _private_bytes(key))
            write_private(files.cert, _public_bytes(self._signed(member, key)))
        return files

    def _files(self, name: str) -> TlsFiles:
        """Return the paths of a member's files: `this.pem`, or `nodes/NAME.pem`."""
        folder = self._folder
        if name != THIS:
            folder /= "nodes"
            own_folder(folder)
        pair = (folder / f"{name}.pem", folder / f"{name}.key")
        return TlsFiles(self.certificate_file, *pair)

    def _authority(self) -> tuple[Key, x509.Certificate]:
        key_file = self._folder / "ca.key"
        if key_file.exists() and self.certificate_file.exists():
            key = _read_key(key_file)
            certificate = _read_certificate(self.certificate_file)
            _check_pair(key, certificate, key_file)
            if certificate.not_valid_after_utc - self._now > AUTHORITY_RENEWED_BEFORE:
                return key, certificate
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _authority_certificate(key, self._now)
        write_private(key_file, _private_bytes(key))
        write_private(self.certificate_file, _public_bytes(certificate))
        return key, certificate

    def _lasts(self, files: TlsFiles) -> bool:
        """Return whether a member's certificate exists, this authority signed it, and it lasts."""
        if not files.cert.exists() or not files.key.exists():
            return False
        _check_mode(files.key)
        certificate = _read_certificate(files.cert)
        ours = _issued_by(certificate, self._certificate)
        return ours and certificate.not_valid_after_utc - self._now > RENEWED_BEFORE

    def _signed(self, member: Member, key: Key) -> x509.Certificate:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        built = (
            _builder(member.name, key, self._now, MEMBER_LIFE)
            .issuer_name(self._certificate.subject)
            .add_extension(
                x509.BasicConstraints(ca=False, path_length=None), critical=True
            )
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(
                    self._key.public_key()
                ),
                critical=False,
            )
        )
        names = [_general_name(each) for each in (member.hosts or (member.name,))]
        built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return built.sign(self._key, hashes.SHA256())


def _authority_certificate(key: Key, now: dt.datetime) -> x509.Certificate:
    name = f"authority {secrets.token_hex(4)}"
    public = key.public_key()
    usage = dict.fromkeys(_USAGES, False) | {
        "key_cert_sign": True,
        "crl_sign": True,
    }
    return (
        _builder(name, key, now, AUTHORITY_LIFE)
        .issuer_name(_name(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(public), critical=False
        )
        .sign(key, hashes.SHA256())
    )


_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _builder(
    name: str, key: Key, now: dt.datetime, life: dt.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
    )


def _name(text: str) -> x509.Name:
    attributes = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
        x509.NameAttribute(NameOID.COMMON_NAME, text[:64]),
    ]
    return x509.Name(attributes)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


# ------------------------------------------------------------ check


def check_files(tls: TlsFiles, now: dt.datetime) -> dt.datetime:
    """Check the files of this machine; return the end of its certificate's life.

    Raises:
        InputError: a file is absent or is not what its key says.
        CertificateError: a private key is open to others, the certificate is not valid
            now, or another authority signed it.

    """
    _check_mode(tls.key)
    authority, certificate = _read_certificate(tls.ca), _read_certificate(tls.cert)
    _check_pair(_read_key(tls.key), certificate, tls.key)
    if not _issued_by(certificate, authority):
        raise CertificateError(f"{tls.cert}: {tls.ca} did not sign this certificate")
    for path, each in ((tls.ca, authority), (tls.cert, certificate)):
        _check_dates(path, each, now)
    return certificate.not_valid_after_utc


def _check_dates(path: Path, certificate: x509.Certificate, now: dt.datetime) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise CertificateError(
            f"{path}: the certificate expired on {end:%Y-%m-%d}; `hetctl pool up` renews it"
        )
    if now < begin:
        raise CertificateError(
            f"{path}: the certificate is valid from {begin:%Y-%m-%d %H:%M} UTC; is this "
            "machine's clock right?"
        )


def _check_pair(key: Key, certificate: x509.Certificate, path: Path) -> None:
    if key.public_key() != certificate.public_key():
        raise CertificateError(f"{path}: this key does not belong to the certificate")


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _check_mode(path: Path) -> None:
    """Check that only its owner may read a private key, and that we own it."""
    try:
        status = path.lstat()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {TO_DO}") from error
    if not stat.S_ISREG(status.st_mode):
        raise CertificateError(f"{path}: expected a plain file")
    if status.st_uid != os.getuid():
        raise CertificateError(f"{path}: this key belongs to another user")
    if status.st_mode & OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise CertificateError(
            f"{path}: mode {mode:04o} lets others read this key; chmod 600 {path}"
        )


# ------------------------------------------------------------ files


def own_folder(folder: Path) -> None:
    """Make a folder for its owner alone.

    Raises:
        CertificateError: it is there and open to others, or belongs to another user.

    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise CertificateError(f"{folder}: expected a folder of your own")
    if status.st_mode & OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise CertificateError(
            f"{folder}: mode {mode:04o} lets others in; chmod 700 {folder}"
        )


def write_private(path: Path, content: bytes) -> None:
    """Replace a file as a whole; nobody else can read it at any moment."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    descriptor = os.open(
        new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
    )
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _private_bytes(key: Key) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    )


def _public_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise InputError(f"{path}: not a certificate") from error


def _read_key(path: Path) -> Key:
    _check_mode(path)
    try:
        key: Any = serialization.load_pem_private_key(_read(path), None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: not a private key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: expected a key of an elliptic curve")
    return key


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {TO_DO}") from error
