"""Messages of a bridge's session, out of the packets in which they come: the short way for those with nothing but their origin, and the
other one, say the same."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.bridge.arriving import NotOurs, deliveries_of
from bridge.events import Delivery
from bridge.port import Message
from mqtt.blocks import UnreadBlocks
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import MQTT_5, NO_PROPERTIES, Properties, Publish, PublishRun
from sessions.origins import ORIGIN, write_origin

KEY = ORIGIN.decode()
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


def packet(
    topic: str, payload: bytes, origin: bytes, packet_id: int = 7, flags: int = 4, others: tuple[tuple[str, str], ...] = (),
    beside: Properties = NO_PROPERTIES,
) -> Publish:  # fmt: skip
    """others: user properties behind the origin.  beside: what it has beside user properties."""
    properties = replace(beside, user_properties=((KEY, origin.decode()), *others))
    return Publish(flags, packet_id, topic.encode(), payload, properties)


def read(data: bytes) -> list[tuple[int, Delivery]]:
    items = Decoder(MQTT_5, 1 << 20, "client", blocks=UnreadBlocks()).feed(data)
    assert all(isinstance(item, Publish | PublishRun) for item in items)
    return [found for item in items if isinstance(item, Publish | PublishRun) for found in deliveries_of(item)]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.text("abc/é", min_size=1, max_size=8), st.binary(max_size=200), TEXTS, st.booleans(), st.booleans()), min_size=1)
)
def test_a_run_says_what_messages_on_their_own_say(messages: list[tuple[str, bytes, str, bool, bool]]) -> None:
    """Whatever else is in them, and however they are mixed."""
    packets = [
        packet(topic, payload, write_origin(3, 1, 900 + n, n, 1_764_000_000_000 + n, 1, publisher.encode()), n + 1, 4 | retain,
               (("trace", str(n)),) if has_others else ())
        for n, (topic, payload, publisher, retain, has_others) in enumerate(messages)
    ]  # fmt: skip
    expected = [
        (3, Delivery(n + 1, Message(n, 1, 900 + n, topic, payload, 1, retain, 1_764_000_000_000 + n, publisher,
                                    (("trace", str(n)),) if has_others else (), key=topic)))
        for n, (topic, payload, publisher, retain, has_others) in enumerate(messages)
    ]  # fmt: skip
    assert read(b"".join(encode(MQTT_5, each) for each in packets)) == expected
    assert [found for each in packets for found in read(encode(MQTT_5, each))] == expected


def test_messages_with_nothing_but_their_origin_come_in_one_run() -> None:
    """So that each costs little, although no two have the same properties."""
    data = b"".join(encode(MQTT_5, packet("a", b"x", write_origin(1, 0, n, n, 5, 1, b"p"), n)) for n in range(1, 40))
    (run,) = Decoder(MQTT_5, 1 << 20, "client", blocks=UnreadBlocks()).feed(data)
    assert isinstance(run, PublishRun) and len(run.bodies) == 39


def test_all_properties_come_with_it() -> None:
    """Also the time that is left of a message that expires."""
    beside = Properties(1, 60, "text", "back", b"\1")
    sent = packet("a", b"x", write_origin(1, 0, 2, 3, 4, 1, b"p"), others=(("k", "v"),), beside=beside)
    ((session, delivery),) = read(encode(MQTT_5, sent))
    message = delivery.message
    assert session == 1 and abs(message.expires_at_ms - (time.time() + 60) * 1000) < 5_000
    wanted = Message(
        3, 0, 2, "a", b"x", 1, False, 4, "p", (("k", "v"),), "text", "back", b"\1", payload_is_text=True,
        expires_at_ms=message.expires_at_ms, key="a",
    )  # fmt: skip
    assert message == wanted


ORIGINAL = write_origin(1, 0, 2, 3, 4, 1, b"p")


@pytest.mark.parametrize(
    "packet",
    [
        Publish(4, 1, b"a", b"x"),
        Publish(0, 0, b"a", b"x", Properties(user_properties=((KEY, ORIGINAL.decode()),))),
        Publish(2, 1, b"a", b"x", Properties(user_properties=((KEY, ORIGINAL.decode()),))),
        Publish(4, 1, b"a", b"x", Properties(user_properties=(("k", "v"), (KEY, ORIGINAL.decode())))),
        Publish(4, 1, b"a", b"x", Properties(user_properties=((KEY, "1 2 3"),))),
        Publish(4, 1, b"a", b"x", Properties(content_type="text")),
    ],
)
def test_what_does_not_say_what_it_is_is_refused(packet: Publish) -> None:
    """No origin, not in the first place, one that is none, or not at QoS 2."""
    with pytest.raises(NotOurs, match="says not which message it is"):
        read(encode(MQTT_5, packet))


@pytest.mark.parametrize("damage", [(8, 0x01), (10, 3), (11, 0x48), (27, 0x7F), (27, 0), (28, 0xFF), (29, 0x78)])
def test_a_damaged_block_is_refused(damage: tuple[int, int]) -> None:
    """Whichever of its parts it is: nothing is made of it."""
    at, value = damage
    data = bytearray(encode(MQTT_5, packet("a", b"x" * 50, ORIGINAL)))
    data[at] = value
    items = Decoder(MQTT_5, 1 << 20, "client", blocks=UnreadBlocks()).feed(bytes(data))
    for item in items:
        assert isinstance(item, Publish | PublishRun)
        with pytest.raises(NotOurs):
            list(deliveries_of(item))
