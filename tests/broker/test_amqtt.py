"""One real broker behind plugins that were written for amqtt: they say who comes in, and who may do what where no rule does."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.broker.standing import Standing
from tests.conformance.packets import CONNACK, PUBACK, SESSION_EXPIRY, SUBACK, Message, connect, publish, subscribe
from tests.conformance.peer import Peer, fresh

FILE_AUTH = "amqtt.plugins.authentication.FileAuthPlugin"
LISTS = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
TABOO = "amqtt.plugins.topic_checking.TopicTabooPlugin"
SHUTTER = "shutter_plugin.Shutter"
OWN = """
import asyncio
from dataclasses import dataclass
from pathlib import Path

from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin


class Shutter(BaseTopicPlugin):
    async def topic_filtering(self, *, session=None, topic=None, action=None):
        shut = Path(self._get_config_option("shut", ""))
        if topic.endswith("slow"):
            shut.with_name("waits").touch()
            while not shut.with_name("goes on").exists():
                await asyncio.sleep(0.02)
        return action is not Action.RECEIVE or not shut.exists()

    @dataclass
    class Config:
        shut: str = ""
"""
WITHIN_S = 1.0
"""What a right that was taken away may last."""
PASSING_S = 0.25
"""For a message that had left by then."""


@dataclass(frozen=True, slots=True)
class Plugged:
    broker: RunningBroker
    shut: Path

    async def code(self, user: str | None, password: bytes | None) -> int:
        return (await self.peer(user, password))[1]

    async def peer(self, user: str | None, password: bytes | None, client: str = "", *, kept: bool = False) -> tuple[Peer, int]:
        rows = [(SESSION_EXPIRY, 3600)] if kept else []
        first = connect(5, client or fresh("c"), clean=not kept, username=user, password=password, properties_=rows)
        peer = await Peer.open(self.broker.port, 5, first)
        return peer, (await peer.answer(CONNACK)).code

    async def ann(self, client: str = "", *, kept: bool = False) -> Peer:
        """Let in when the plugin is there."""
        deadline = time.monotonic() + 60
        while True:
            peer, code = await self.peer("ann", b"secret", client, kept=kept)
            if not code:
                return peer
            assert code == 0x88 and time.monotonic() < deadline, hex(code)
            await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def plugged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugged]:
    place = tmp_path_factory.mktemp("amqtt")
    hasher = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1),))
    (place / "users").write_text(f"ann:{hasher.hash('secret')}\n")
    (place / "shutter_plugin.py").write_text(OWN)
    tables = {
        FILE_AUTH: {"password_file": str(place / "users")},
        LISTS: {"publish_acl": {"ann": ["a/#", "top-secret"]}, "acl": {"ann": ["a/#"]}},
        TABOO: {},
        SHUTTER: {"shut": str(place / "shut")},
    }
    (place / "plugins.yaml").write_text(json.dumps({"plugins": tables}))
    (place / "rules.toml").write_text("version = 1\n[[rule]]\nallow = ['publish', 'subscribe']\ntopics = ['ruled/#']\n")
    settings = {
        **QUIET_RAY,
        "durable_storage.messages.n_shards": "1",
        "access.rules": str(place / "rules.toml"),
        "access.plugin.kind": "amqtt",
        "access.plugin.plugins": json.dumps(list(tables)),
        "access.plugin.config_file": str(place / "plugins.yaml"),
        "access.plugin.decides": "true",
        "access.plugin.deadline": "30s",
    }
    importable = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))
    with RunningBroker(Options(settings, environment={"PYTHONPATH": importable})) as broker:
        yield Plugged(broker, place / "shut")


async def published(peer: Peer, topic: str, packet_id: int) -> int:
    peer.send(publish(5, topic, b"x", 1, packet_id))
    return (await peer.answer(PUBACK, packet_id)).code


async def test_users_of_amqtt_s_password_file_come_in(plugged: Plugged) -> None:
    """With their password and with no other; who shows nothing does not."""
    await plugged.ann()
    assert await plugged.code("ann", b"wrong") == 0x86 and await plugged.code("bob", b"secret") == 0x86
    assert await plugged.code(None, None) in (0x86, 0x87)


async def test_lists_and_taboos_of_amqtt_decide_where_no_rule_does(plugged: Plugged) -> None:
    """What one of them keeps is refused, and what a rule allows is asked of none."""
    peer = await plugged.ann()
    codes = [await published(peer, topic, number) for number, topic in enumerate(("a/b", "b", "top-secret", "ruled/x"), start=1)]
    assert codes == [0x10, 0x87, 0x87, 0x10]
    peer.send(subscribe(5, 9, ("a/#", 1), ("b", 1), ("ruled/#", 1)))
    assert list((await peer.answer(SUBACK, 9)).codes) == [1, 0x87, 1]
    peer.send(publish(5, "a/b", b"hello", 1, 10))
    came = [await peer.next(), await peer.next()]
    (message,) = [each for each in came if isinstance(each, Message)]
    assert (message.topic, message.payload) == ("a/b", b"hello")


async def test_who_waits_for_a_slow_plugin_waits_alone(plugged: Plugged) -> None:
    """Another client's messages are acknowledged while one waits; when the plugin has made up its mind, that one is, too."""
    slow, other = await plugged.ann(), await plugged.ann()
    slow.send(publish(5, "a/slow", b"x", 1, 1))
    answered = asyncio.create_task(slow.answer(PUBACK, 1))
    while not plugged.shut.with_name("waits").exists():  # noqa: ASYNC110  # what is waited for is in another process
        await asyncio.sleep(0.02)
    for number in range(1, 12):
        assert await published(other, f"a/{number}", number) == 0x10
    assert not answered.done()
    plugged.shut.with_name("goes on").touch()
    assert (await answered).code == 0x10


async def test_a_right_that_a_plugin_takes_away_stops_a_durable_subscription_within_a_second(plugged: Plugged) -> None:
    """What comes later is not delivered, neither now nor to the session when it comes back; with the right it goes on."""
    subscriber, publisher = await plugged.ann("kept", kept=True), await plugged.ann()
    subscriber.send(subscribe(5, 1, ("a/stream", 1)))
    assert list((await subscriber.answer(SUBACK, 1)).codes) == [1]
    arrived: list[float] = []

    async def take(peer: Peer) -> None:
        while True:
            await peer.take()
            arrived.append(time.monotonic())

    async def feed(seconds: float, more_than: int = -1) -> None:
        """At least so long, and until so many have come."""
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(arrived) <= more_than:
            await published(publisher, "a/stream", 1)
            await asyncio.sleep(0.02)

    taking = asyncio.create_task(take(subscriber))
    await feed(1.0, 0)
    async with Standing() as standing:
        plugged.shut.touch()
        shut = time.monotonic()
        await feed(WITHIN_S + 1.5)
    late = max(arrived) - shut
    assert late < WITHIN_S + PASSING_S + standing.seconds, f"the last message came {late:.2f} s after the right was gone"
    taking.cancel()
    await asyncio.wait([taking])
    await subscriber.leave()
    count = len(arrived)
    taking = asyncio.create_task(take(await plugged.ann("kept", kept=True)))
    await feed(0.5)
    assert len(arrived) == count
    plugged.shut.unlink()
    await feed(0, count)
    taking.cancel()
