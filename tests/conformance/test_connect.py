"""CONNECT: what has to be in it, and what happens to one that is not right."""

from __future__ import annotations

import string

import pytest

from tests.broker.wire import packet, text
from tests.conformance import packets
from tests.conformance.cases import BAD_STRINGS, MALFORMED, ONE_LOOP, PROTOCOL_ERROR, VERSIONS
from tests.conformance.packets import PASSWORD, USER, Will, binary, connect, number, raw_connect
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP

UNACCEPTABLE_LEVEL, IDENTIFIER_REJECTED, NOT_AUTHORIZED = 0x01, 0x02, 0x05
"""Return codes of a 3.1.1 CONNACK."""
UNSUPPORTED_VERSION, BAD_AUTHENTICATION_METHOD, TOPIC_NAME_INVALID = 0x84, 0x8C, 0x90


async def _refused(port: int, version: int, data: bytes, code: int | None = MALFORMED) -> None:
    """MQTT 5: CONNACK with this code; 3.1.1: closed without a CONNACK, since it has no word for a packet that makes no sense."""
    peer = await Peer.open(port, version, data)
    await peer.refused(code if version == 5 else None)


# ---------------------------------------------------------------------------------------------- first and only
@VERSIONS
@pytest.mark.parametrize("kind", ["PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "PUBACK", "PUBREL", "PINGREQ", "DISCONNECT", "AUTH", "CONNACK"])
async def test_the_first_packet_has_to_be_a_connect(port: int, version: int, kind: str) -> None:
    """Anything else gets no answer.  5: [MQTT-3.1.0-1] [MQTT-3.2.0-1] [MQTT-3.14.0-1]; 3.1.1: [MQTT-3.1.0-1] [MQTT-3.2.0-1]."""
    data = {
        "PUBLISH": packets.publish(version, "t"),
        "SUBSCRIBE": packets.subscribe(version, 1, ("t", 0)),
        "UNSUBSCRIBE": packets.unsubscribe(version, 1, "t"),
        "PUBACK": packets.ack(packets.PUBACK, 1),
        "PUBREL": packets.ack(packets.PUBREL, 1),
        "PINGREQ": b"\xc0\0",
        "DISCONNECT": b"\xe0\0",
        "AUTH": packets.auth(0x18),
        "CONNACK": b"\x20\x02\0\0",
    }[kind]
    peer = await Peer.open(port, version, data)
    await peer.refused(None)


@VERSIONS
async def test_a_second_connect_closes_the_connection(port: int, version: int) -> None:
    """[MQTT-3.1.0-2] of both"""
    peer = await Peer.connect(port, version)
    peer.send(connect(version, peer.client))
    await peer.closed(PROTOCOL_ERROR)


# ---------------------------------------------------------------------------------------------- protocol
@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("name", [b"mqtt", b"MQT", b"MQTT ", b"HTTP", b"", b"MQIsdp\0"])
async def test_another_protocol_is_closed(port: int, name: bytes, level: int) -> None:
    """[MQTT-3.1.2-1] of both"""
    peer = await Peer.open(port, level, raw_connect(level, 2, text(fresh("c")), name=name))
    await peer.refused(None)


@pytest.mark.parametrize("level", [0, 1, 2, 3, 0x83, 0x84, 0xFF])
async def test_a_level_below_ours_is_refused_in_the_words_of_3_1_1(port: int, level: int) -> None:
    """Bridges that mark themselves with the highest bit come again without it.  3.1.1: [MQTT-3.1.2-2] [MQTT-3.2.2-5]."""
    peer = await Peer.open(port, 4, raw_connect(4, 2, text(fresh("c")), level=level))
    await peer.refused(UNACCEPTABLE_LEVEL)


@pytest.mark.parametrize("level", [6, 7, 0x7F])
async def test_a_level_above_ours_is_refused_in_the_words_of_5(port: int, level: int) -> None:
    """5: [MQTT-3.1.2-2]"""
    peer = await Peer.open(port, 5, raw_connect(5, 2, text(fresh("c")), level=level))
    await peer.refused(UNSUPPORTED_VERSION)


async def test_3_1_is_accepted(port: int) -> None:
    """MQIsdp, level 3: publishes and subscribes like 3.1.1."""
    peer = await Peer.open(port, 4, raw_connect(4, 2, text(fresh("c")), name=b"MQIsdp", level=3))
    assert (await peer.answer(packets.CONNACK)).code == 0
    topic = fresh()
    assert await peer.subscribe((topic, 2)) == b"\2"
    publisher = await Peer.connect(port, 4)
    await publisher.publish(topic, b"x", 2)
    assert (await peer.take()).payload == b"x"


# ---------------------------------------------------------------------------------------------- flags
NAME, WORD, RETAIN, QOS_1, QOS_2, QOS_3, WILL, CLEAN, RESERVED = 0x80, 0x40, 0x20, 0x08, 0x10, 0x18, 0x04, 0x02, 0x01


@VERSIONS
async def test_the_reserved_flag_is_looked_at(port: int, version: int) -> None:
    """[MQTT-3.1.2-3] of both"""
    await _refused(port, version, raw_connect(version, CLEAN | RESERVED, text(fresh("c"))))


@VERSIONS
@pytest.mark.parametrize("flags", [RETAIN, QOS_1, QOS_2, QOS_3, RETAIN | QOS_1], ids=["retain", "QoS 1", "QoS 2", "QoS 3", "both"])
async def test_flags_of_a_will_that_is_not_there_are_refused(port: int, version: int, flags: int) -> None:
    """5: [MQTT-3.1.2-11] [MQTT-3.1.2-13]; 3.1.1: [MQTT-3.1.2-11] [MQTT-3.1.2-13] [MQTT-3.1.2-15]."""
    await _refused(port, version, raw_connect(version, CLEAN | flags, text(fresh("c"))))


@VERSIONS
async def test_a_will_of_qos_3_is_refused(port: int, version: int) -> None:
    """5: [MQTT-3.1.2-12]; 3.1.1: [MQTT-3.1.2-14]."""
    await _refused(port, version, connect(version, fresh("c"), will=Will("t", qos=3)))


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_will_may_have_any_qos(port: int, version: int, qos: int) -> None:
    """5: [MQTT-3.1.2-12] [MQTT-3.2.2-12]; 3.1.1: [MQTT-3.1.2-14]."""
    topic = fresh()
    watcher = await Peer.connect(port, version)
    await watcher.subscribe((topic, 2))
    peer = await Peer.connect(port, version, will=Will(topic, qos=qos))
    peer.drop()
    assert (await watcher.take()).qos == qos


@VERSIONS
@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (0, []),
        (0, ["id", "more"]),
        (WILL, ["id"]),
        (WILL, ["id", "topic"]),
        (0, ["id", "topic", "payload"]),
        (NAME, ["id"]),
        (0, ["id", "name"]),
        (NAME | WORD, ["id", "name"]),
        (NAME, ["id", "name", "password"]),
        (WILL | NAME | WORD, ["id", "topic", "payload", "name"]),
    ],
    ids=[
        "no client id", "more than the client id", "no will", "no will payload", "a will without its flag", "no user name",
        "a user name without its flag", "no password", "a password without its flag", "one field less",
    ],
)  # fmt: skip
async def test_flags_and_fields_have_to_agree(port: int, version: int, flags: int, fields: list[str]) -> None:
    """What a flag promises is there, and nothing else.

    5: [MQTT-3.1.2-9] [MQTT-3.1.2-16 to -19] [MQTT-3.1.3-1] [MQTT-3.1.3-3] [MQTT-3.1.4-1]; 3.1.1: [MQTT-3.1.2-9] [MQTT-3.1.2-11]
    [MQTT-3.1.2-18 to -21] [MQTT-3.1.3-1] [MQTT-3.1.3-3] [MQTT-3.1.4-1].
    """
    if flags & WILL and version == 5:
        fields = [fields[0], "properties", *fields[1:]]
    payload = b"".join(b"\0" if field == "properties" else text(field) for field in fields)
    await _refused(port, version, raw_connect(version, CLEAN | flags, payload))


@VERSIONS
async def test_all_fields_are_read_in_their_order(port: int, version: int) -> None:
    """Client id, will properties, will topic, will payload, user name, password.  [MQTT-3.1.3-1] of both"""
    topic = fresh()
    watcher = await Peer.connect(port, version)
    await watcher.subscribe((topic, 2))
    will = Will(topic, b"the payload", 1)
    peer = await Peer.open(port, version, connect(version, fresh("c"), will=will, username=USER, password=PASSWORD))
    assert (await peer.answer(packets.CONNACK)).code == 0
    peer.drop()
    came = await watcher.take()
    assert (came.topic, came.payload, came.qos) == (topic, b"the payload", 1)


async def test_a_password_without_a_user_name(port: int) -> None:
    """3.1.1 does not have it [MQTT-3.1.2-22]; MQTT 5 does, and it is read as a password, though here nobody's."""
    await _refused(port, 4, raw_connect(4, CLEAN | WORD, text(fresh("c")) + text("word")))
    peer = await Peer.open(port, 5, connect(5, fresh("c"), password=b"word"))
    assert (await peer.answer(packets.CONNACK)).code == 0x86


@VERSIONS
@BAD_STRINGS
@pytest.mark.parametrize("where", ["client id", "will topic", "user name"])
async def test_strings_have_to_be_utf8(port: int, version: int, where: str, bad: bytes) -> None:
    """5: [MQTT-3.1.3-4, -11, -12]; 3.1.1: [MQTT-3.1.3-4, -10, -11]."""
    block = b"\0" if version == 5 else b""
    flags, payload = {
        "client id": (0, binary(bad)),
        "will topic": (WILL, text("c") + block + binary(bad) + text("gone")),
        "user name": (NAME, text("c") + binary(bad)),
    }[where]
    await _refused(port, version, raw_connect(version, CLEAN | flags, payload))


@VERSIONS
@pytest.mark.parametrize("topic", ["", "a/#", "+/a", "#"])
async def test_a_will_topic_is_a_topic_name(port: int, version: int, topic: str) -> None:
    """3.1.1: [MQTT-4.7.1-1] [MQTT-4.7.3-1]; 5: [MQTT-4.7.0-1] [MQTT-4.7.3-1]."""
    peer = await Peer.open(port, version, connect(version, fresh("c"), will=Will(topic)))
    await peer.refused(TOPIC_NAME_INVALID if version == 5 else NOT_AUTHORIZED)


@pytest.mark.parametrize(
    "rows",
    [
        [(packets.RECEIVE_MAXIMUM, 0)],
        [(packets.MAXIMUM_PACKET_SIZE, 0)],
        [(packets.REQUEST_PROBLEM, 2)],
        [(packets.REQUEST_RESPONSE, 2)],
        [(packets.SESSION_EXPIRY, 1), (packets.SESSION_EXPIRY, 1)],
        [(packets.AUTH_DATA, b"x")],
        [(packets.TOPIC_ALIAS, 1)],
    ],
    ids=["receive maximum 0", "packet size 0", "problem 2", "response 2", "twice", "data without a method", "not of CONNECT"],
)
async def test_properties_that_break_the_protocol_are_refused(port: int, rows: list[tuple[int, int]]) -> None:
    """[MQTT-3.1.4-1] [MQTT-4.13.1-1]"""
    peer = await Peer.open(port, 5, connect(5, fresh("c"), properties_=rows))
    (came,) = await peer.rest()
    assert isinstance(came, packets.Answer) and came.kind == packets.CONNACK and came.code in (MALFORMED, PROTOCOL_ERROR)


# ---------------------------------------------------------------------------------------------- client identifiers
@VERSIONS
@pytest.mark.parametrize(
    "client",
    ["0", string.digits, string.ascii_lowercase[:23], string.ascii_lowercase[3:], string.ascii_uppercase[:23], string.ascii_uppercase[3:]],
)
async def test_short_plain_client_identifiers_are_accepted(port: int, version: int, client: str) -> None:
    """1 to 23 letters and digits.  [MQTT-3.1.3-5] of both"""
    peer = await Peer.connect(port, version, client)
    await peer.leave()


@VERSIONS
@pytest.mark.parametrize(
    "client", ["x" * 24, "x" * 65535, "a b/c+#$é漢\U0001f600", "\x01"], ids=["24 bytes", "65535 bytes", "others", "control"]
)
async def test_other_client_identifiers_are_accepted(port: int, version: int, client: str) -> None:
    """A server may, and people use them; none but the empty one is rejected.  5: [MQTT-3.1.3-8]."""
    peer = await Peer.connect(port, version, client)
    await peer.leave()


async def test_an_empty_client_identifier_of_3_1_1_has_to_start_clean(port: int) -> None:
    """3.1.1: [MQTT-3.1.3-6, -7, -8, -9]"""
    first, second = await Peer.connect(port, 4, ""), await Peer.connect(port, 4, "")
    await first.alive()  # they are two clients: the second has not taken the place of the first
    await second.alive()
    refused = await Peer.open(port, 4, connect(4, "", clean=False))
    await refused.refused(IDENTIFIER_REJECTED)


@pytest.mark.parametrize("kept", [False, True])
async def test_an_empty_client_identifier_of_5_is_assigned_one(port: int, kept: bool) -> None:
    """A new one each time, that works like one of the client's own.  5: [MQTT-3.1.3-6, -7] [MQTT-3.2.2-16]."""
    first, second = await Peer.connect(port, 5, "", kept=kept), await Peer.connect(port, 5, "", kept=kept)
    names = [each.connack.get(packets.ASSIGNED_CLIENT) for each in (first, second)]
    assert len(set(names)) == 2 and all(isinstance(name, str) and name for name in names)
    await first.alive()
    await first.leave()
    again = await Peer.connect(port, 5, str(names[0]), kept=True)
    assert again.present == kept


async def test_a_client_identifier_of_its_own_is_not_assigned(port: int) -> None:
    """CONNACK names one only where the client did not."""
    peer = await Peer.connect(port, 5)
    assert peer.connack.get(packets.ASSIGNED_CLIENT) is None


# ---------------------------------------------------------------------------------------------- what is refused
async def test_an_unknown_authentication_method_is_refused(port: int) -> None:
    """5: [MQTT-4.12.0-1] [MQTT-3.1.4-2]"""
    peer = await Peer.open(
        port, 5, connect(5, fresh("c"), properties_=[(packets.AUTH_METHOD, "no such method"), (packets.AUTH_DATA, b"x")])
    )
    await peer.refused(BAD_AUTHENTICATION_METHOD)


REFUSED = {
    (4, UNACCEPTABLE_LEVEL): raw_connect(4, CLEAN, text("c"), level=3),
    (4, IDENTIFIER_REJECTED): connect(4, "", clean=False),
    (4, None): raw_connect(4, CLEAN | RESERVED, text("c")),
    (5, UNSUPPORTED_VERSION): raw_connect(5, CLEAN, text("c"), level=6),
    (5, BAD_AUTHENTICATION_METHOD): connect(5, "c", properties_=[(packets.AUTH_METHOD, "no such method")]),
    (5, MALFORMED): raw_connect(5, CLEAN | RESERVED, text("c")),
}


@pytest.mark.parametrize(("version", "code"), REFUSED)
async def test_nothing_behind_a_refused_connect_is_processed(port: int, version: int, code: int | None) -> None:
    """5: [MQTT-3.1.4-6]; 3.1.1: [MQTT-3.1.4-5]."""
    watcher = await Peer.connect(port, 5)
    topic = fresh()
    await watcher.subscribe((topic, 0))
    behind = [packets.publish(version, topic, b"behind"), packets.subscribe(version, 1, (topic, 0)), b"\xc0\0"]
    peer = await Peer.open(port, version, b"".join([REFUSED[version, code], *behind]))
    await peer.refused(code)
    await watcher.nothing_but(await Peer.connect(port, 5), topic)


@VERSIONS
async def test_what_is_sent_behind_connect_at_once_is_processed_after_it(port: int, version: int) -> None:
    """A client need not wait for CONNACK, which comes first all the same; a message may come before its SUBACK.

    [MQTT-3.2.0-1] of both
    """
    topic = fresh()
    behind = [packets.subscribe(version, 1, (topic, 0)), packets.publish(version, topic, b"x"), b"\xc0\0"]
    peer = await Peer.open(port, version, b"".join([connect(version, fresh("c")), *behind]))
    assert (await peer.answer(packets.CONNACK)).code == 0
    came = [await peer.next() for _ in range(3)]
    answers = [each.kind for each in came if isinstance(each, packets.Answer)]
    assert sorted(answers) == [packets.SUBACK, packets.PINGRESP] and len(came) - len(answers) == 1


@VERSIONS
async def test_a_connect_may_come_byte_by_byte(port: int, version: int) -> None:
    """The stream has no borders but those of the packets.  3.1.1: [MQTT-7.1.1-1]; 5: [MQTT-4.2.0-1]."""
    peer = await Peer.open(port, version)
    for byte in connect(version, fresh("c")):
        peer.send(bytes([byte]))
    assert (await peer.answer(packets.CONNACK)).code == 0


@VERSIONS
async def test_a_cut_connect_is_not_waited_for_once_its_lengths_disagree(port: int, version: int) -> None:
    """The client id says that it is longer than the packet.  [MQTT-3.1.4-1] of both"""
    head = binary(b"MQTT") + bytes([version, CLEAN]) + number(0) + (b"\0" if version == 5 else b"")
    await _refused(port, version, packet(0x10, head + number(200) + b"short"))
