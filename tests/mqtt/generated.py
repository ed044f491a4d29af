"""Hypothesis strategies for valid packets, by version and by who sends them.

Everything made here is what the decoder hands out, so that a round trip can compare for equality:
a PUBLISH without properties is a run of one, and so is a successful acknowledgement.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from mqtt.body import make_body
from mqtt.control import ACK_REASONS, CONNACK_REASONS, DISCONNECT_REASONS, SUBACK_REASONS, UNSUBACK_REASONS
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
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqtt.properties import RULES, Kind, Place
from mqtt.reason import ReasonCode

packet_ids = st.integers(1, 65_535)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
payloads = st.binary(max_size=40) | st.integers(100, 300).map(lambda size: b"x" * size)
_levels = st.sampled_from(["", "a", "b", "sensors", "room-7", "$SYS", "é", "水", "\U0001f41d", "\x01", " "])
topic_names = st.lists(_levels, min_size=1, max_size=5).map("/".join).filter(bool).map(str.encode)


@st.composite
def _filters_of(draw: st.DrawFn, level: st.SearchStrategy[str], levels_max: int) -> bytes:
    levels = draw(st.lists(level | st.just("+"), min_size=1, max_size=levels_max))
    if draw(st.booleans()):
        levels[-1] = "#"
    return ("/".join(levels) or "/").encode()


def topic_filters() -> st.SearchStrategy[bytes]:
    return _filters_of(_levels, 5)


_VALUES = {
    Kind.U16: st.integers(0, 0xFFFF),
    Kind.U32: st.integers(0, 0xFFFF_FFFF),
    Kind.VARINT: st.sampled_from([1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455]),
    Kind.STRING: texts,
    Kind.BINARY: st.binary(max_size=6),
    Kind.PAIR: st.tuples(texts, texts),
}


@st.composite
def properties(draw: st.DrawFn, place: Place, without: tuple[str, ...] = ()) -> Properties:
    """A few properties that may stand in ``place``, with values in their range."""
    found = NO_PROPERTIES
    rules = [rule for rule in RULES if place in rule.places and rule.name not in without]
    for rule in draw(st.lists(st.sampled_from(rules), max_size=4, unique_by=lambda rule: rule.identifier)):
        values = st.integers(0, rule.most) if rule.kind is Kind.U8 else _VALUES[rule.kind]
        value = draw(topic_names.map(bytes.decode) if rule.name == "response_topic" else values)
        if isinstance(value, int):
            value = max(rule.least, value)
        if rule.name in ("user_properties", "subscription_identifiers"):
            more = draw(st.lists(_VALUES[rule.kind], max_size=2)) if place in rule.many else []
            value = (value, *more)
        change: dict[str, Any] = {rule.name: value}
        found = replace(found, **change)
    if found.authentication_data is not None or (place is Place.AUTH and found.authentication_method is None):
        found = replace(found, authentication_method=draw(texts))
    return found


def _properties(version: int, place: Place, without: tuple[str, ...] = ()) -> st.SearchStrategy[Properties]:
    return properties(place, without) if version == 5 else st.just(NO_PROPERTIES)


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    clean_start = draw(st.booleans())
    needs_id = version == 3 or (version == 4 and not clean_start)
    username = draw(st.none() | texts)
    password = draw(st.none() | st.binary(max_size=6)) if version == 5 or username is not None else None
    will = st.builds(Will, topic_names, payloads, st.integers(0, 2), st.booleans(), _properties(version, Place.WILL))
    return Connect(
        version,
        draw(texts.filter(bool) if needs_id else texts),
        clean_start,
        draw(st.integers(0, 65_535)),
        username,
        password,
        draw(st.none() | will),
        draw(_properties(version, Place.CONNECT)),
    )


@st.composite
def publishes(draw: st.DrawFn, version: int, role: Role) -> Item:
    flags = draw(st.sampled_from([0, 1, 2, 3, 10, 11, 4, 5, 12, 13]))
    packet_id = draw(packet_ids) if flags & 6 else 0
    topic, payload = draw(topic_names), draw(payloads)
    without = ("subscription_identifiers",) if role == "server" else ()
    found = draw(_properties(version, Place.PUBLISH, without))
    if found == NO_PROPERTIES:
        return PublishRun([flags], [packet_id], [topic], [b"\0" + payload])
    if found.topic_alias is not None and draw(st.booleans()):
        topic = b""
    return Publish(flags, packet_id, topic, payload, found, make_body(found, payload))


@st.composite
def acknowledgements(draw: st.DrawFn, version: int) -> Item:
    kind = draw(st.sampled_from(AckKind))
    packet_id = draw(packet_ids)
    if version != 5 or draw(st.booleans()):
        return AckRun(kind, [packet_id])
    reason = draw(st.sampled_from(list(ACK_REASONS[kind].values())))
    found = draw(properties(Place.ACK))
    if reason is ReasonCode.SUCCESS and found == NO_PROPERTIES:
        return AckRun(kind, [packet_id])
    return Ack(kind, packet_id, reason, found)


@st.composite
def subscriptions(draw: st.DrawFn, version: int) -> Subscription:
    topic_filter, qos = draw(topic_filters()), draw(st.integers(0, 2))
    if version != 5:
        return Subscription(topic_filter, qos)
    no_local = draw(st.booleans())
    if not no_local and draw(st.booleans()):
        topic_filter = b"$share/group/" + topic_filter
    return Subscription(topic_filter, qos, no_local, draw(st.booleans()), draw(st.integers(0, 2)))


def _from_client(version: int) -> st.SearchStrategy[Item]:
    return st.one_of(
        st.builds(
            Subscribe,
            packet_ids,
            st.lists(subscriptions(version), min_size=1, max_size=3).map(tuple),
            _properties(version, Place.SUBSCRIBE),
        ),
        st.builds(
            Unsubscribe,
            packet_ids,
            st.lists(topic_filters(), min_size=1, max_size=3).map(tuple),
            _properties(version, Place.UNSUBSCRIBE),
        ),
        st.just(Pingreq()),
        *([_disconnects("server")] if version == 5 else [st.just(Disconnect())]),
        *([_auths(ReasonCode.RE_AUTHENTICATE)] if version == 5 else []),
    )


def _reasons(table: dict[int, ReasonCode]) -> st.SearchStrategy[ReasonCode]:
    return st.sampled_from(list(table.values()))


def _disconnects(role: Role) -> st.SearchStrategy[Item]:
    without = () if role == "server" else ("session_expiry_interval",)
    return st.builds(Disconnect, _reasons(DISCONNECT_REASONS), properties(Place.DISCONNECT, without))


def _auths(other: ReasonCode) -> st.SearchStrategy[Item]:
    return st.builds(Auth, st.sampled_from([ReasonCode.CONTINUE_AUTHENTICATION, other]), properties(Place.AUTH))


@st.composite
def connacks(draw: st.DrawFn, version: int) -> Connack:
    if version == 5:
        reason = draw(_reasons(CONNACK_REASONS))
    else:
        reason = ReasonCode(draw(st.sampled_from([0x00, 0x84, 0x85, 0x88, 0x86, 0x87])))
    present = reason is ReasonCode.SUCCESS and version != 3 and draw(st.booleans())
    return Connack(present, reason, draw(_properties(version, Place.CONNACK)))


def _from_server(version: int) -> st.SearchStrategy[Item]:
    suback = SUBACK_REASONS if version == 5 else {code: ReasonCode(code) for code in (0, 1, 2, 0x80)}
    unsuback = st.lists(_reasons(UNSUBACK_REASONS), min_size=1, max_size=3).map(tuple)
    return st.one_of(
        connacks(version),
        st.builds(
            Suback,
            packet_ids,
            st.lists(_reasons(suback), min_size=1, max_size=3).map(tuple),
            _properties(version, Place.SUBACK),
        ),
        st.builds(Unsuback, packet_ids, unsuback if version == 5 else st.just(()), _properties(version, Place.UNSUBACK)),
        st.just(Pingresp()),
        *([_disconnects("client"), _auths(ReasonCode.SUCCESS)] if version == 5 else []),
    )


def items(version: int, role: Role) -> st.SearchStrategy[Item]:
    """Any packet that ``role`` may receive in the middle of a connection."""
    control = _from_client(version) if role == "server" else _from_server(version)
    return st.one_of(publishes(version, role), acknowledgements(version), control)


def merged(packets: list[Item]) -> list[Item]:
    """The packets with neighbouring runs made one: what a decoder makes of them fed whole."""
    out: list[Item] = []
    for packet in packets:
        last = out[-1] if out else None
        if isinstance(packet, PublishRun) and isinstance(last, PublishRun):
            out[-1] = PublishRun(
                last.flags + packet.flags,
                last.packet_ids + packet.packet_ids,
                last.topics + packet.topics,
                last.bodies + packet.bodies,
            )
        elif isinstance(packet, AckRun) and isinstance(last, AckRun) and packet.kind is last.kind:
            out[-1] = AckRun(packet.kind, last.packet_ids + packet.packet_ids)
        else:
            out.append(packet)
    return out


# Few levels, so that filters share nodes and topics find filters.
_few = st.sampled_from(["a", "b", "", "$x"])
near_topics = st.lists(_few, min_size=1, max_size=4).map("/".join).filter(bool).map(str.encode)


def near_filters() -> st.SearchStrategy[bytes]:
    return _filters_of(_few, 4)
