"""What the paho client sends is read as what was asked of it, in 3.1, 3.1.1 and 5.

A paho client without a socket: its packets are caught where it would queue them for one.
"""

from __future__ import annotations

from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode as PahoReason
from paho.mqtt.subscribeoptions import SubscribeOptions

from mqtt.decode import Decoder
from mqtt.packets import (
    AckKind,
    AckRun,
    Connect,
    Disconnect,
    Item,
    Properties,
    Publish,
    PublishRun,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from mqtt.reason import ReasonCode

VERSIONS = (3, 4, 5)


class Recorder(Client):
    """A paho client whose packets end in a list."""

    def __init__(self, version: int, client_id: str = "paho") -> None:
        clean = None if version == 5 else False
        super().__init__(CallbackAPIVersion.VERSION2, client_id, clean, protocol=MQTTProtocolVersion(version))
        self.sent: list[bytes] = []
        self._sock: Any = object()  # only compared with None on the ways used here

    def _packet_queue(self, command: int, packet: bytes | bytearray, mid: int, qos: int, info: Any = None) -> MQTTErrorCode:
        self.sent.append(bytes(packet))
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def __del__(self) -> None:
        """The base class would close a socket that there never was."""

    def decoded(self, version: int | None) -> list[Item]:
        return Decoder(version, 1 << 20).feed(b"".join(self.sent))


def paho_properties(packet_type: int) -> Any:
    """paho's property sets take any attribute and say nothing of types."""
    make: Any = PahoProperties
    return make(packet_type)


@pytest.mark.parametrize("version", VERSIONS)
def test_connect_of_paho(version: int) -> None:
    """CONNECT with a will, a user and a password."""
    client = Recorder(version)
    client.username_pw_set("uschi", "geheim")
    client.will_set("will/é", b"gone", qos=2, retain=True)
    client._send_connect(37)
    will = Will("will/é".encode(), b"gone", 2, True)
    # paho's clean start "first connection only" is true on the first one; 3.x asked for a kept session.
    assert client.decoded(None) == [Connect(version, "paho", version == 5, 37, "uschi", b"geheim", will)]


def test_connect_properties_of_paho() -> None:
    """CONNECT and will properties of MQTT 5."""
    client = Recorder(5)
    properties = paho_properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval, properties.ReceiveMaximum, properties.MaximumPacketSize = 3600, 7, 4096
    properties.UserProperty = [("a", "1"), ("a", "2")]
    will_properties = paho_properties(PacketTypes.WILLMESSAGE)
    will_properties.WillDelayInterval, will_properties.ContentType = 5, "text/plain"
    client.will_set("w", b"", properties=will_properties)
    client._connect_properties = properties
    client._send_connect(60)
    (connect,) = client.decoded(None)
    assert isinstance(connect, Connect) and connect.will is not None
    assert connect.properties == Properties(
        session_expiry_interval=3600, receive_maximum=7, maximum_packet_size=4096, user_properties=(("a", "1"), ("a", "2"))
    )
    assert connect.will.properties == Properties(will_delay_interval=5, content_type="text/plain")


@pytest.mark.parametrize("version", VERSIONS)
def test_publish_and_acknowledgements_of_paho(version: int) -> None:
    """PUBLISH at each QoS, a repeat with DUP, and all four acknowledgements, in one stream."""
    client = Recorder(version)
    client._send_publish(0, b"a/b", b"zero", 0, True)
    client._send_publish(7, b"a/b", b"one", 1)
    client._send_publish(65_535, "水".encode(), b"", 2, dup=True)
    client._send_puback(1)
    client._send_puback(2)
    client._send_pubrec(3)
    client._send_pubrel(4)
    client._send_pubcomp(5)
    assert client.decoded(version) == [
        PublishRun([1, 2, 12], [0, 7, 65_535], [b"a/b", b"a/b", "水".encode()], [b"\0zero", b"\0one", b"\0"]),
        AckRun(AckKind.PUBACK, [1, 2]),
        AckRun(AckKind.PUBREC, [3]),
        AckRun(AckKind.PUBREL, [4]),
        AckRun(AckKind.PUBCOMP, [5]),
    ]


def test_publish_properties_of_paho() -> None:
    """PUBLISH with every property that a client may send; the alias is not in the stored body."""
    client = Recorder(5)
    properties = paho_properties(PacketTypes.PUBLISH)
    properties.PayloadFormatIndicator, properties.MessageExpiryInterval, properties.TopicAlias = 1, 60, 3
    properties.ResponseTopic, properties.CorrelationData, properties.ContentType = "r/t", b"\0\1", "x"
    properties.UserProperty = ("k", "v")
    client._send_publish(9, b"t", b"body", 1, properties=properties)
    (publish,) = client.decoded(5)
    assert isinstance(publish, Publish)
    assert publish.properties == Properties(
        payload_format_indicator=1,
        message_expiry_interval=60,
        topic_alias=3,
        response_topic="r/t",
        correlation_data=b"\0\1",
        content_type="x",
        user_properties=(("k", "v"),),
    )
    assert (publish.topic, publish.packet_id, publish.qos, publish.payload) == (b"t", 9, 1, b"body")
    assert publish.body.endswith(b"body") and b"\x23\x00\x03" not in publish.body
    assert len(publish.body) == len(client.sent[0]) - 2 - 3 - 2 - 3


@pytest.mark.parametrize("version", VERSIONS)
def test_subscribe_unsubscribe_and_disconnect_of_paho(version: int) -> None:
    """SUBSCRIBE, UNSUBSCRIBE and DISCONNECT, with options and reason where the version has them."""
    client = Recorder(version)
    if version == 5:
        options = SubscribeOptions(qos=2, noLocal=True, retainAsPublished=True, retainHandling=1)
        client.subscribe([("a/+", options), ("#", SubscribeOptions(qos=1))])
        rows = (Subscription(b"a/+", 2, True, True, 1), Subscription(b"#", 1))
    else:
        client.subscribe([("a/+", 2), ("#", 1)])
        rows = (Subscription(b"a/+", 2), Subscription(b"#", 1))
    client.unsubscribe(["a/+", "b"])
    reason = ReasonCode.DISCONNECT_WITH_WILL_MESSAGE if version == 5 else ReasonCode.NORMAL_DISCONNECTION
    client._send_disconnect(PahoReason(PacketTypes.DISCONNECT, "Disconnect with will message") if version == 5 else None)
    assert client.decoded(version) == [Subscribe(1, rows), Unsubscribe(2, (b"a/+", b"b")), Disconnect(reason)]
