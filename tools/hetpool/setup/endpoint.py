"""The scheduler's address, and the reason why it cannot be used.

Dask reports every failed connection as a time-out, after half a minute. `probe` makes the
connection by itself first, with the same certificates: it takes some milliseconds, needs no
Dask, and distinguishes an absent scheduler from a refused certificate.
"""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetpool.errors import CertificateError, PoolUnreachableError
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PORT = 8786
HIGHEST_PORT = 65535
PATIENCE_S = 5.0
"""Seconds for the scheduler to accept a connection and say something."""
ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z]+)://)?(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9_.-]+))"
    r"(?::(?P<port>\d{1,5}))?/?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """The address at which a scheduler or an agent listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tls://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files with which this machine shows who it is, and checks others."""

    ca: Path
    cert: Path
    key: Path


def parse_address(text: str, where: str) -> Address:
    """Parse `tls://HOST:PORT`; the scheme and the port may be left out.

    Args:
        text: the address.
        where: the key or variable that it comes from, for the error.

    Raises:
        InputError: it is not an address, or one without encryption.

    """
    found = ADDRESS.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{where}: expected tls://HOST:PORT, got {text[:80]!r}")
    if found["scheme"] not in (None, "tls"):
        raise InputError(
            f"{where}: expected tls://HOST:PORT, got {text[:80]!r}: a pool runs its "
            "members' code, so every connection is encrypted and checked"
        )
    port = int(found["port"] or DEFAULT_PORT)
    if not 0 < port <= HIGHEST_PORT:
        raise InputError(f"{where}: expected a port from 1 to {HIGHEST_PORT}")
    return Address(found["six"] or found["host"], port)


def context_of(tls: TlsFiles) -> ssl.SSLContext:
    """Return a client's TLS context: it accepts only what the pool's authority signed.

    Raises:
        CertificateError: the files do not fit together.

    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # members are named by the authority, not by their hosts' names, as Dask does it
    context.check_hostname = False
    try:
        context.load_verify_locations(tls.ca)
        context.load_cert_chain(tls.cert, tls.key)
    except ssl.SSLError as error:
        raise CertificateError(f"{tls.cert}: {_said(error)}") from error
    return context


def probe(address: Address, tls: TlsFiles, patience: float = PATIENCE_S) -> None:
    """Check that a scheduler of this pool answers, and accepts this machine.

    Args:
        address: the scheduler's.
        tls: the certificates, which exist and are valid (`certificates.check_files`).
        patience: seconds for each step.

    Raises:
        PoolUnreachableError: none answers.
        CertificateError: one of the two refuses the other's certificate.

    """
    context = context_of(tls)
    try:
        plain = socket.create_connection((address.host, address.port), patience)
    except OSError as error:
        why = error.strerror or str(error) or "no answer"
        raise PoolUnreachableError(
            f"no scheduler at {address}: {why.lower()}; `hetctl pool up` starts one"
        ) from error
    with closing(plain):
        _shake_hands(context, plain, address)


def _shake_hands(
    context: ssl.SSLContext, plain: socket.socket, address: Address
) -> None:
    """Make the TLS connection, and wait for the scheduler's first bytes.

    With TLS 1.3 a server refuses a client's certificate after the client's part of the
    handshake is over: the refusal arrives in place of the first bytes.
    """
    try:
        with context.wrap_socket(plain) as wrapped:
            first = wrapped.recv(1)
    except ssl.SSLError as error:
        raise CertificateError(f"{address}: {_refusal(error)}") from error
    except TimeoutError as error:
        text = (
            f"what listens at {address} does not answer; is it a scheduler of a pool?"
        )
        raise PoolUnreachableError(text) from error
    except OSError as error:
        raise PoolUnreachableError(_closed(address)) from error
    if not first:
        raise PoolUnreachableError(_closed(address))


def _closed(address: Address) -> str:
    return (
        f"what listens at {address} closes the connection; is it a scheduler of a pool?"
    )


def _refusal(error: ssl.SSLError) -> str:
    """Say whose certificate is refused, and why."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"this machine refuses the scheduler's certificate ({error.verify_message}); "
            "both must be signed by the same pool's authority"
        )
    if "EXPIRED" in reason:
        return "the scheduler refuses this machine's certificate: it has expired; `hetctl pool up` renews it"
    if "ALERT" in reason:
        return (
            f"the scheduler refuses this machine's certificate ({_said(error)}); is it "
            "of this pool?"
        )
    return f"no TLS connection ({_said(error)}); is it a scheduler of a pool?"


def _said(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
