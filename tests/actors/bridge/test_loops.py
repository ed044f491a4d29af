"""Two brokers that are bridged both ways on the same topics: each message is at each of them once, and goes round nowhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiomqtt
import pytest

from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Connack, Connect, Properties
from sessions.origins import MARK, STORE
from tests.actors.bridge.carried import Bridges, online
from tests.actors.bridge.test_inward import brings, mosquitto
from tests.actors.one_loop import OneLoop
from tests.broker.replaying import Replayer

pytestmark = [pytest.mark.slow]
QUIET_S = 1.0
A, B = "a" * 16, "b" * 16


def carries(port: int, *more: str, name: str = "out", topic_filter: str = "a/#") -> tuple[str, ...]:
    prefix = f"bridges.{name}."
    given = ("type=mqtt", f"filter={topic_filter}", f"mqtt.url=mqtt://127.0.0.1:{port}", "linger=1ms", "retry_min=20ms", *more)
    return tuple([prefix + each for each in given])


async def reader_at(broker: OneLoop) -> Replayer:
    reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
    await reader.replay("#")
    return reader


async def got_in_all(reader: Replayer, count: int) -> list[str]:
    """So many, and what comes still after a while in which anything that goes round would be back."""
    found = await reader.payloads(count)
    await asyncio.sleep(QUIET_S)
    return [*found, *await reader.rest()]


@pytest.mark.needs("mosquitto")
async def test_both_ways_with_mosquitto_what_is_published_on_either_side_is_on_both_once(tmp_path: Path) -> None:
    """At MQTT 5, by the mark: what comes back is left out at this side."""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=(*brings(there.port), *carries(there.port))) as broker:
        url = ("127.0.0.1", there.port)
        async with Bridges(broker) as server, aiomqtt.Client(*url, protocol=aiomqtt.ProtocolVersion.V5) as other:
            await online(server, "in")
            await online(server, "out")
            reader = await reader_at(broker)
            await other.subscribe("#", qos=1)
            await other.publish("a/1", "from there", qos=1)
            assert await reader.payloads(1) == ["from there"]
            writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
            await writer.published("a/1", "from here")
            assert await got_in_all(reader, 1) == ["from here"]
            found = []
            async for message in other.messages:
                found.append(message.payload)
                if message.payload == b"from here":
                    break
            assert found == [b"from there", b"from here"] and not len(other.messages)
            assert server._runners["in"].counters.left_out == 1 and server._runners["out"].counters.left_out == 1


@pytest.mark.needs("mosquitto")
async def test_without_marks_topics_that_are_kept_apart_end_it(tmp_path: Path) -> None:
    """MQTT 3.1.1 both ways: what was carried out comes in once under its prefix, and what came in stays."""
    async with mosquitto(tmp_path) as there:
        old, url = "mqtt.version=3.1.1", ("127.0.0.1", there.port)
        bridges = (*brings(there.port, old, "transform.topic=from-there/{topic}"), *carries(there.port, old))
        async with OneLoop(tmp_path, sets=bridges) as broker, Bridges(broker) as server, aiomqtt.Client(*url) as other:
            await online(server, "in")
            await online(server, "out")
            reader = await reader_at(broker)
            await other.publish("a/1", "from there", qos=1)
            assert await got_in_all(reader, 1) == ["from there"]
            writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
            await writer.published("a/1", "from here")
            assert await got_in_all(reader, 2) == ["from here", "from here"]
            assert server._runners["out"].counters.delivered == 1


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [(("in", "out"), ()), (("out",), ("out",)), (("in",), ("in",)), (("in", "out"), ("in", "out"))],
    ids=["one has both", "both carry out", "both bring in", "both have both"],
)
async def test_two_holdfasts_bridged_both_ways_do_not_circulate_a_message(
    of_a: tuple[str, ...], of_b: tuple[str, ...], tmp_path: Path
) -> None:
    """Whoever has which bridge: each says who it is when a bridge connects.  Over two ways a message comes twice, and no more."""
    async with OneLoop(tmp_path / "a", site=A) as a, OneLoop(tmp_path / "b", site=B) as b:
        ways = {"in": brings, "out": carries}
        a.sets_of_bridges(*(each for way in of_a for each in ways[way](b.port, name=way)))
        b.sets_of_bridges(*(each for way in of_b for each in ways[way](a.port, name=way)))
        async with Bridges(a) as at_a, Bridges(b) as at_b:
            for server, names in ((at_a, of_a), (at_b, of_b)):
                for name in names:
                    await online(server, name)
            readers = [await reader_at(a), await reader_at(b)]
            for number, broker in enumerate((a, b)):
                writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
                await writer.published("a/1", f"from {number}")
            ways_between = 2 if len(of_a) + len(of_b) == 4 else 1
            for number, reader in enumerate(readers):
                found = await got_in_all(reader, 1 + ways_between)
                assert found.count(f"from {number}") == 1 and found.count(f"from {1 - number}") == ways_between


async def test_only_a_bridge_of_another_broker_is_told_which_store_this_is(tmp_path: Path) -> None:
    """In a user property of the CONNACK, when the CONNECT has that of bridges."""
    async with OneLoop(tmp_path, site=A) as broker:
        for said, told in (((), ()), ((("other", "x"),), ()), (((MARK, f"{B}/out"),), ((STORE, A),))):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(encode(MQTT_5, Connect(MQTT_5, "c", properties=Properties(user_properties=said))))
            (connack,) = Decoder(MQTT_5, 1 << 20, "client").feed(await reader.read(1000))
            assert isinstance(connack, Connack) and connack.properties.user_properties == told
            writer.close()
