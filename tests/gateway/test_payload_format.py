"""Payloads that are said to be UTF-8 text, where somebody wants that checked (mqtt.payload_format_check)."""

from __future__ import annotations

import pytest

from gateway.options import Options
from mqtt.body import make_body
from mqtt.packets import Ack, AckKind, AckRun, Connack, Connect, Properties, Publish, PublishRun, Will
from mqtt.reason import ReasonCode
from tests.gateway.scripted import Shell, message, subscribe

TEXT = Properties(payload_format_indicator=1)
BYTES = Properties(payload_format_indicator=0)
WRONG = b"\xff\xfe"


@pytest.mark.parametrize(("check", "properties", "payload", "refused"), [
    (True, TEXT, WRONG, True),
    (True, TEXT, b"\xed\xa0\x80", True),
    (True, TEXT, "gr\u00fc\u00df".encode(), False),
    (True, TEXT, b"", False),
    (True, BYTES, WRONG, False),
    (True, Properties(content_type="text"), WRONG, False),
    (False, TEXT, WRONG, False),
])  # fmt: skip
def test_text_that_is_none_is_refused_where_that_is_asked_for(check: bool, properties: Properties, payload: bytes, refused: bool) -> None:
    """0x99 for QoS 1 and 2, in the order of the connection; QoS 0 is dropped; what says nothing is not looked at."""
    shell = Shell(Options(payload_format_check=check))
    shell.homes.durable_filters.append(b"#")
    subscriber, client = shell.online("s", 5), shell.online("p", 5)
    subscribe(subscriber, b"#")
    client.send(message(b"a", b"before", 1, 1))
    for qos, packet_id in ((0, 0), (1, 2), (2, 3)):
        client.send(Publish(qos << 1, packet_id, b"a", payload, properties))
    shell.answer()
    if refused:
        wrong = ReasonCode.PAYLOAD_FORMAT_INVALID
        assert client.take() == [AckRun(AckKind.PUBACK, [1]), Ack(AckKind.PUBACK, 2, wrong), Ack(AckKind.PUBREC, 3, wrong)]
        assert shell.core.counters.publishes_refused_format == 3 and len(subscriber.take()) == 1
    else:
        assert client.take() == [AckRun(AckKind.PUBACK, [1]), AckRun(AckKind.PUBACK, [2]), AckRun(AckKind.PUBREC, [3])]
        assert shell.core.counters.publishes_refused_format == 0 and len(subscriber.take()) == 4


@pytest.mark.parametrize("check", [True, False])
def test_each_of_a_run_is_looked_at(check: bool) -> None:
    """Messages whose properties were read before come together; what is wrong with one is said of it alone."""
    shell = Shell(Options(payload_format_check=check))
    shell.homes.durable_filters.append(b"#")
    subscriber, client = shell.online("s", 5), shell.online("p", 5)
    subscribe(subscriber, b"#")
    bodies = [make_body(TEXT, b"good"), b"\0" + WRONG, make_body(TEXT, WRONG), make_body(BYTES, WRONG)]
    client.send(PublishRun([2] * 4, [1, 2, 3, 4], [b"a"] * 4, bodies))
    shell.answer()
    if check:
        refused = Ack(AckKind.PUBACK, 3, ReasonCode.PAYLOAD_FORMAT_INVALID)
        assert client.take() == [AckRun(AckKind.PUBACK, [1]), AckRun(AckKind.PUBACK, [2]), refused, AckRun(AckKind.PUBACK, [4])]
        assert shell.core.counters.publishes_refused_format == 1
    else:
        assert client.take() == [AckRun(AckKind.PUBACK, [number]) for number in (1, 2, 3, 4)]


def test_a_refused_message_frees_its_packet_id() -> None:
    """The client may use it at once, for something else."""
    shell = Shell(Options(payload_format_check=True))
    shell.homes.durable_filters.append(b"#")
    client = shell.online("p", 5)
    client.send(Publish(4, 7, b"a", WRONG, TEXT))
    client.take()
    client.send(Publish(4, 7, b"a", b"good", TEXT))
    shell.answer()
    assert client.take() == [AckRun(AckKind.PUBREC, [7])]


@pytest.mark.parametrize("check", [True, False])
def test_a_will_is_looked_at_at_connect(check: bool) -> None:
    """Later there would be nobody to be told."""
    shell = Shell(Options(payload_format_check=check))
    client = shell.client()
    client.send(Connect(5, "c", will=Will(b"a", WRONG, properties=TEXT)))
    if check:
        assert client.take() == [Connack(False, ReasonCode.PAYLOAD_FORMAT_INVALID)] and client.closed
    else:
        assert client.take() == [] and shell.requests
