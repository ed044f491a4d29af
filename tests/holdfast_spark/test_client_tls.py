"""The client and TLS: who is believed, who is not, and one sentence at once where the two sides do not speak the same."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from actors.reader.tcp import Doors, tls_context
from holdfast_spark.client import Client, Endpoint, NoReader, parse_brokers
from holdfast_spark.protocol import Refused
from tests.actors.served import served
from tests.holdfast_spark.fake_reader import TOKEN, FakeReader, one_shard
from tests.holdfast_spark.plain import Message
from tests.holdfast_spark.signed import Signed

MESSAGES = [Message(1, 10 * at, "t/1", "c", b"%d" % at) for at in range(5)]


def refused(endpoint: Endpoint) -> str:
    """The sentence, which comes without waiting."""
    slept: list[float] = []
    with Client(endpoint, sleep=slept.append) as client, pytest.raises(NoReader) as error:
        client.cuts()
    assert slept == []
    return str(error.value)


def test_tls_is_spoken_and_a_certificate_that_nobody_vouches_for_is_refused(certificate: tuple[Path, Path]) -> None:
    """At once and in one sentence: waiting makes no certificate right."""
    cert, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with FakeReader(one_shard(*MESSAGES), tls=context) as reader:
        brokers = parse_brokers(reader.brokers)
        with Client(Endpoint(brokers, TOKEN, True, cert.read_text())) as client:
            assert client.cuts()["store"] == "site-a:2"
        assert "TLS" in refused(Endpoint(brokers, TOKEN, True))


def test_an_authority_vouches_for_the_name_that_was_asked_for_and_no_other(tmp_path: Path) -> None:
    """Whoever else it has signed for is not the reader."""
    signed = Signed(tmp_path, [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    with FakeReader(one_shard(*MESSAGES), tls=signed.context()) as reader:
        with Client(Endpoint((("127.0.0.1", reader.port),), TOKEN, True, signed.authority)) as client:
            assert client.cuts()["store"] == "site-a:2"
        assert "localhost" in refused(Endpoint((("localhost", reader.port),), TOKEN, True, signed.authority))


def test_the_readers_own_certificate_is_believed_by_whatever_name_it_is_reached(tmp_path: Path) -> None:
    """As a session of its data directory has it: reached at 127.0.0.1, made for another name, signed by who knows whom."""
    (tmp_path / "other").mkdir()
    signed = Signed(tmp_path, [x509.DNSName("broker.example")])
    other = Signed(tmp_path / "other", [x509.DNSName("broker.example")])
    with FakeReader(one_shard(*MESSAGES), tls=signed.context()) as reader:
        brokers = (("127.0.0.1", reader.port),)
        with Client(Endpoint(brokers, TOKEN, True, other.own + signed.own)) as client:
            assert client.cuts()["store"] == "site-a:2"
        for trusted in (other.own, other.authority, signed.authority, other.own + signed.authority):
            assert "TLS" in refused(Endpoint(brokers, TOKEN, True, trusted))


def test_a_reader_without_tls_is_said_to_be_one() -> None:
    """Not in the words of a library, and at once."""
    with served() as broker:
        assert "does not speak TLS, and option tls is true" in refused(Endpoint(((broker.host, broker.port),), broker.token, True))


def test_a_reader_with_tls_says_so_to_who_speaks_plainly(certificate: tuple[Path, Path]) -> None:
    """One sentence at once that names the option, and not half a minute of silence."""
    cert, key = map(str, certificate)
    with served() as broker:
        doors = Doors(broker.host, 0, broker.desk.converse, 10, tls_context(cert, key))
        brokers = ((broker.host, doors.open()),)
        try:
            with Client(Endpoint(brokers, broker.token)) as client, pytest.raises(Refused, match="wanted is option tls=true"):
                client.cuts()
            with Client(Endpoint(brokers, broker.token, True, certificate[0].read_text())) as client:
                assert client.cuts()["store"] == broker.store
        finally:
            doors.stop()
