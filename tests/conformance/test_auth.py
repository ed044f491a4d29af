"""Enhanced authentication, with SCRAM-SHA-256: by CONNECT, again later, and every way in which it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from actors.access.publishing import publish
from config.load import from_json
from tests.actors.one_loop import OneLoop
from tests.auth.by_hand import scram
from tests.auth.test_exchanges import Client
from tests.conformance import packets
from tests.conformance.cases import ONE_LOOP, PROTOCOL_ERROR
from tests.conformance.packets import AUTH, AUTH_DATA, AUTH_METHOD, CONNACK, MAXIMUM_PACKET_SIZE, Answer, Properties, auth, connect
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP
METHOD, PASSWORD = "SCRAM-SHA-256", "only Sam knows"
GO_ON, AGAIN = 0x18, 0x19
BAD_PASSWORD, NOT_AUTHORIZED = 0x86, 0x87


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OneLoop]:
    """One with a password file that has two users of SCRAM."""
    place = tmp_path_factory.mktemp("broker")
    file = place / "passwords"
    file.write_text(f"sam:{scram(PASSWORD)}\nsue:{scram(PASSWORD)}\n")
    file.chmod(0o600)
    data_dir: Path = place / "data"
    data_dir.mkdir()
    made = OneLoop(data_dir, sets=(f"access.password.file={file}",))
    publish(made.topology.run_dir, from_json(made.topology.config_json))
    async with made as running:
        yield running


def shown(data: bytes, method: str = METHOD) -> Properties:
    return [(AUTH_METHOD, method), (AUTH_DATA, data)]


async def begin(port: int, client: Client, *more: tuple[int, int]) -> Peer:
    return await Peer.open(port, 5, connect(5, fresh("c"), properties_=[*shown(client.first()), *more]))


async def challenge(peer: Peer) -> Answer:
    came = await peer.answer(AUTH)
    assert came.code == GO_ON and dict(came.properties)[AUTH_METHOD] == METHOD
    return came


async def prove(peer: Peer, client: Client) -> None:
    data = dict((await challenge(peer)).properties)[AUTH_DATA]
    assert isinstance(data, bytes)
    peer.send(auth(GO_ON, shown(client.final(data))))


async def online(port: int) -> Peer:
    client = Client("sam", PASSWORD)
    peer = await begin(port, client)
    await prove(peer, client)
    assert (await peer.answer(CONNACK)).code == 0
    return peer


async def test_the_server_asks_until_it_knows_and_names_the_method_all_along(port: int) -> None:
    """AUTH 0x18 in between; method and last word in CONNACK, by which the client knows the server.  [MQTT-4.12.0-2, -5]"""
    client = Client("sam", PASSWORD)
    peer = await begin(port, client)
    await prove(peer, client)
    connack = await peer.answer(CONNACK)
    found = dict(connack.properties)
    assert connack.code == 0 and found[AUTH_METHOD] == METHOD
    last = found[AUTH_DATA]
    assert isinstance(last, bytes) and client.is_server(last)


async def test_a_wrong_proof_is_refused_on_the_way(port: int) -> None:
    """A CONNACK with an error, and the connection is closed.  [MQTT-4.12.0-4]"""
    for user, password in (("sam", "wrong"), ("nobody", PASSWORD)):
        client = Client(user, password)
        peer = await begin(port, client)
        await prove(peer, client)
        await peer.refused(BAD_PASSWORD)


@pytest.mark.parametrize(
    "data",
    [auth(GO_ON, shown(b"x", "another")), auth(AGAIN, shown(b"x")), b"\xc0\x00"],
    ids=["another method", "again", "PINGREQ"],
)
async def test_what_is_out_of_turn_before_connack_is_refused(port: int, data: bytes) -> None:
    """AUTH and DISCONNECT only, with the method of CONNECT.  [MQTT-3.1.2-30], [MQTT-4.12.0-3]"""
    peer = await begin(port, Client("sam", PASSWORD))
    await challenge(peer)
    peer.send(data)
    await peer.refused(PROTOCOL_ERROR)


@pytest.mark.parametrize("code", [0x00, 0x01, 0x17, 0x1A, 0x80, 0x87])
async def test_a_code_that_no_client_has_for_auth_closes_the_connection(port: int, code: int) -> None:
    """Before CONNACK and behind it.  [MQTT-3.15.2-1]"""
    peer = await begin(port, Client("sam", PASSWORD))
    await challenge(peer)
    peer.send(auth(code, shown(b"x")))
    assert all(isinstance(came, Answer) and came.kind == CONNACK and came.code >= 0x80 for came in await peer.rest())
    there = await online(port)
    there.send(auth(code, shown(b"x")))
    (last,) = await there.rest()
    assert isinstance(last, Answer) and last.kind == packets.DISCONNECT and last.code in (0x81, 0x82)


async def test_a_client_authenticates_again_and_goes_on(port: int) -> None:
    """AUTH 0x00 at its end; what it sends meanwhile is done.  [MQTT-4.12.0-5], [MQTT-4.12.1-1]"""
    peer, client = await online(port), Client("sam", PASSWORD)
    peer.send(auth(AGAIN, shown(client.first())))
    asked = await challenge(peer)
    await peer.alive()
    data = dict(asked.properties)[AUTH_DATA]
    assert isinstance(data, bytes)
    peer.send(auth(GO_ON, shown(client.final(data))))
    done = await peer.answer(AUTH)
    assert done.code == 0 and dict(done.properties)[AUTH_METHOD] == METHOD
    await peer.alive()


@pytest.mark.parametrize(("user", "password"), [("sam", "wrong"), ("sue", PASSWORD), ("nobody", PASSWORD)])
async def test_who_fails_to_authenticate_again_is_closed(port: int, user: str, password: str) -> None:
    """A wrong proof, or another user.  [MQTT-4.12.1-2]"""
    peer, client = await online(port), Client(user, password)
    peer.send(auth(AGAIN, shown(client.first())))
    await prove(peer, client)
    await peer.closed(NOT_AUTHORIZED)


async def test_an_auth_has_nothing_that_makes_it_too_large(port: int) -> None:
    """Neither reason string nor user properties are in one, whether it fits or not.  [MQTT-3.15.2-2, -3]"""
    for more in ((), ((MAXIMUM_PACKET_SIZE, 150),)):
        client = Client("sam", PASSWORD)
        peer = await begin(port, client, *more)
        came = await challenge(peer)
        assert {key for key, _ in came.properties} == {AUTH_METHOD, AUTH_DATA}
        assert not more or came.size <= 150
