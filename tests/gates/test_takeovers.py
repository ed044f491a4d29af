"""What a client that takes its own session over notices: each fault of a broker that lets two connections live is found."""

from __future__ import annotations

import struct

import pytest

from tests.broker import wire
from tests.broker.history import History, payload_of
from tests.gates.takeovers import HOLD_EVERY, Connection, Findings, Taken

TOPIC = "t"


def connack(*, present: bool = True, code: int = 0) -> bytes:
    return wire.packet(0x20, bytes([present, code, 0]))


class Transport:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False


class Scene:
    """One client with its older connection, which is in use."""

    def __init__(self) -> None:
        self.history = History()
        self.history.subscribed("c", TOPIC, 2, 0)
        self.findings = Findings()
        self.client = Taken("c", (1, 2), 5, self.history, self.findings)
        self.older = self.connection(1)
        self.older.data_received(connack(present=False))

    def connection(self, number: int) -> Connection:
        connection = Connection(self.client, number)
        self.client.coming = connection
        connection.connection_made(Transport())  # type: ignore[arg-type]
        return connection

    def newer(self, number: int = 2) -> Connection:
        connection = self.connection(number)
        connection.data_received(connack())
        return connection

    def publish(self, now_ns: int = 0) -> int:
        return self.history.publish("p", TOPIC, 1, now_ns)

    def deliver(self, connection: Connection, number: int, packet_id: int, *, dup: bool = False, qos: int = 1) -> None:
        connection.data_received(wire.publish(5, TOPIC, payload_of("p", number), qos, packet_id, dup=dup))

    def taken_over(self, connection: Connection) -> None:
        connection.data_received(b"\xe0\x02\x8e\x00")
        connection.connection_lost(None)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_takeover_by_the_book_shows_no_fault(scene: Scene) -> None:
    """The older connection gets its messages, 0x8E and its end; what was under way is no fault."""
    first, second = scene.publish(), scene.publish()
    scene.deliver(scene.older, first, 1)
    scene.newer()
    scene.deliver(scene.older, second, 2)
    scene.taken_over(scene.older)
    assert scene.findings.wrong == [] and scene.findings.told == 1 and scene.findings.late == 1
    assert len(scene.history.sessions["c"].deliveries) == 1, "a late delivery does not reach the application"


def test_a_message_published_after_the_newer_connack_must_not_come_on_the_older_connection(scene: Scene) -> None:
    """No bytes under way can explain it."""
    scene.newer()
    scene.deliver(scene.older, scene.publish(2**62), 1)
    assert len(scene.findings.wrong) == 1 and "after the CONNACK of the newer" in scene.findings.wrong[0]


def held(scene: Scene) -> int:
    """Deliver until one is left unanswered; its packet id."""
    for packet_id in range(1, HOLD_EVERY + 1):
        scene.deliver(scene.older, scene.publish(), packet_id)
    return HOLD_EVERY


def test_a_late_answer_must_not_count(scene: Scene) -> None:
    """The delivery that was answered on the older connection after the newer CONNACK has to come again, with DUP."""
    packet_id = held(scene)
    newer = scene.newer()
    assert wire.answer(wire.PUBACK, packet_id) in scene.older.transport.written[-1:]  # type: ignore[union-attr]
    assert list(scene.client.owed) == [packet_id]
    scene.deliver(newer, packet_id - 1, packet_id, dup=True)
    assert scene.client.owed == {} and scene.findings.wrong == [] and scene.findings.came_again == 1


@pytest.mark.parametrize(("again", "dup", "found"), [(-1, True, "another message"), (0, False, "without DUP")])
def test_what_comes_instead_of_an_unanswered_delivery_is_a_fault(scene: Scene, again: int, dup: bool, found: str) -> None:
    """Another message under the same packet id means that the late answer counted."""
    packet_id = held(scene)
    newer = scene.newer()
    scene.deliver(newer, packet_id - 1 + again, packet_id, dup=dup)
    assert len(scene.findings.wrong) == 1 and found in scene.findings.wrong[0]


def test_at_the_end_nothing_is_held_back(scene: Scene) -> None:
    """What was held is answered, and so is everything that comes later: nothing is left for whoever connects next."""
    packet_id = held(scene)
    scene.client.answer_held()
    for later in range(1, 2 * HOLD_EVERY):
        scene.deliver(scene.older, scene.publish(), packet_id + later)
    answers = [data for data in scene.older.transport.written if data[:1] == b"\x40"]  # type: ignore[union-attr]
    assert len(answers) == packet_id + 2 * HOLD_EVERY - 1


def test_a_puback_for_what_was_published_too_late_is_a_fault(scene: Scene) -> None:
    """The older connection may not store anything any more."""
    scene.newer()
    scene.older.data_received(wire.answer(wire.PUBACK, 60_000))
    assert len(scene.findings.wrong) == 1


@pytest.mark.parametrize("code", [b"", b"\xe0\x02\x82\x00"])
def test_the_older_connection_must_be_told_that_it_was_taken_over(scene: Scene, code: bytes) -> None:
    """Neither silence nor another reason will do."""
    scene.newer()
    scene.older.data_received(code)
    scene.older.connection_lost(None)
    assert len(scene.findings.wrong) == 1


def test_a_connection_that_ends_by_itself_is_a_fault(scene: Scene) -> None:
    """Nobody has taken it over."""
    scene.taken_over(scene.older)
    assert len(scene.findings.wrong) == 1


def test_a_lost_session_and_a_refusal_are_faults(scene: Scene) -> None:
    """CONNACK without session present; CONNACK with a reason; an end without CONNACK."""
    scene.connection(2).data_received(connack(present=False))
    scene.connection(3).data_received(connack(code=0x88))
    scene.connection(4).connection_lost(None)
    assert len(scene.findings.wrong) == 3


def test_a_qos_2_id_is_known_over_connections(scene: Scene) -> None:
    """The application gets a message once per id that was not released."""
    number = scene.publish()
    scene.deliver(scene.older, number, 9, qos=2)
    newer = scene.newer()
    scene.deliver(newer, number, 9, dup=True, qos=2)
    assert len(scene.history.sessions["c"].deliveries) == 1
    newer.data_received(wire.answer(wire.PUBREL, 9))
    assert struct.pack(">BBH", 0x70, 2, 9) in newer.transport.written  # type: ignore[union-attr]
