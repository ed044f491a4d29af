"""Another broker as source: what is asked of it, what it is told and when, and how its end is said."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmarks.tls import issue
from bridge.port import Misconfigured, Unavailable
from bridge.sources.mqtt import Source
from bridge.targets.origins import ORIGIN, peer_of
from config.bridge_kinds import Mqtt
from config.secrets import Secret
from mqtt.packets import Ack, AckKind, Properties, Publish, Subscription
from mqtt.reason import ReasonCode
from sessions.origins import STORE as STORE_WORD
from tests.bridge.batches import STORE, context
from tests.bridge.givers import GivingBroker, Listener

Version = Literal["3.1.1", "5"]
VERSIONS = pytest.mark.parametrize("version", ["3.1.1", "5"])


def made(broker: GivingBroker, tmp_path: Path, owner: Listener | None = None, version: Version = "5", **more: Any) -> Source:
    settings = Mqtt(url=broker.url, version=version, **more)
    return Source(settings, context(tmp_path, P=b"secret"), owner, receive_max=123, packet_bytes_max=100_000)


@asynccontextmanager
async def running(source: Source) -> AsyncIterator[asyncio.Task[None]]:
    await source.reach()
    await source.greet()
    task = asyncio.create_task(source.run())
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await source.close()


async def until(owner: Listener, count: int) -> None:
    async with asyncio.timeout(20):
        while len(owner.came) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@VERSIONS
async def test_it_comes_to_a_session_that_stays(version: Version, tmp_path: Path) -> None:
    """By the same client id each time; at MQTT 5 with how long, how much at once, and who comes."""
    async with GivingBroker() as broker:
        async with running(made(broker, tmp_path, Listener(), version, user="u", password=Secret("env:P"), session_expiry="3d")):
            (connect,) = broker.connects
        assert (connect.clean_start, connect.client_id, connect.username, connect.password) == (
            False, f"holdfast-{STORE}-to-there", "u", b"secret",
        )  # fmt: skip
        if version == "5":
            said = connect.properties
            assert (said.session_expiry_interval, said.receive_maximum, said.maximum_packet_size) == (3 * 86_400, 123, 100_000)
            assert said.user_properties == ((ORIGIN, f"{STORE}/to-there"),)
        async with asyncio.timeout(20):
            while not broker.disconnected:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@VERSIONS
async def test_nothing_is_acknowledged_but_what_its_owner_says(version: Version, tmp_path: Path) -> None:
    """Not even PUBREC, which libraries send by themselves."""
    owner = Listener()
    async with GivingBroker() as broker, asyncio.timeout(20):
        source = made(broker, tmp_path, owner, version)
        async with running(source):
            broker.give(Publish(2, 7, b"a/1", b"one"), Publish(4 | 8 | 1, 8, b"a/2", b"two"), Publish(0, 0, b"a/3", b"three"))
            await until(owner, 3)
            assert [(each.packet_id, each.qos, each.dup, each.message.topic, each.message.payload) for each in owner.came] == [
                (7, 1, False, "a/1", b"one"), (8, 2, True, "a/2", b"two"), (0, 0, False, "a/3", b"three"),
            ]  # fmt: skip
            assert [each.message.retain for each in owner.came] == [False, True, False]
            await asyncio.sleep(0.05)
            assert broker.words == []
            source.acknowledge(1, [7])
            await broker.heard([("PUBACK", [7])])
            source.acknowledge(2, [8])
            broker.give(Ack(AckKind.PUBREL, 8))
            await broker.heard([("PUBACK", [7]), ("PUBREC", [8])])
            while owner.released_ids != [8]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            source.complete([8])
            await broker.heard([("PUBACK", [7]), ("PUBREC", [8]), ("PUBCOMP", [8])])


async def test_properties_of_a_message_come_with_it(tmp_path: Path) -> None:
    """All of MQTT 5."""
    owner = Listener()
    said = Properties(
        payload_format_indicator=1, message_expiry_interval=100, content_type="text/plain", response_topic="answers",
        correlation_data=b"\0\1", user_properties=(("a", "1"), ("a", "2")),
    )  # fmt: skip
    async with GivingBroker() as broker:
        async with running(made(broker, tmp_path, owner)):
            broker.give(Publish(2, 7, b"a/1", b"one", said))
            await until(owner, 1)
    message = owner.came[0].message
    assert message.payload_is_text and message.user_properties == (("a", "1"), ("a", "2"))
    assert (message.content_type, message.response_topic, message.correlation_data) == ("text/plain", "answers", b"\0\1")
    assert message.expires_at_ms == message.published_at_ms + 100_000


@VERSIONS
async def test_a_subscription_is_made_and_what_was_before_is_ended(version: Version, tmp_path: Path) -> None:
    """In this order, so that nothing is missing in between; without what we publish ourselves, and retained messages once."""
    owner = Listener()
    async with GivingBroker() as broker, asyncio.timeout(20):
        source = made(broker, tmp_path, owner, version, qos=1)
        async with running(source):
            source.subscribe("b/#", ["a/#"])
            while not owner.is_subscribed:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        (subscribe,), (unsubscribe,) = broker.subscribed, broker.unsubscribed
        (row,) = subscribe.subscriptions
        full = Subscription(b"b/#", 1, no_local=True, retain_as_published=True, retain_handling=1)
        assert row == (full if version == "5" else Subscription(b"b/#", 1)) and unsubscribe.filters == (b"a/#",)


@VERSIONS
@pytest.mark.parametrize("granted", [0, 0x80])
async def test_a_subscription_that_is_refused_or_acknowledges_nothing_has_to_be_mended(
    version: Version, granted: int, tmp_path: Path
) -> None:
    """At QoS 0 nothing would be kept for us."""
    async with GivingBroker(granted=granted) as broker:
        source = made(broker, tmp_path, Listener(), version)
        async with running(source) as task:
            source.subscribe("a/#", [])
            with pytest.raises(Misconfigured):
                await asyncio.wait_for(task, 20)


@VERSIONS
@pytest.mark.parametrize(
    ("code", "kind"), [(ReasonCode.BAD_USER_NAME_OR_PASSWORD, Misconfigured), (ReasonCode.SERVER_UNAVAILABLE, Unavailable)]
)
async def test_a_refused_connection_says_whether_somebody_has_to_do_something(
    version: Version, code: ReasonCode, kind: type[Exception], tmp_path: Path
) -> None:
    """A wrong password stays wrong, a server that is busy does not."""
    async with GivingBroker(code=code) as broker:
        source = made(broker, tmp_path, Listener(), version)
        await source.reach()
        with pytest.raises(kind):
            await source.greet()
        await source.close()


async def test_a_broker_that_keeps_no_session_is_none_to_bring_from(tmp_path: Path) -> None:
    """It says so in its CONNACK."""
    async with GivingBroker(Properties(session_expiry_interval=0)) as broker:
        source = made(broker, tmp_path, Listener())
        await source.reach()
        with pytest.raises(Misconfigured, match="keeps no session"):
            await source.greet()
        await source.close()


async def test_a_session_that_goes_on_sends_something_and_a_new_one_does_not(tmp_path: Path) -> None:
    """What it has sent is there when the connection is read."""
    owner = Listener()
    async with GivingBroker(present=True) as broker:
        source = made(broker, tmp_path, owner)
        await source.reach()
        assert await source.greet()
        assert not await source.goes_on(0.05)
        broker.give(Publish(8 | 4, 7, b"a/1", b"one"))
        assert await source.goes_on(20)
        task = asyncio.create_task(source.run())
        await until(owner, 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await source.close()


async def test_a_holdfast_says_which_store_it_is_and_this_one_is_not_bridged_to_itself(tmp_path: Path) -> None:
    """Others are known by their address."""
    async with GivingBroker() as broker:
        source = made(broker, tmp_path, Listener())
        async with running(source):
            assert source.peers == (peer_of(broker.url),)
    async with GivingBroker(Properties(user_properties=((STORE_WORD, "f" * 16),))) as broker:
        source = made(broker, tmp_path, Listener())
        async with running(source):
            assert source.peers == ("f" * 16, peer_of(broker.url))
    async with GivingBroker(Properties(user_properties=((STORE_WORD, STORE),))) as broker:
        source = made(broker, tmp_path, Listener())
        await source.reach()
        with pytest.raises(Misconfigured, match="is this broker itself"):
            await source.greet()
        await source.close()


@pytest.mark.slow
@VERSIONS
async def test_a_broker_that_does_not_answer_pings_is_away(version: Version, tmp_path: Path) -> None:
    """Nothing else ends a connection whose other side has vanished."""
    async with GivingBroker() as broker:
        broker.answers_pings = False
        source = made(broker, tmp_path, Listener(), version, keep_alive="5s")
        async with running(source) as task:
            with pytest.raises(Unavailable, match="did not answer a ping"):
                await asyncio.wait_for(task, 30)


@VERSIONS
async def test_a_connection_that_breaks_or_is_ended_says_so(version: Version, tmp_path: Path) -> None:
    """With the address."""
    async with GivingBroker() as broker:
        async with running(made(broker, tmp_path, Listener(), version)) as task:
            broker.die()
            with pytest.raises(Unavailable, match=broker.url):
                await asyncio.wait_for(task, 20)


async def test_its_session_can_be_ended(tmp_path: Path) -> None:
    """By a new one that ends with its connection."""
    async with GivingBroker(present=True) as broker:
        source = made(broker, tmp_path)
        await source.end_session()
        await source.close()
        (connect,) = broker.connects
        assert connect.clean_start and connect.properties.session_expiry_interval == 0


async def test_what_is_no_mqtt_is_said(tmp_path: Path) -> None:
    """A web server, or a port of something else."""

    def refuses(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuses, "127.0.0.1", 0)
    async with server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        source = Source(Mqtt(url=url), context(tmp_path), Listener(), receive_max=10, packet_bytes_max=100_000)
        await source.reach()
        with pytest.raises(Unavailable, match="what is no MQTT"):
            await source.greet()
        await source.close()


async def test_over_tls_the_other_side_has_to_be_who_it_says(tmp_path: Path) -> None:
    """A certificate that nobody has signed whom we trust has to be mended by somebody."""
    shown = issue(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(shown.cert, shown.key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
    async with server:
        url = f"mqtts://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        source = Source(Mqtt(url=url), context(tmp_path), Listener(), receive_max=10, packet_bytes_max=100_000)
        with pytest.raises(Misconfigured, match="is not trusted"):
            await source.reach()
        source = Source(Mqtt(url=url, ca=shown.cert), context(tmp_path), Listener(), receive_max=10, packet_bytes_max=100_000)
        await source.reach()
        with pytest.raises(Unavailable, match="closed the connection"):
            await source.greet()
        await source.close()
