"""A door behind a proxy: its header is read before anything else, and believed of nobody else."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from actors.listening.options import DoorOptions, Kind, ProxyOptions, TlsOptions
from gateway.transport.limits import Limits
from gateway.transport.proxy import Versions
from tests.listening.authority import Authority
from tests.listening.house import CONNACK, CONNECT, House, connected, ends, says, speaks_mqtt
from tests.listening.test_proxy import BAD, GOOD, with_crc

HERE = ("127.0.0.0/8",)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


def door(
    kind: Kind = "tcp",
    versions: Versions = "any",
    networks: tuple[str, ...] = HERE,
    tls: TlsOptions | None = None,
    limits: Limits | None = None,
    connect_ms: int = 60_000,
) -> DoorOptions:
    proxy = ProxyOptions(versions, tuple([ip_network(each) for each in networks]))
    return DoorOptions(
        "proxied", kind, limits or Limits(100), "127.0.0.1", 0, connect_ms=connect_ms, handshake_ms=60_000, proxy=proxy, tls=tls
    )


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])
@pytest.mark.parametrize("name", ["v1 IPv4", "v2 with a checksum"])
async def test_the_address_is_the_client_s_whatever_comes_behind(kind: Kind, name: str, house: House, tmp_path: Path) -> None:
    """And whoever comes by a proxy is not of this machine, wherever the proxy is."""
    tls = trusts = None
    if kind in ("tls", "wss"):
        authority = Authority(tmp_path / "ca")
        issued = authority.issue("broker")
        tls, trusts = TlsOptions(issued.cert, issued.key), ssl.create_default_context(cafile=authority.ca)
    (info,) = await house.open(door(kind, tls=tls))
    assert not info.plain
    header, address, port = GOOD[name]
    streams = await connected(info, trusts, header)
    await speaks_mqtt(streams, web=kind in ("ws", "wss"))
    (connection,) = house.here.values()
    assert (connection.arrival.address, connection.peer, connection.arrival.loopback) == (address, f"{address}:{port}", False)


@pytest.mark.parametrize("name", ["v1 IPv4", "v1 unknown", "v2 IPv6", "v2 local", "v2 with a checksum behind another"])
async def test_a_header_that_comes_byte_by_byte_is_the_same(name: str, house: House) -> None:
    """MQTT begins right behind it. Who speaks for nobody keeps the address of the proxy."""
    (info,) = await house.open(door())
    header, address, _ = GOOD[name]
    streams = await connected(info)
    (opened,) = house.doors._doors.values()
    for at in range(len(header)):
        streams[1].write(header[at : at + 1])
        await streams[1].drain()
        await house.turns()
    await says(streams, CONNECT, CONNACK)
    (connection,) = house.here.values()
    assert connection.arrival.address == (address or "127.0.0.1") and not connection.arrival.loopback
    assert opened.limiter.connections == 1


@pytest.mark.parametrize("name", ["MQTT", "v1 without an end", "v2 too long", "v2 with a wrong checksum", "v2 of UDP"])
async def test_without_a_good_header_it_is_closed_and_counted(name: str, house: House) -> None:
    """No part of MQTT has begun."""
    (info,) = await house.open(door())
    assert await ends(await connected(info, first=BAD[name])) == b""
    (opened,) = house.doors._doors.values()
    assert (opened.limiter.connections, opened.complaints.counts) == (0, {"bad_proxy_header": 1}) and not house.here


async def test_who_is_no_proxy_is_closed_whatever_it_says(house: House) -> None:
    """Else anybody could say that he is somebody else."""
    (info,) = await house.open(door(networks=("192.0.2.0/24",)))
    assert await ends(await connected(info, first=GOOD["v2 IPv4"][0])) == b""
    (opened,) = house.doors._doors.values()
    assert (opened.limiter.connections, opened.complaints.counts) == (0, {"no_proxy": 1})


async def test_a_proxy_that_says_nothing_has_the_time_of_a_connect(house: House) -> None:
    """Half a header is nothing."""
    (info,) = await house.open(door(connect_ms=100))
    silent, half = await connected(info), await connected(info, first=b"PROXY TCP4 ")
    assert await ends(silent) == await ends(half) == b""
    (opened,) = house.doors._doors.values()
    assert (opened.limiter.connections, opened.complaints.counts) == (0, {"bad_proxy_header": 2})


async def test_the_limits_of_an_address_are_those_of_the_client(house: House) -> None:
    """All come from the address of the proxy, and yet each has its own."""
    (info,) = await house.open(door(limits=Limits(100, connections_per_address_max=1)))
    headers = [f"PROXY TCP4 192.0.2.{each} 192.0.2.1 1 2\r\n".encode() for each in (1, 1, 2)]
    first = await connected(info, first=headers[0])
    await speaks_mqtt(first)
    assert await ends(await connected(info, first=headers[1])) == b""
    second = await connected(info, first=headers[2])
    await speaks_mqtt(second)
    first[1].close()
    await house.until(lambda: len(house.here) == 1)
    third = await connected(info, first=headers[0])
    await speaks_mqtt(third)


async def test_networks_and_versions_change_while_the_door_is_open(house: House) -> None:
    """As rates and origins do."""
    (info,) = await house.open(door(networks=("192.0.2.0/24",)))
    house.doors.change([door(versions="v1")])
    assert await ends(await connected(info, first=GOOD["v2 IPv4"][0])) == b""
    streams = await connected(info, first=GOOD["v1 IPv4"][0])
    await speaks_mqtt(streams)
    house.doors.change([door(versions="v2")])
    streams = await connected(info, first=with_crc(0x11, GOOD["v2 IPv4"][0][16:]))
    await speaks_mqtt(streams)
