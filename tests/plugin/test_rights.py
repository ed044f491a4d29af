"""Questions to a plugin whether somebody may, by the desk: each has one answer in time, which may be that there is none."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from access.asked import Asked
from access.identity import Identity
from actors.auth.breaker import FAILURES
from actors.auth.questions import ALARM
from actors.auth.settings import PluginSettings
from actors.links import Link
from actors.plugin.frames import Allowed, Answer, Denied, Failed, Invalidate, encode
from gateway.events import AuthRefused, RightsForgotten, RightTold
from tests.auth.by_hand import by_password
from tests.plugin.test_logins import BUSY, Plugged

ASKED = Asked(Identity("ann", "plugin"), "c", "publish", "a/b")
KEY = (1, b"a/b")


@pytest.fixture
def at(tmp_path: Path) -> Plugged:
    return Plugged(tmp_path)


def ask(at: Plugged, asker: int = 1) -> None:
    at.desk.rights.ask(asker, KEY, ASKED)


def heard(at: Plugged) -> list[RightTold]:
    return [each for each in at.owner.taken() if isinstance(each, RightTold)]


@pytest.mark.parametrize(
    ("said", "allow", "answered"),
    [
        (True, True, True),
        (False, False, True),
        (Failed.RAISED, False, True),
        (Failed.FULL, False, False),
        (Denied(0x87), False, False),
        (Allowed(b""), False, False),
    ],
)
def test_nothing_but_yes_is_a_yes(at: Plugged, said: Answer, allow: bool, answered: bool) -> None:
    """Who raises has said no; who has no room for the question, or says something else, has said nothing."""
    ask(at)
    at.told((at.numbers()[0], said))
    assert heard(at) == [RightTold(1, KEY, allow, answered)]


def test_what_is_asked_is_what_the_plugin_gets(at: Plugged) -> None:
    """Logins and rights of a turn are one frame."""
    at.begin(by_password())
    ask(at)
    at.numbers()
    assert len(at.wire.frames) == 1 and at.wire.frames[0].questions[1][1] == ASKED


def test_a_late_answer_is_none(at: Plugged) -> None:
    """At the deadline, once; what comes later means nothing."""
    ask(at)
    (number,) = at.numbers()
    at.clock.turn(1.9)
    assert heard(at) == []
    at.clock.turn(0.2)
    at.told((number, True))
    assert heard(at) == [RightTold(1, KEY, False, False)]


def test_a_plugin_that_is_away_answers_nothing(at: Plugged) -> None:
    """Neither what it was asked, nor what it is asked then."""
    ask(at, 1)
    at.numbers()
    at.desk.plugin.link_down(cast("Link", at.wire))
    ask(at, 2)
    assert heard(at) == [RightTold(1, KEY, False, False), RightTold(2, KEY, False, False)]


def test_questions_of_a_kind_wait_in_a_queue_of_their_own(at: Plugged) -> None:
    """Many about rights keep nobody from coming in, nor many logins anybody who is there from publishing."""
    at.change(plugin=PluginSettings(queue_max=2))
    for asker in (1, 2, 3):
        ask(at, asker)
    assert heard(at) == [RightTold(3, KEY, False, False)]
    for user in ("a", "b", "c"):
        at.begin(by_password(user))
    assert [each.code for each in at.owner.taken() if isinstance(each, AuthRefused)] == [BUSY]
    assert len(at.numbers()) == 4


def test_after_many_failures_nothing_is_asked_for_a_while(at: Plugged) -> None:
    """The breaker is that of logins, too; a topic that makes a plugin raise does not open it."""
    for failed in (Failed.RAISED, Failed.FULL):
        assert not at.owner.alarms
        for _ in range(FAILURES):
            ask(at)
            at.told((at.numbers()[0], failed))
    assert ALARM in at.owner.alarms and len(heard(at)) == 2 * FAILURES
    ask(at)
    assert heard(at) == [RightTold(1, KEY, False, False)]


def test_a_changed_mind_is_told(at: Plugged) -> None:
    """Plugins were loaded anew: what was said before counts no more."""
    at.desk.plugin.link_frame(cast("Link", at.wire), encode(Invalidate(None)))
    assert at.owner.taken() == [RightsForgotten()]
