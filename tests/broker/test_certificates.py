"""One real broker that knows its clients by their certificates: who they are, what they may do, and that a revoked one is out."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.conformance.packets import CONNACK, connect
from tests.conformance.peer import Peer, fresh
from tests.listening.authority import Authority, Issued

WITHIN_S = 40.0
"""A new list is found by a look every five seconds."""


@dataclass(frozen=True, slots=True)
class Certified:
    broker: RunningBroker
    authority: Authority
    port: int

    async def peer(self, shows: Issued, user: str | None = None) -> Peer:
        """Connected by TLS 1.2, of which both ends learn in the handshake what the other thinks of it; its CONNECT is under way."""
        context = ssl.create_default_context(cafile=self.authority.ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(shows.cert, shows.key)
        peer = Peer(5, *await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="localhost"))
        peer.send(connect(5, fresh("c"), username=user))
        return peer

    async def online(self, shows: Issued) -> Peer:
        peer = await self.peer(shows)
        assert (await peer.answer(CONNACK)).code == 0
        return peer


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    place = tmp_path_factory.mktemp("certificates")
    authority = Authority(place / "authority")
    broker_has = authority.issue("broker")
    (place / "rules.toml").write_text("version = 1\n[[rule]]\nallow = ['publish']\ntopics = ['meters/${user}/#']\nhow = ['certificate']\n")
    config = place / "holdfast.toml"
    config.write_text(
        f'[access]\nrules = "{place}/rules.toml"\n[listeners.meters]\ntype = "tls"\nbind = "127.0.0.1:0"\nidentity = "cn"\n'
        f'tls.cert = "{broker_has.cert}"\ntls.key = "{broker_has.key}"\n'
        f'tls.client_certificate = "required"\ntls.ca = "{authority.ca}"\ntls.crl = "{authority.revoke()}"\n'
    )
    with RunningBroker(Options({**QUIET_RAY, "durable_storage.messages.n_shards": "1"}, config=config)) as broker:
        port = next(each.port for each in broker.status().listeners if each.kind == "tls" and each.shared)
        yield Certified(broker, authority, port)


async def test_a_client_is_who_its_certificate_says(certified: Certified) -> None:
    """By its common name it publishes where rules let that one, and nowhere else; another user name in CONNECT is refused."""
    meter = certified.authority.issue("meter-7")
    peer = await certified.online(meter)
    assert await peer.publish("meters/meter-7/power") == 0x10
    assert await peer.publish("meters/meter-8/power") == 0x87
    await (await certified.peer(meter, "meter-8")).refused(0x86)
    assert (await (await certified.peer(meter, "meter-7")).answer(CONNACK)).code == 0


async def test_a_certificate_of_somebody_else_reaches_no_mqtt(certified: Certified, tmp_path: Path) -> None:
    """An authority of the same name is another one."""
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await certified.peer(Authority(tmp_path / "other").issue("meter-7"))


async def test_a_revoked_certificate_is_out_and_does_not_come_in_again(certified: Certified) -> None:
    """Without a command: its connection is closed with 0x87, its handshake is refused, and others notice nothing."""
    honest, stolen = certified.authority.issue("meter-1"), certified.authority.issue("meter-2")
    stays, goes = await certified.online(honest), await certified.online(stolen)
    certified.authority.revoke(stolen.serial)
    began = time.monotonic()
    await goes.closed(0x87)
    assert time.monotonic() - began < WITHIN_S
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await certified.peer(stolen)
    assert await stays.publish("meters/meter-1/power") == 0x10
    await certified.online(honest)
