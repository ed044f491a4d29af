"""A reader with a certificate: TLS and nothing else, and an end to it; and one that runs out of threads."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from actors.reader.tcp import Doors, tls_context
from holdfast_spark.protocol import Wire
from tests.actors.calling import WAIT_S, Caller
from tests.actors.served import STORE, TOKEN, Served, said, served


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    return _certificate(tmp_path)


@contextmanager
def with_tls(broker: Served, certificate: tuple[str, str], connections_max: int = 10) -> Iterator[tuple[Doors, int]]:
    """Another door to the same reader, and its port."""
    doors = Doors("127.0.0.1", 0, broker.desk.converse, connections_max, tls_context(*certificate))
    port = doors.open()
    try:
        yield doors, port
    finally:
        doors.stop()


@contextmanager
def shaken(port: int, certificate: tuple[str, str]) -> Iterator[Caller]:
    context = ssl.create_default_context(cafile=certificate[0])
    with (
        socket.create_connection(("127.0.0.1", port), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        yield Caller(sock)


def test_with_a_certificate_it_speaks_tls_and_nothing_else(certificate: tuple[str, str], tmp_path: Path) -> None:
    """Tokens and messages are not readable on the way."""
    with served(said(b"a", b"1")) as broker, with_tls(broker, certificate) as (_, port):
        with shaken(port, certificate) as reader:
            assert reader.hello(TOKEN)["store"] == STORE
            assert len(reader.everything(broker, "#")) == 1
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert Caller(sock).is_refused()
    assert tls_context("", "") is None
    with pytest.raises(OSError):
        tls_context(str(tmp_path / "none.pem"), certificate[1])


@pytest.mark.parametrize("connections_max", [10, 0])
def test_who_speaks_plainly_to_it_is_told_that_it_speaks_tls(certificate: tuple[str, str], connections_max: int) -> None:
    """In one sentence at once, whatever the token, and nothing more is said; also when there is no room for anybody."""
    with served(said(b"a", b"1")) as broker, with_tls(broker, certificate, connections_max) as (_, port):
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
            reader = Caller(sock)
            answer = reader.hello(TOKEN)
            assert answer["error"] == "REQUEST" and "speaks TLS" in answer["sentence"] and "tls=true" in answer["sentence"]
            assert reader.is_over()


@pytest.mark.parametrize("when", ["between requests", "within the handshake"])
def test_a_stopped_reader_ends_its_connections_in_tls_too(certificate: tuple[str, str], when: str) -> None:
    """Whoever waits is not left waiting, and no thread is."""
    before = set(threading.enumerate())
    with served(said(b"a")) as broker, with_tls(broker, certificate) as (doors, port):
        if when == "between requests":
            with shaken(port, certificate) as reader:
                reader.hello(TOKEN)
                doors.stop()
                assert reader.is_over()
        else:
            with socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
                sock.sendall(b"\x16\x03\x01")
                while doors.connections == 0:
                    time.sleep(0.001)
                doors.stop()
                assert Caller(sock).is_over()
        left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("reader ")]
        assert left == []


def test_no_more_threads_cost_one_connection_and_not_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes then is turned away; whoever comes later is not."""
    begun = threading.Event()

    def converse(wire: Wire) -> None:
        begun.set()

    doors = Doors("127.0.0.1", 0, converse, 10)
    port = doors.open()
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("reader "):
            monkeypatch.setattr(threading.Thread, "start", real)
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    try:
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
            assert Caller(sock).is_over()
        assert doors.connections == 0 and not doors.ended
        with socket.create_connection(("127.0.0.1", port), WAIT_S):
            assert begun.wait(WAIT_S)
    finally:
        doors.stop()


def _certificate(directory: Path) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = directory / "cert.pem"
    pem.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    key_pem = directory / "key.pem"
    key_pem.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return str(pem), str(key_pem)
