"""Questions to a plugin, by the desk: what it says, and what is said when it is late, away, wrong, or has failed too often."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from access.identity import ANONYMOUS, Identity
from access.login import Login
from actors.auth.breaker import FAILURES, OPEN_S, Breaker
from actors.auth.questions import ALARM
from actors.auth.settings import PluginSettings
from actors.links import Link
from actors.plugin.frames import Allowed, Answer, Ask, Denied, Failed, Told, decode, encode
from gateway.events import Authenticated, AuthRefused
from mqtt.reason import ReasonCode
from tests.access.test_passwords import pbkdf2
from tests.auth.by_hand import At, by_password, login

BAD, AWAY, BUSY = int(ReasonCode.BAD_USER_NAME_OR_PASSWORD), int(ReasonCode.SERVER_UNAVAILABLE), int(ReasonCode.SERVER_BUSY)
ANN = Identity("ann", "plugin", ("a",), (("site", "3"),))


class Wire:
    """The other end: writes down what is asked, and may be closed."""

    def __init__(self) -> None:
        self.frames: list[Ask] = []
        self.closed = ""

    def send(self, data: bytes) -> None:
        frame = decode(data)
        assert isinstance(frame, Ask)
        self.frames.append(frame)

    def close(self, why: str) -> None:
        self.closed = why


class Plugged(At):
    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path, plugin=PluginSettings())
        self.wire = Wire()
        self.desk.plugin.wire = self.wire
        self.up()

    def up(self) -> None:
        self.desk.plugin.link_up(cast("Link", self.wire))

    def told(self, *answers: tuple[int, Answer]) -> None:
        self.desk.plugin.link_frame(cast("Link", self.wire), encode(Told(answers)))

    def numbers(self) -> list[int]:
        """Of what was asked in this turn."""
        self.clock.turn(0)
        return [number for number, _ in self.wire.frames[-1].questions]

    def asks(self, asked: Login, answer: Answer) -> Authenticated | AuthRefused:
        self.begin(asked)
        self.told((self.numbers()[0], answer))
        (found,) = self.owner.taken()
        assert isinstance(found, Authenticated | AuthRefused)
        return found

    def codes(self) -> list[int]:
        return [each.code for each in self.owner.taken() if isinstance(each, AuthRefused)]


@pytest.fixture
def at(tmp_path: Path) -> Plugged:
    return Plugged(tmp_path)


def test_whom_it_lets_in_is_who_it_says(at: Plugged) -> None:
    """With groups and attributes, and the prefix of this way."""
    found = at.asks(by_password(), Allowed(ANN.pack()))
    assert isinstance(found, Authenticated) and found.identity == ANN
    at.change(plugin=PluginSettings(user_prefix="p/"))
    found = at.asks(by_password(), Allowed(ANN.pack()))
    assert isinstance(found, Authenticated) and found.identity == replace(ANN, user="p/ann")


def test_who_shows_nothing_is_asked_about_too(at: Plugged) -> None:
    """And may be the anonymous one, without a prefix."""
    at.change(plugin=PluginSettings(user_prefix="p/"))
    found = at.asks(login(), Allowed(ANONYMOUS.pack()))
    assert isinstance(found, Authenticated) and found.identity == ANONYMOUS


@pytest.mark.parametrize(("said", "code"), [(0x87, 0x87), (0x8A, 0x8A), (0x00, BAD), (0x18, BAD), (0x1FF, BAD), (0x8E, BAD)])
def test_its_no_has_a_code_that_is_one(at: Plugged, said: int, code: int) -> None:
    """One that means yes, or something else, is a bad user name."""
    found = at.asks(by_password(), Denied(said))
    assert isinstance(found, AuthRefused) and found.code == code


def test_who_is_in_the_password_file_is_not_asked_about(at: Plugged) -> None:
    """Not even when his password is wrong."""
    at.write(f"ann:{pbkdf2()}")
    assert at.user(by_password()) == "ann" and at.user(by_password("ann", b"x")) == BAD
    at.clock.turn(0)
    assert at.wire.frames == []
    assert isinstance(at.asks(by_password("bob"), Denied(0x87)), AuthRefused)


def test_a_turn_is_a_frame(at: Plugged) -> None:
    """Answers may come in any order, and in several frames."""
    first, second, third = [at.begin(by_password(user)) for user in ("a", "b", "c")]
    one, two, three = at.numbers()
    assert len(at.wire.frames) == 1
    at.told((three, Denied(0x87)), (one, Denied(0x87)))
    at.told((two, Denied(0x87)))
    assert [each.socket for each in at.owner.taken() if isinstance(each, AuthRefused)] == [third, first, second]


def test_a_late_answer_is_a_no(at: Plugged) -> None:
    """At the deadline of each; what comes later means nothing."""
    at.begin(by_password("a"))
    number = at.numbers()[0]
    at.clock.turn(1.5)
    at.begin(by_password("b"))
    at.clock.turn(0.5)
    assert at.codes() == [AWAY]
    at.told((number, Allowed(ANN.pack())))
    assert at.owner.taken() == []
    at.clock.turn(1.5)
    assert at.codes() == [AWAY]


@pytest.mark.parametrize("answer", [Failed.RAISED, Failed.FULL, True, False, Allowed(b"\xc1"), Allowed(b"x" * 9_000)])
def test_what_makes_no_sense_is_a_no(at: Plugged, answer: Answer) -> None:
    """An identity of another form, the answer to another question, an error of its own."""
    found = at.asks(by_password(), answer)
    assert isinstance(found, AuthRefused) and found.code == AWAY


def test_a_name_of_the_wrong_form_is_a_no(at: Plugged) -> None:
    """As by every other way."""
    found = at.asks(by_password(), Allowed(Identity("a\nb", "plugin").pack()))
    assert isinstance(found, AuthRefused) and found.code == BAD


def test_a_frame_of_another_form_ends_the_link(at: Plugged) -> None:
    """And a question from there."""
    at.desk.plugin.link_frame(cast("Link", at.wire), b"\xc1")
    assert "frame" in at.wire.closed
    at.desk.plugin.link_frame(cast("Link", at.wire), encode(Ask(())))
    assert "questions" in at.wire.closed


def test_while_it_is_away_all_are_a_no_at_once(at: Plugged) -> None:
    """Those that waited, too; and when it is back they are asked."""
    at.begin(by_password())
    at.clock.turn(0)
    at.desk.plugin.link_down(cast("Link", at.wire))
    at.begin(by_password())
    assert at.codes() == [AWAY, AWAY]
    at.up()
    assert isinstance(at.asks(by_password(), Allowed(ANN.pack())), Authenticated)


def test_who_shows_nothing_is_refused_as_by_a_listener_while_it_is_away(at: Plugged) -> None:
    """So that whoever looks by such a CONNECT whether the gateway is at work sees that it is."""
    at.desk.plugin.link_down(cast("Link", at.wire))
    at.begin(login())
    assert at.codes() == [int(ReasonCode.NOT_AUTHORIZED)]


def test_so_many_wait_and_no_more(at: Plugged) -> None:
    """Further ones are a no."""
    at.change(plugin=PluginSettings(queue_max=3))
    for _ in range(5):
        at.begin(by_password())
    assert at.codes() == [BUSY, BUSY]


def test_five_failed_ones_open_the_breaker(at: Plugged) -> None:
    """For ten seconds nothing is asked, with an alarm; then one is tried, and whether it is answered decides."""
    for _ in range(FAILURES):
        at.begin(by_password())
    at.clock.turn(2)
    assert at.codes() == [AWAY] * FAILURES and ALARM in at.owner.alarms
    asked = len(at.wire.frames)
    for _ in range(50):
        at.begin(by_password())
    at.clock.turn(9.9)
    assert at.codes() == [AWAY] * 50 and len(at.wire.frames) == asked
    at.clock.turn(0.1)
    for _ in range(3):
        at.begin(by_password())
    assert at.codes() == [AWAY, AWAY] and len(at.numbers()) == 1
    at.clock.turn(2)
    assert at.codes() == [AWAY]
    at.clock.turn(OPEN_S)
    assert isinstance(at.asks(by_password(), Denied(BAD)), AuthRefused) and not at.owner.alarms
    assert isinstance(at.asks(by_password(), Allowed(ANN.pack())), Authenticated)


def test_a_no_is_no_failure(at: Plugged) -> None:
    """However often it comes; and what failed before it does not count any more."""
    for _ in range(20):
        at.asks(by_password(), Denied(BAD))
    for _ in range(FAILURES - 1):
        at.asks(by_password(), Failed.RAISED)
    at.asks(by_password(), Denied(BAD))
    at.asks(by_password(), Failed.RAISED)
    assert not at.owner.alarms


def test_late_ones_of_before_do_not_keep_it_open() -> None:
    """Those that were under way when it opened say nothing new."""
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.failed(0.0)
    breaker.failed(8.0)
    assert not breaker.allows(9.9) and breaker.allows(10.0) and not breaker.allows(10.0)
    breaker.succeeded()
    assert breaker.allows(10.0) and not breaker.is_open
