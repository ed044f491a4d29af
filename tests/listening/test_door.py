"""Doors over real sockets: each kind lets a client through to MQTT, and each limit holds."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from actors.alarms import read_alarms
from actors.listening import door as door_module
from actors.listening import exhausted
from actors.listening.options import DoorOptions, Kind, ProxyOptions, TlsOptions
from actors.listening.sockets import CannotListen, listen_on
from gateway.transport.limits import Limits
from tests.listening.authority import Authority
from tests.listening.house import CONNACK, CONNECT, House, connected, ends, opens_web, says, speaks_mqtt
from tests.listening.test_websocket import sent


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """The path of a socket has 107 bytes."""
    with TemporaryDirectory(prefix="hf") as path:
        yield Path(path)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


def options(
    kind: Kind = "tcp", name: str = "", *, limits: Limits | None = None, path: str = "", tls: TlsOptions | None = None
) -> DoorOptions:
    return DoorOptions(name or kind, kind, limits or Limits(100), "127.0.0.1", 0, path, tls=tls)


def tls_of(authority: Authority) -> tuple[TlsOptions, ssl.SSLContext]:
    """Of a listener, and of a client that trusts it."""
    issued = authority.issue("broker")
    return TlsOptions(issued.cert, issued.key), ssl.create_default_context(cafile=authority.ca)


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss", "unix"])
async def test_each_kind_lets_a_client_through_to_mqtt(kind: Kind, house: House, authority: Authority, short_dir: Path) -> None:
    """And the gateway knows by which listener it came, from where, and that it is of this machine."""
    tls, trusts = tls_of(authority)
    encrypted = kind in ("tls", "wss")
    (info,) = await house.open(options(kind, "mine", path=str(short_dir / "mqtt.sock"), tls=tls if encrypted else None))
    assert (info.kind, info.name, info.shared, info.plain) == (kind, "mine", kind != "unix", kind in ("tcp", "unix"))
    streams = await connected(info, trusts if encrypted else None)
    await speaks_mqtt(streams, web=kind in ("ws", "wss"))
    (connection,) = house.here.values()
    assert (connection.listener, connection.arrival.loopback) == ("mine", True)
    assert connection.arrival.address == ("" if kind == "unix" else "127.0.0.1")
    streams[1].close()
    await house.until(lambda: not house.here)


async def test_several_of_one_kind_have_limits_of_their_own(house: House) -> None:
    """One that is full turns away, while the other lets in."""
    one, two = await house.open(options(name="one", limits=Limits(1)), options(name="two"))
    first = await connected(one)
    await speaks_mqtt(first)
    assert await ends(await connected(one)) == b""
    second = await connected(two)
    await speaks_mqtt(second)
    first[1].close()
    await house.until(lambda: len(house.here) == 1)
    await speaks_mqtt(await connected(one))


async def test_an_address_may_have_so_many_connections_and_no_more(house: House) -> None:
    """The limit counts those of one address; when one of them is gone there is room again."""
    (info,) = await house.open(options(limits=Limits(100, connections_per_address_max=2)))
    first, second = await connected(info), await connected(info)
    await speaks_mqtt(first)
    await speaks_mqtt(second)
    assert await ends(await connected(info)) == b""
    second[1].close()
    await house.until(lambda: len(house.here) == 1)
    await speaks_mqtt(await connected(info))


async def test_what_comes_too_fast_waits_and_is_served(house: House) -> None:
    """Nobody is refused by the rate of a listener: all are served, in more than the time that the rate gives them."""
    (info,) = await house.open(options(limits=Limits(100, connect_rate=40)))
    loop = asyncio.get_running_loop()
    began = loop.time()
    clients = [await connected(info) for _ in range(60)]
    await asyncio.gather(*[speaks_mqtt(client) for client in clients])
    assert 0.4 < loop.time() - began < 5


async def test_an_address_that_comes_too_fast_is_closed_at_once(house: House) -> None:
    """A second's worth comes in."""
    (info,) = await house.open(options(limits=Limits(100, connect_rate_per_address=3)))
    clients = [await connected(info) for _ in range(3)]
    await asyncio.gather(*[speaks_mqtt(client) for client in clients])
    assert await ends(await connected(info)) == b""


async def test_limits_change_while_the_door_is_open(house: House) -> None:
    """For who comes from then on; who is there stays."""
    (info,) = await house.open(options())
    first = await connected(info)
    await speaks_mqtt(first)
    house.doors.change([options(limits=Limits(1))])
    assert await ends(await connected(info)) == b""
    house.doors.change([options(limits=Limits(2))])
    await speaks_mqtt(await connected(info))
    await says(first, b"\xc0\0", b"\xd0\0")


@pytest.fixture
def waiting() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.setblocking(False)
        yield made


async def test_without_descriptors_nobody_is_lost(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: socket.socket
) -> None:
    """They wait in the backlog, and are served when there are descriptors again; an alarm says so while it lasts."""
    monkeypatch.setattr(door_module, "EXHAUSTED_PAUSE_S", 0.01)
    monkeypatch.setattr(exhausted, "CALM_SECONDS", 0.03)
    (info,) = await house.open(options())
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
            if len(taken) > 200_000:
                pytest.skip("no limit of open files that could be met")
    except OSError:
        pass
    try:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(waiting, ("127.0.0.1", info.port))
        await loop.sock_sendall(waiting, CONNECT)
        await house.turns(lambda: house.doors.exhaustions > 1)
        assert not house.here
    finally:
        for descriptor in taken:
            os.close(descriptor)
    (alarm,) = read_alarms(tmp_path)
    assert alarm.kind == "descriptors" and "listeners.tcp: too many open files" in alarm.cause
    assert await asyncio.wait_for(loop.sock_recv(waiting, 4), 60) == CONNACK
    await house.turns(lambda: not read_alarms(tmp_path))


async def test_after_its_end_nobody_comes_in_and_who_is_there_stays(house: House) -> None:
    """A broker that stops still owes its clients their acknowledgements."""
    (info,) = await house.open(options())
    first = await connected(info)
    await speaks_mqtt(first)
    house.doors.close()
    with pytest.raises(OSError):
        await connected(info)
    await says(first, b"\xc0\0", b"\xd0\0")


async def test_the_file_of_a_socket_goes_with_its_door(house: House, short_dir: Path) -> None:
    """One that somebody else has put in its place stays."""
    path = short_dir / "mqtt.sock"
    await house.open(options("unix", path=str(path)))
    house.doors.close()
    assert not path.exists()
    await house.open(options("unix", path=str(path)))
    path.unlink()
    path.write_text("another's")
    house.doors.close()
    assert path.read_text() == "another's"


async def test_what_has_to_be_said_first_is_announced_as_it_is_now(house: House) -> None:
    """A listener whose PROXY header is wanted from now on takes no plain CONNECT."""
    (info,) = await house.open(options())
    assert house.doors.infos == (info,)
    house.doors.change([replace(options(), proxy=ProxyOptions("any", (ip_network("10.0.0.0/8"),)))])
    assert house.doors.infos == (replace(info, plain=False),)
    house.doors.change([options()])
    assert house.doors.infos == (info,)


# ---------------------------------------------------------------------------------------------- WebSocket


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/other", "", "404 Not Found"), ("/mqtt", "Origin: https://evil.example\r\n", "403 Forbidden")],
)
async def test_a_handshake_that_is_refused_says_why_and_is_closed(path: str, headers: str, status: str, house: House) -> None:
    """No part of MQTT has begun."""
    (info,) = await house.open(options("ws"))
    streams = await connected(info)
    assert await opens_web(streams, path, headers) == f"HTTP/1.1 {status}"
    assert status.partition(" ")[2].encode() in await ends(streams)
    assert not house.here and len(house.ends) == 1


async def test_a_listed_origin_comes_in_and_the_list_changes_at_once(house: House) -> None:
    """As rates and files do."""
    (info,) = await house.open(options("ws"))
    origin = "Origin: https://app.example\r\n"
    assert "403" in await opens_web(await connected(info), headers=origin)
    house.doors.change([DoorOptions("ws", "ws", Limits(9), ws_origins=("https://app.example",), ws_path="/new")])
    assert "101" in await opens_web(await connected(info), "/new", origin)


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (sent(b"hello", 1), b"\x88\x02\x03\xeb"),
        (b"\x82\x03abc", b"\x88\x02\x03\xea"),
        (sent(b"\x03\xe8", 8), b"\x88\x02\x03\xe8"),
        (sent(b"\0\0"), b"\x88\x02\x03\xe8"),
    ],
)
async def test_what_is_no_frame_of_mqtt_is_answered_with_its_code_and_closed(data: bytes, answer: bytes, house: House) -> None:
    """Text, a frame without a mask, a close, and bytes that are no MQTT."""
    (info,) = await house.open(options("ws"))
    streams = await connected(info)
    await speaks_mqtt(streams, web=True)
    streams[1].write(data)
    assert await ends(streams) == answer
    assert len(house.ends) == 1


async def test_a_ping_of_the_web_is_answered(house: House) -> None:
    """By a pong with its payload; MQTT knows nothing of it."""
    (info,) = await house.open(options("ws"))
    streams = await connected(info)
    await speaks_mqtt(streams, web=True)
    await says(streams, sent(b"still there?", 9), b"\x8a\x0cstill there?")


# ---------------------------------------------------------------------------------------------- where


async def test_two_gateways_share_a_port_and_each_has_one_of_its_own(tmp_path: Path) -> None:
    """The former one if it is free."""
    first, second = House(tmp_path), House(tmp_path, 1)
    shared, own = await first.open(options(), own_port=0)
    again = DoorOptions("tcp", "tcp", Limits(9), "127.0.0.1", shared.port)
    also_shared, other = await second.open(again, own_port=own.port)
    assert (also_shared.port, also_shared.shared) == (shared.port, True) and other.port != own.port and not other.shared
    clients = [await connected(own), await connected(other)]
    for client in clients:
        await speaks_mqtt(client)
    assert (len(first.here), len(second.here)) == (1, 1)
    first.close()
    second.close()


async def test_a_unix_socket_is_each_gateway_s_own_and_has_its_mode(short_dir: Path, tmp_path: Path) -> None:
    """A path cannot be shared as a port can."""
    path = short_dir / "mqtt.sock"
    first, second = House(tmp_path), House(tmp_path, 1)
    (info,) = await first.open(options("unix", path=str(path)))
    (other,) = await second.open(options("unix", path=str(path)))
    assert (info.host, other.host) == (str(path), f"{path}.1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    client = await connected(other)
    await speaks_mqtt(client)
    assert second.here and not first.here
    first.close()
    second.close()


async def test_a_socket_that_was_left_is_replaced_and_one_in_use_is_not(short_dir: Path, house: House, tmp_path: Path) -> None:
    """Nor is anything that is no socket."""
    path = short_dir / "mqtt.sock"
    listen_on(str(path), 0o660, 1).close()
    assert path.exists()
    (info,) = await house.open(options("unix", path=str(path)))
    await speaks_mqtt(await connected(info))
    with pytest.raises(CannotListen, match="another process listens there"):
        await House(tmp_path).open(options("unix", path=str(path)))
    (short_dir / "file").write_text("precious")
    with pytest.raises(CannotListen, match="something else is there"):
        await House(tmp_path).open(options("unix", path=str(short_dir / "file")))
    assert (short_dir / "file").read_text() == "precious"


async def test_a_port_in_use_is_one_sentence_and_nothing_stays_open(house: House) -> None:
    """Those that were opened before it are closed again, so that another try can succeed."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(CannotListen, match=rf"the port {port} on 127\.0\.0\.1 cannot be used: Address already in use"):
            await house.open(options(), DoorOptions("two", "tcp", Limits(9), "127.0.0.1", port))
    infos = await house.open(options(), DoorOptions("two", "tcp", Limits(9), "127.0.0.1", port))
    assert len(infos) == 2
