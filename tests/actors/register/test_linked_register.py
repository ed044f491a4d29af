"""The register asked over a link: what is said when the link, the host or its register is away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgpack
import pytest

from actors.endpoints import Endpoint
from actors.links import LinkClient, LinkServer
from actors.register.linked import LinkedRegister, RegisterHost
from actors.register.local import LocalRegister, open_register
from actors.wire import Wire
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import LISTED_MAX, NO_VALUE, RegisterMistake
from shards.replication.register import Held as Value
from tests.actors.links.test_links import Owner

SECRET = b"s" * 32
KEY = "/holdfast/shard/0"


class Held:
    """A register whose changes wait until they are let go."""

    def __init__(self, register: LocalRegister) -> None:
        self._register = register
        self.asked = asyncio.Event()
        self.let_go = asyncio.Event()
        self.read, self.list, self.close = register.read, register.list, register.close

    async def cas(self, key: str, version: int, new: bytes) -> Outcome:
        self.asked.set()
        await self.let_go.wait()
        return await self._register.cas(key, version, new)


def linked(path: Path, within_s: float = 30.0, secret: bytes = SECRET) -> LinkedRegister:
    one = LinkedRegister(lambda: Endpoint(str(path)), Wire(secret), "one", within_s)
    one.start()
    return one


async def test_a_host_that_is_away_is_not_waited_for_longer_than_allowed(tmp_path: Path) -> None:
    """A read raises, a change is UNKNOWN; so for one that does not know the secret."""
    one = linked(tmp_path / "nobody", within_s=0.05)
    with pytest.raises(RegisterAway, match=r"the register did not answer within 0\.05 s"):
        await one.read(KEY)
    assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.UNKNOWN
    await one.close()
    register = open_register(tmp_path)
    server = LinkServer([Endpoint(str(tmp_path / "r"))], RegisterHost(register), Wire(SECRET), "register", "host")
    await server.start()
    stranger = linked(tmp_path / "r", within_s=0.2, secret=b"t" * 32)
    with pytest.raises(RegisterAway):
        await stranger.read(KEY)
    await stranger.close()
    await server.stop()
    await register.close()


async def test_a_change_whose_link_is_lost_is_unknown_and_may_come(tmp_path: Path) -> None:
    """At once, and not when its time is over; it is made, since nobody can take it back; and the next host answers."""
    register = open_register(tmp_path)
    held = Held(register)
    server = LinkServer([Endpoint(str(tmp_path / "r"))], RegisterHost(held), Wire(SECRET), "register", "host")
    await server.start()
    one = linked(tmp_path / "r")
    change = asyncio.create_task(one.cas(KEY, NO_VALUE, b"x"))
    await held.asked.wait()
    await server.stop()
    assert await change is Outcome.UNKNOWN
    assert await register.read(KEY) is None
    held.let_go.set()
    other = LinkServer([Endpoint(str(tmp_path / "r"))], RegisterHost(register), Wire(SECRET), "register", "host")
    await other.start()
    while (found := await one.read(KEY)) is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert found.value == b"x"
    await one.close()
    await other.stop()
    await register.close()


async def test_a_register_that_is_away_says_why_over_the_link(tmp_path: Path) -> None:
    """The sentence of the host, not one about links."""
    register = open_register(tmp_path)
    server = LinkServer([Endpoint(str(tmp_path / "r"))], RegisterHost(register), Wire(SECRET), "register", "host")
    await server.start()
    one = linked(tmp_path / "r")
    await one.read(KEY)
    await register.close()
    with pytest.raises(RegisterAway, match="the register of this site does not answer any more: it was closed") as away:
        await one.list("/")
    assert not isinstance(away.value, RegisterMistake)
    assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.UNKNOWN
    await one.close()
    await server.stop()


@pytest.mark.slow
async def test_a_mistake_is_one_over_the_link_too(tmp_path: Path) -> None:
    """More keys than are listed: the sentence of the host, and that it does not get better by itself."""
    register = LocalRegister(tmp_path, -1, 1, {f"/k/{number}": Value(b"", 1) for number in range(LISTED_MAX + 1)})
    server = LinkServer([Endpoint(str(tmp_path / "r"))], RegisterHost(register), Wire(SECRET), "register", "host")
    await server.start()
    one = linked(tmp_path / "r")
    with pytest.raises(RegisterMistake, match=f"{LISTED_MAX + 1} keys that begin with '/k/', at most {LISTED_MAX} are listed"):
        await one.list("/k/")
    await one.close()
    await server.stop()


@pytest.mark.parametrize(
    "frame", [b"\xc1", b"", msgpack.packb(7), msgpack.packb([1, 9]), msgpack.packb([1, 1, b"key"]), msgpack.packb([1])]
)
async def test_a_question_that_is_none_ends_the_link(tmp_path: Path, frame: bytes) -> None:
    """And nothing else: the host goes on for others."""
    register = open_register(tmp_path)
    server = LinkServer([Endpoint(str(tmp_path / "r"))], RegisterHost(register), Wire(SECRET), "register", "host")
    await server.start()
    owner = Owner()
    client = LinkClient(lambda: Endpoint(str(tmp_path / "r")), owner, Wire(SECRET), "register", "bad")
    client.start()
    await owner.until(1)
    client.send(frame)
    assert (await owner.until(2))[1] == "down"
    await client.stop()
    one = linked(tmp_path / "r")
    assert await one.read(KEY) is None
    await one.close()
    await server.stop()
    await register.close()
