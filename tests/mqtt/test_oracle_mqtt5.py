"""Our MQTT 5 codec against the mqtt5 package, an implementation that shares no line with it.

mqtt5 fills in the protocol's defaults and keeps no difference between absent and default, so both
sides are compared with the defaults filled in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mqtt5
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode
from mqtt.framing import Role
from mqtt.packets import (
    NO_PROPERTIES,
    Ack,
    AckKind,
    AckRun,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Item,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqtt.properties import RULES
from tests.mqtt.generated import connects, items

compared = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Our name of a property: theirs, where it is another one.
THEIRS = {
    "assigned_client_identifier": "assigned_client_id",
    "request_problem_information": "request_problem_info",
    "request_response_information": "request_response_info",
    "response_information": "response_info",
    "reason_string": "reason_str",
    "receive_maximum": "receive_max",
    "topic_alias_maximum": "topic_alias_max",
    "maximum_qos": "max_qos",
    "maximum_packet_size": "max_packet_size",
    "subscription_identifiers_available": "subscription_id_available",
}
DEFAULTS: dict[str, object] = {
    "payload_format_indicator": 0,
    "request_problem_information": 1,
    "request_response_information": 0,
    "will_delay_interval": 0,
    "receive_maximum": 65_535,
    "topic_alias_maximum": 0,
    "maximum_qos": 2,
    "retain_available": 1,
    "wildcard_subscription_available": 1,
    "subscription_identifiers_available": 1,
    "shared_subscription_available": 1,
}
ACKS: dict[AckKind, tuple[Callable[..., mqtt5.Packet], Callable[[int], object]]] = {
    AckKind.PUBACK: (mqtt5.PubAckPacket, mqtt5.PubAckReasonCode),
    AckKind.PUBREC: (mqtt5.PubRecPacket, mqtt5.PubRecReasonCode),
    AckKind.PUBREL: (mqtt5.PubRelPacket, mqtt5.PubRelReasonCode),
    AckKind.PUBCOMP: (mqtt5.PubCompPacket, mqtt5.PubCompReasonCode),
}


def their_arguments(properties: Properties) -> dict[str, Any]:
    """The properties that are there, as keyword arguments of a packet of theirs."""
    arguments: dict[str, Any] = {}
    for rule in RULES:
        value = getattr(properties, rule.name)
        if value is None or value == () or rule.name == "subscription_identifiers":
            continue
        if rule.name == "user_properties":
            value = list(value)
        elif rule.name == "maximum_qos":
            value = mqtt5.QoS(value)
        elif rule.name.endswith("_available") or rule.name.startswith("request_"):
            value = bool(value)
        arguments[THEIRS.get(rule.name, rule.name)] = value
    return arguments


def filled(properties: Properties, packet: object) -> list[object]:
    """Our properties with the defaults, those that ``packet`` has an attribute for."""
    values = [(rule.name, getattr(properties, rule.name)) for rule in RULES]
    return [
        DEFAULTS.get(name) if value is None else value
        for name, value in values
        if hasattr(packet, THEIRS.get(name, name)) and name not in ("session_expiry_interval", "subscription_identifiers")
    ]


def theirs_filled(packet: object) -> list[object]:
    found: list[object] = []
    for rule in RULES:
        name = THEIRS.get(rule.name, rule.name)
        if hasattr(packet, name) and rule.name not in ("session_expiry_interval", "subscription_identifiers"):
            value = getattr(packet, name)
            if rule.name == "user_properties":
                value = tuple(tuple(pair) for pair in value)
            found.append(DEFAULTS.get(rule.name) if value is None else value)
    return found


def to_theirs(packet: Item) -> mqtt5.Packet:
    """The packet built with mqtt5."""
    properties: Properties = getattr(packet, "properties", NO_PROPERTIES)
    more = their_arguments(properties)
    match packet:
        case Publish():
            if properties.subscription_identifiers:
                more["subscription_ids"] = list(properties.subscription_identifiers)
            return mqtt5.PublishPacket(
                packet.topic.decode(),
                packet.payload,
                qos=mqtt5.QoS(packet.qos),
                retain=packet.retain,
                duplicate=packet.dup,
                packet_id=packet.packet_id or None,
                **more,
            )
        case PublishRun():
            return to_theirs(Publish(packet.flags[0], packet.packet_ids[0], packet.topics[0], packet.bodies[0][1:]))
        case AckRun():
            return to_theirs(Ack(packet.kind, packet.packet_ids[0]))
        case Ack():
            kind, reasons = ACKS[packet.kind]
            return kind(packet.packet_id, reason_code=reasons(packet.reason), **more)
        case Subscribe():
            if properties.subscription_identifiers:
                more["subscription_id"] = properties.subscription_identifiers[0]
            filters = [
                mqtt5.TopicFilter(
                    row.filter.decode(),
                    max_qos=mqtt5.QoS(row.qos),
                    no_local=row.no_local,
                    retain_as_published=row.retain_as_published,
                    retain_handling=mqtt5.RetainHandling(row.retain_handling),
                )
                for row in packet.subscriptions
            ]
            return mqtt5.SubscribePacket(packet.packet_id, filters, **more)
        case Suback():
            return mqtt5.SubAckPacket(packet.packet_id, [mqtt5.SubAckReasonCode(code) for code in packet.reasons], **more)
        case Unsubscribe():
            return mqtt5.UnsubscribePacket(packet.packet_id, [raw.decode() for raw in packet.filters], **more)
        case Unsuback():
            return mqtt5.UnsubAckPacket(packet.packet_id, [mqtt5.UnsubAckReasonCode(code) for code in packet.reasons], **more)
        case Pingreq():
            return mqtt5.PingReqPacket()
        case Pingresp():
            return mqtt5.PingRespPacket()
        case Disconnect():
            return mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode(packet.reason), **more)
        case Auth():
            return mqtt5.AuthPacket(reason_code=mqtt5.AuthReasonCode(packet.reason), **more)
        case Connack():
            return mqtt5.ConnAckPacket(session_present=packet.session_present, reason_code=mqtt5.ConnAckReasonCode(packet.reason), **more)
        case Connect():
            will = packet.will
            return mqtt5.ConnectPacket(
                packet.client_id,
                username=packet.username,
                password=packet.password,
                clean_start=packet.clean_start,
                keep_alive=packet.keep_alive,
                will=None
                if will is None
                else mqtt5.Will(
                    will.topic.decode(),
                    payload=will.payload,
                    qos=mqtt5.QoS(will.qos),
                    retain=will.retain,
                    **their_arguments(will.properties),
                ),
                **more,
            )


def fields_of(packet: Item, shape: mqtt5.Packet) -> list[object]:
    """Everything a packet says, defaults filled in, in a form that both codecs can be brought to."""
    if isinstance(packet, PublishRun):
        packet = Publish(packet.flags[0], packet.packet_ids[0], packet.topics[0], packet.bodies[0][1:])
    if isinstance(packet, AckRun):
        packet = Ack(packet.kind, packet.packet_ids[0])
    properties: Properties = getattr(packet, "properties", NO_PROPERTIES)
    found: list[object] = [*filled(properties, shape), properties.session_expiry_interval or 0]
    match packet:
        case Publish():
            found += [packet.topic.decode(), packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id]
            found.append(properties.subscription_identifiers)
        case Ack():
            found += [packet.packet_id, packet.reason]
        case Subscribe():
            found += [packet.packet_id, properties.subscription_identifiers]
            found += [
                (row.filter.decode(), row.qos, row.no_local, row.retain_as_published, row.retain_handling) for row in packet.subscriptions
            ]
        case Suback() | Unsuback():
            found += [packet.packet_id, *packet.reasons]
        case Unsubscribe():
            found += [packet.packet_id, *[raw.decode() for raw in packet.filters]]
        case Disconnect() | Auth():
            found.append(packet.reason)
        case Connack():
            found += [packet.session_present, packet.reason]
        case Connect():
            found += [packet.client_id, packet.username, packet.password, packet.clean_start, packet.keep_alive]
            will = packet.will
            if will is not None and isinstance(shape, mqtt5.ConnectPacket) and shape.will is not None:
                found += [will.topic.decode(), will.payload, will.qos, will.retain, *filled(will.properties, shape.will)]
        case Pingreq() | Pingresp() | PublishRun() | AckRun():
            pass
    return found


def their_fields_of(packet: mqtt5.Packet) -> list[object]:
    found: list[object] = [*theirs_filled(packet), getattr(packet, "session_expiry_interval", None) or 0]
    match packet:
        case mqtt5.PublishPacket():
            found += [packet.topic, packet.payload, packet.qos, packet.retain, packet.duplicate, packet.packet_id or 0]
            found.append(tuple(packet.subscription_ids))
        case mqtt5.PubAckPacket() | mqtt5.PubRecPacket() | mqtt5.PubRelPacket() | mqtt5.PubCompPacket():
            found += [packet.packet_id, packet.reason_code]
        case mqtt5.SubscribePacket():
            found += [packet.packet_id, () if packet.subscription_id is None else (packet.subscription_id,)]
            found += [
                (row.pattern, row.max_qos, row.no_local, row.retain_as_published, row.retain_handling) for row in packet.topic_filters
            ]
        case mqtt5.SubAckPacket() | mqtt5.UnsubAckPacket():
            found += [packet.packet_id, *packet.reason_codes]
        case mqtt5.UnsubscribePacket():
            found += [packet.packet_id, *packet.patterns]
        case mqtt5.DisconnectPacket() | mqtt5.AuthPacket():
            found.append(packet.reason_code)
        case mqtt5.ConnAckPacket():
            found += [packet.session_present, packet.reason_code]
        case mqtt5.ConnectPacket():
            found += [packet.client_id, packet.username, packet.password, packet.clean_start, packet.keep_alive]
            if packet.will is not None:
                will = packet.will
                found += [will.topic, will.payload or b"", will.qos, will.retain, *theirs_filled(will)]
        case _:
            pass
    return found


def agree(packet: Item, version: int | None, role: Role) -> None:
    ours = encode(5, packet)
    read, size = mqtt5.read(memoryview(ours))
    assert size == len(ours)
    assert their_fields_of(read) == fields_of(packet, read)
    theirs = to_theirs(packet)
    (decoded,) = Decoder(version, 1 << 20, role).feed(theirs.write())
    assert fields_of(decoded, theirs) == fields_of(packet, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["server", "client"])
@compared
@given(data=st.data())
def test_both_codecs_read_what_the_other_one_writes(role: Role, data: st.DataObject) -> None:
    """Every packet but CONNECT means the same to both, in both directions."""
    agree(data.draw(items(5, role)), 5, role)


@pytest.mark.slow
@compared
@given(connects(5))
def test_both_codecs_agree_on_connect(connect: Connect) -> None:
    """CONNECT with wills, credentials and all properties means the same to both."""
    agree(connect, None, "server")


@pytest.mark.slow
@compared
@given(data=st.data())
def test_what_we_take_of_damaged_packets_they_take_too(data: st.DataObject) -> None:
    """A packet with one byte changed that our decoder accepts is accepted by mqtt5 too, and means the same."""
    role: Role = data.draw(st.sampled_from(["server", "client"]))
    wire = bytearray(encode(5, data.draw(items(5, role))))
    at = data.draw(st.integers(0, len(wire) - 1))
    wire[at] = data.draw(st.integers(0, 255))
    decoder = Decoder(5, 1 << 20, role)
    try:
        found = decoder.feed(bytes(wire))
    except DecodeError:
        return
    # The AUTH without any byte is success (MQTT 5, 3.15.2.1); mqtt5 misses the property length.
    if len(found) != 1 or decoder.held_bytes or wire == b"\xf0\0":
        return
    # mqtt5 aborts with a panic on ill-formed UTF-8, so it only ever sees what we accepted.
    read, size = mqtt5.read(memoryview(bytes(wire)))
    assert size == len(wire)
    assert fields_of(found[0], read) == their_fields_of(read)
