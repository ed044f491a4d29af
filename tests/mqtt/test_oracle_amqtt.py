"""Our 3.1.1 codec against amqtt's packet classes, both ways."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from amqtt.adapters import BufferReader
from amqtt.mqtt import packet_class
from amqtt.mqtt.connack import ConnackPacket
from amqtt.mqtt.connect import ConnectPacket, ConnectPayload, ConnectVariableHeader
from amqtt.mqtt.disconnect import DisconnectPacket
from amqtt.mqtt.packet import MQTTFixedHeader, PacketIdVariableHeader
from amqtt.mqtt.pingreq import PingReqPacket
from amqtt.mqtt.pingresp import PingRespPacket
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.pubcomp import PubcompPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.pubrec import PubrecPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.mqtt.suback import SubackPacket
from amqtt.mqtt.subscribe import SubscribePacket
from amqtt.mqtt.unsuback import UnsubackPacket
from amqtt.mqtt.unsubscribe import UnsubscribePacket
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.framing import Role
from mqtt.packets import (
    AckKind,
    AckRun,
    Connack,
    Connect,
    Disconnect,
    Item,
    Pingreq,
    Pingresp,
    PublishRun,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqtt.reason import connack_return_code
from tests.mqtt.generated import connects, items

compared = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ACKS = {
    AckKind.PUBACK: PubackPacket,
    AckKind.PUBREC: PubrecPacket,
    AckKind.PUBREL: PubrelPacket,
    AckKind.PUBCOMP: PubcompPacket,
}


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that reads from memory and so never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("amqtt waited for more bytes than the packet has")


def read(wire: bytes) -> Any:
    reader = BufferReader(wire)
    header = finished(MQTTFixedHeader.from_stream(reader))
    assert header.remaining_length == len(wire) - header.bytes_length
    packet = finished(packet_class(header).from_stream(reader, fixed_header=header))
    assert finished(reader.read()) == b""
    return packet


def build(packet: Item) -> Any:
    """The packet built with amqtt."""
    match packet:
        case PublishRun():
            flags, number = packet.flags[0], packet.packet_ids[0] or None
            topic, payload = packet.topics[0].decode(), packet.bodies[0][1:]
            return PublishPacket.build(topic, payload, number, bool(flags & 8), flags >> 1 & 3, bool(flags & 1))
        case AckRun():
            return ACKS[packet.kind].build(packet.packet_ids[0])
        case Subscribe():
            rows = [(row.filter.decode(), row.qos) for row in packet.subscriptions]
            return SubscribePacket.build(rows, packet.packet_id)
        case Suback():
            return SubackPacket.build(packet.packet_id, [int(code) for code in packet.reasons])
        case Unsubscribe():
            return UnsubscribePacket.build([raw.decode() for raw in packet.filters], packet.packet_id)
        case Unsuback():
            return UnsubackPacket(variable_header=PacketIdVariableHeader(packet.packet_id))
        case Pingreq():
            return PingReqPacket()
        case Pingresp():
            return PingRespPacket()
        case Disconnect():
            return DisconnectPacket()
        case Connack():
            return ConnackPacket.build(int(packet.session_present), connack_return_code(packet.reason))
        case Connect():
            header = ConnectVariableHeader(keep_alive=packet.keep_alive)
            header.clean_session_flag = packet.clean_start
            payload_5 = ConnectPayload(packet.client_id)
            if packet.will is not None:
                header.will_flag, header.will_qos, header.will_retain_flag = True, packet.will.qos, packet.will.retain
                payload_5.will_topic, payload_5.will_message = packet.will.topic.decode(), packet.will.payload
            if packet.username is not None:
                header.username_flag, payload_5.username = True, packet.username
            if packet.password is not None:
                header.password_flag, payload_5.password = True, packet.password.decode()
            return ConnectPacket(variable_header=header, payload=payload_5)
        case _:
            raise AssertionError(f"{packet} is not a packet of 3.1.1")


def agree(packet: Item, version: int | None, role: Role) -> None:
    """The same bytes, and each reads the other's: amqtt's objects are compared through their own bytes."""
    ours, theirs = encode(4, packet), bytes(build(packet).to_bytes())
    assert ours == theirs
    assert read(ours).to_bytes() == ours
    assert Decoder(version, 1 << 20, role).feed(theirs) == [packet]


@pytest.mark.slow
@pytest.mark.parametrize("role", ["server", "client"])
@compared
@given(data=st.data())
def test_both_write_the_same_bytes(role: Role, data: st.DataObject) -> None:
    """Every 3.1.1 packet but CONNECT has one form, and both codecs write it."""
    agree(data.draw(items(4, role)), 4, role)


@pytest.mark.slow
@compared
@given(connects(4))
def test_both_write_the_same_connect(connect: Connect) -> None:
    """CONNECT too, wherever amqtt can express it: it wants text as password and makes up an empty client id."""
    if connect.client_id and (connect.password is None or connect.password.isascii()):
        agree(connect, None, "server")
