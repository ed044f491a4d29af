"""Logins over real sockets, by the servers of a broker on one loop: every way in, who is thrown out, and what no log has."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import pytest_asyncio
import structlog

from access.passwords import argon2id_entry
from actors.access.publishing import publish
from actors.access.secrets import packed, write_secrets
from config.load import from_json
from tests.access.test_passwords import SALT, pbkdf2
from tests.actors.one_loop import OneLoop
from tests.auth.by_hand import scram
from tests.auth.test_exchanges import Client
from tests.conformance.packets import AUTH, AUTH_DATA, AUTH_METHOD, CONNACK, Properties, auth, connect
from tests.conformance.peer import Peer, fresh, hang_up

pytestmark = pytest.mark.slow
PASSWORD, PROOF, TOKEN_SECRET = "hunter2-in-no-log", "scram-in-no-log", b"token-secret-in-no-log-0123456789"
SCRAM = "SCRAM-SHA-256"


class Broker:
    """One with a password file, SCRAM and tokens."""

    def __init__(self, tmp_path: Path) -> None:
        self.file = tmp_path / "passwords"
        self.write()
        secret = tmp_path / "token-secret"
        secret.write_bytes(TOKEN_SECRET)
        secret.chmod(0o600)
        place = f"file://{secret}"
        sets = (
            f"access.password.file={self.file}",
            f"access.jwt.keys={place}",
            'access.jwt.algorithms=["HS256"]',
            "access.jwt.leeway=0s",
        )
        (tmp_path / "data").mkdir()
        self.loop = OneLoop(tmp_path / "data", sets=sets)
        write_secrets(self.loop.topology.run_dir, packed({place: TOKEN_SECRET}))
        self.publish()

    @property
    def port(self) -> int:
        return self.loop.port

    def write(self, **entries: str) -> None:
        known = {"ann": pbkdf2(PASSWORD.encode()), "dear": argon2id_entry(PASSWORD.encode(), SALT), "sam": scram(PROOF)} | entries
        self.file.write_text("".join([f"{user}:{entry}\n" for user, entry in known.items() if entry]))
        self.file.chmod(0o600)

    def publish(self) -> None:
        """What the controller does, which is not there."""
        publish(self.loop.topology.run_dir, from_json(self.loop.topology.config_json))

    async def login(self, version: int, **shown: Any) -> tuple[Peer, int]:
        peer = await Peer.open(self.port, version, connect(version, fresh("c"), **shown))
        return peer, (await peer.answer(CONNACK)).code

    async def code(self, version: int, **shown: Any) -> int:
        _, code = await self.login(version, **shown)
        return code


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    made = Broker(tmp_path)
    async with made.loop:
        yield made


@pytest_asyncio.fixture(autouse=True)
async def _no_peer_outlives_its_test() -> AsyncIterator[None]:
    yield
    hang_up()


async def proving(broker: Broker, client: Client) -> Peer:
    """A connection on which the exchange has come as far as the client's proof."""
    first: Properties = [(AUTH_METHOD, SCRAM), (AUTH_DATA, client.first())]
    peer = await Peer.open(broker.port, 5, connect(5, fresh("c"), properties_=first))
    await prove(peer, client)
    return peer


async def prove(peer: Peer, client: Client) -> None:
    challenge = await peer.answer(AUTH)
    assert challenge.code == 0x18
    data = dict(challenge.properties)[AUTH_DATA]
    assert isinstance(data, bytes)
    peer.send(auth(0x18, [(AUTH_METHOD, SCRAM), (AUTH_DATA, client.final(data))]))


def token(**claims: Any) -> bytes:
    return jwt.encode({"sub": "tom", "exp": time.time() + 3_600, **claims}, TOKEN_SECRET, "HS256").encode()


async def test_every_way_in_lets_in_who_is_right_and_nobody_else(broker: Broker) -> None:
    """Of both versions, with their codes; and no log has anything that was shown."""
    said = {4: 4, 5: 0x86}
    with structlog.testing.capture_logs() as logs:
        for version in (4, 5):
            for user in ("ann", "dear"):
                assert await broker.code(version, username=user, password=PASSWORD.encode()) == 0
                assert await broker.code(version, username=user, password=b"wrong-" + PASSWORD.encode()) == said[version]
                assert await broker.code(version, username=user) == said[version]
            assert await broker.code(version, username="nobody", password=PASSWORD.encode()) == said[version]
            assert await broker.code(version, username="tom", password=token()) == 0
            assert await broker.code(version, username="tim", password=token()) == said[version]
            assert await broker.code(version, username="tom", password=token(exp=1)) == said[version]
            assert await broker.code(version) == 0  # the anonymous one, from this machine
        client = Client("sam", PROOF)
        peer = await proving(broker, client)
        connack = await peer.answer(CONNACK)
        found = dict(connack.properties)
        assert connack.code == 0 and found[AUTH_METHOD] == SCRAM
        last = found[AUTH_DATA]
        assert isinstance(last, bytes) and client.is_server(last)
        wrong = await proving(broker, Client("sam", PROOF + "-not"))
        assert (await wrong.answer(CONNACK)).code == 0x86
    written = json.dumps(logs, default=repr) + "".join([path.read_text() for path in broker.loop.topology.run_dir.glob("*.alarm")])
    assert "client.refused" in written and "another password" in written
    for secret in (PASSWORD, PROOF, TOKEN_SECRET.decode(), token().decode().rpartition(".")[2], scram(PROOF), pbkdf2(PASSWORD.encode())):
        assert secret not in written


async def test_who_authenticates_again_is_the_same(broker: Broker) -> None:
    """His connection goes on; with a wrong proof it ends."""
    client = Client("sam", PROOF)
    peer = await proving(broker, client)
    assert (await peer.answer(CONNACK)).code == 0
    peer.send(auth(0x19, [(AUTH_METHOD, SCRAM), (AUTH_DATA, client.first())]))
    await prove(peer, client)
    assert (await peer.answer(AUTH)).code == 0
    assert await peer.publish("a", qos=1) in (0, 0x10)
    wrong = Client("sam", "wrong")
    peer.send(auth(0x19, [(AUTH_METHOD, SCRAM), (AUTH_DATA, wrong.first())]))
    await prove(peer, wrong)
    await peer.closed(0x87)


async def test_an_entry_that_goes_or_changes_ends_connections(broker: Broker) -> None:
    """Those of its user, by passwords and by SCRAM, and nobody else's."""
    ann, _ = await broker.login(5, username="ann", password=PASSWORD.encode())
    other, _ = await broker.login(5, username="dear", password=PASSWORD.encode())
    sam = await proving(broker, Client("sam", PROOF))
    assert (await sam.answer(CONNACK)).code == 0
    broker.write(ann="", sam=scram("another"))
    broker.publish()
    await ann.closed(0x87)
    await sam.closed(0x87)
    await other.alive()
    assert await broker.code(5, username="ann", password=PASSWORD.encode()) == 0x86


async def test_a_token_that_ends_ends_its_connection(broker: Broker) -> None:
    """Then, and not before."""
    while True:
        ends = int(time.time()) + 2
        peer, code = await broker.login(5, password=token(exp=ends))
        if code == 0:
            break
        # The machine stood still until it had ended.
        assert time.time() >= ends, f"CONNACK {code:#04x} before its end"
    await peer.closed(0x87)
    assert ends <= time.time() < ends + 40


async def test_a_flood_of_wrong_logins_delays_nobody_who_is_there(broker: Broker) -> None:
    """Threads check them, below the loop in priority, and one address has its part of their queue."""
    there, _ = await broker.login(5, username="ann", password=PASSWORD.encode())
    calm = await median_of_waits(there)
    peers = [await Peer.open(broker.port, 5, connect(5, fresh("c"), username=f"u{number}", password=b"x")) for number in range(150)]
    flooded = await median_of_waits(there)
    codes = [(await peer.answer(CONNACK)).code for peer in peers]
    assert set(codes) <= {0x86, 0x89}
    assert flooded < max(0.5, 20 * calm), (calm, flooded)


async def median_of_waits(peer: Peer) -> float:
    """Seconds for a publish to be acknowledged."""
    waits = []
    for _ in range(20):
        began = time.perf_counter()
        await peer.publish("a", qos=1)
        waits.append(time.perf_counter() - began)
    return sorted(waits)[10]


async def test_a_file_that_is_not_there_lets_nobody_in(tmp_path: Path) -> None:
    """Who shows nothing is not asked for a password."""
    (tmp_path / "data").mkdir()
    async with OneLoop(tmp_path / "data", sets=(f"access.password.file={tmp_path / 'nowhere'}",)) as loop:
        peer = await Peer.open(loop.port, 5, connect(5, fresh("c"), username="ann", password=b"x"))
        assert (await peer.answer(CONNACK)).code == 0x86
        await Peer.connect(loop.port, 5)


async def test_without_any_settings_a_user_name_is_nobody(tmp_path: Path) -> None:
    """There is nobody who could tell whether it is right; and no method is known."""
    (tmp_path / "data").mkdir()
    async with OneLoop(tmp_path / "data") as loop:
        for shown in ({"username": "ann"}, {"username": "ann", "password": b"x"}, {"password": b"x"}):
            peer = await Peer.open(loop.port, 5, connect(5, fresh("c"), **shown))
            assert (await peer.answer(CONNACK)).code == 0x86
        peer = await Peer.open(loop.port, 5, connect(5, fresh("c"), properties_=[(AUTH_METHOD, SCRAM), (AUTH_DATA, b"n,,n=a,r=b")]))
        assert (await peer.answer(CONNACK)).code == 0x8C
