"""A real scheduler with the pool's certificates refuses strangers; `probe` says why."""

from __future__ import annotations

import datetime as dt
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hetpool.errors import CertificateError, PoolUnreachableError
from hetpool.setup.certificates import Authority, Member
from hetpool.setup.endpoint import Address, probe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hetpool.setup.endpoint import TlsFiles

THIS = Member("this", ("127.0.0.1",))
DEADLINE_S = 60.0
SCHEDULER = "distributed.cli.dask_scheduler"


def now() -> dt.datetime:
    return dt.datetime.fromtimestamp(time.time(), dt.UTC)  # noqa: TID251  what Dask compares with


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


def options_of(tls: TlsFiles) -> list[str]:
    files = {"--tls-ca-file": tls.ca, "--tls-cert": tls.cert, "--tls-key": tls.key}
    return [str(word) for pair in files.items() for word in pair]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pool") / "own"


@pytest.fixture(scope="module")
def files(folder: Path) -> TlsFiles:
    return Authority(folder, now()).member(THIS)


@pytest.fixture(scope="module")
def scheduler(files: TlsFiles, folder: Path) -> Iterator[Address]:
    address = Address("127.0.0.1", free_port())
    words = ["--host", "tls://127.0.0.1", "--port", str(address.port), "--no-dashboard"]
    process = subprocess.Popen(
        [sys.executable, "-m", SCHEDULER, *words, *options_of(files)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "DASK_TEMPORARY_DIRECTORY": str(folder.parent)},
    )
    deadline = time.monotonic() + DEADLINE_S
    while not listens(address):
        assert process.poll() is None
        assert time.monotonic() < deadline, "the scheduler does not listen"
        select.select([], [], [], 0.05)
    yield address
    process.send_signal(signal.SIGTERM)
    process.wait(DEADLINE_S)


def listens(address: Address) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex((address.host, address.port)) == 0


def test_a_member_is_accepted(scheduler: Address, files: TlsFiles) -> None:
    probe(scheduler, files, DEADLINE_S)


def test_a_machine_of_another_pool_refuses_the_scheduler(
    scheduler: Address, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", now()).member(THIS)

    with pytest.raises(CertificateError, match="refuses the scheduler's certificate"):
        probe(scheduler, other, DEADLINE_S)


def test_the_scheduler_refuses_a_certificate_of_another_authority(
    scheduler: Address, files: TlsFiles, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", now()).member(THIS)

    with pytest.raises(CertificateError, match=r"scheduler refuses this .*unknown ca"):
        probe(scheduler, replace(other, ca=files.ca), DEADLINE_S)


def test_the_scheduler_refuses_an_expired_certificate(
    scheduler: Address, files: TlsFiles, folder: Path
) -> None:
    long_ago = now() - dt.timedelta(days=400)
    expired = Authority(folder, long_ago).member(Member("expired"))

    with pytest.raises(
        CertificateError, match=r"it has expired; `hetctl pool up` renews"
    ):
        probe(scheduler, expired, DEADLINE_S)


def test_the_scheduler_refuses_machines_without_a_certificate(
    scheduler: Address, files: TlsFiles
) -> None:
    context = ssl.create_default_context(cafile=str(files.ca))
    context.check_hostname = False
    with (
        socket.create_connection((scheduler.host, scheduler.port), DEADLINE_S) as plain,
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        context.wrap_socket(plain) as wrapped,
    ):
        wrapped.recv(1)


def test_the_scheduler_closes_connections_without_encryption(
    scheduler: Address,
) -> None:
    with socket.create_connection(
        (scheduler.host, scheduler.port), DEADLINE_S
    ) as plain:
        plain.sendall(b"\x00" * 64)
        try:
            answer = plain.recv(1024)
        except ConnectionResetError:
            answer = b""

    # at most the alert of TLS, never a message of Dask's protocol
    assert answer == b"" or answer[:1] == b"\x15"


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_another_server_is_not_taken_for_a_scheduler(
    files: TlsFiles, greeting: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address("127.0.0.1", server.getsockname()[1])
        child = os.fork()
        if child == 0:
            connection, _ = server.accept()
            connection.sendall(greeting)
            connection.close()
            os._exit(0)
        with pytest.raises(
            (PoolUnreachableError, CertificateError),
            match="is it a scheduler of a pool",
        ):
            probe(address, files, DEADLINE_S)
        os.waitpid(child, 0)


def test_without_a_scheduler_the_line_names_the_address(files: TlsFiles) -> None:
    address = Address("127.0.0.1", free_port())

    with pytest.raises(
        PoolUnreachableError, match=rf"^no scheduler at {address}: connection refused"
    ):
        probe(address, files)
