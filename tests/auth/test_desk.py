"""The desk: who is let in by what, what is refused, and what of it waits, counts or is forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from access.identity import ANONYMOUS, Identity
from access.passwords import Cost, cost
from actors.auth.settings import PasswordSettings
from gateway.events import Authenticated, AuthRefused, IdentitiesRevoked
from mqtt.reason import ReasonCode
from tests.access.test_passwords import pbkdf2
from tests.auth.by_hand import At, by_password, dear, login

BAD, BUSY, AWAY = int(ReasonCode.BAD_USER_NAME_OR_PASSWORD), int(ReasonCode.SERVER_BUSY), int(ReasonCode.SERVER_UNAVAILABLE)
CHEAP = pbkdf2(b"secret")


@pytest.fixture
def at(tmp_path: Path) -> At:
    return At(tmp_path)


@pytest.mark.parametrize("entry", [CHEAP, dear(b"secret")], ids=["cheap", "dear"])
def test_a_right_password_lets_its_user_in(at: At, entry: str) -> None:
    """And a wrong one, none, an empty one, and that of another user do not."""
    at.write(f"ann:{entry}", f"bob:{pbkdf2(b'other')}")
    assert at.ask(by_password()) == Authenticated(1, 1, Identity("ann", "password"))
    assert [at.user(by_password("ann", password)) for password in (b"wrong", None, b"", b"other")] == [BAD] * 4


def test_without_a_file_no_password_is_right(at: At) -> None:
    """And who shows nothing is still let in by its listener."""
    assert at.user(by_password()) == BAD
    assert at.ask(login()) == Authenticated(2, 1, ANONYMOUS)


def test_a_user_who_is_not_there_costs_what_one_costs_who_is(at: At) -> None:
    """His password is checked all the same, against an entry that no password fits."""
    at.write(f"ann:{dear(b'secret')}")
    for user in ("ann", "nobody"):
        before = at.checkers.ran
        assert at.user(by_password(user, b"wrong")) == BAD
        assert at.checkers.ran == before + 1


def test_what_was_right_needs_no_thread_again(at: At) -> None:
    """For remember_s; what was wrong is asked again each time."""
    at.write(f"ann:{dear(b'secret')}")
    assert [at.user(by_password()) for _ in range(3)] == ["ann"] * 3 and at.checkers.ran == 1
    at.clock.turn(3_601)
    assert at.user(by_password()) == "ann" and at.checkers.ran == 2
    at.change(passwords=replace(at.settings.passwords, remember_s=0))
    assert at.user(by_password()) == "ann" and at.checkers.ran == 3


def test_every_user_has_its_prefix(at: At) -> None:
    """Before the name that comes out; the file has it without."""
    at.write(f"ann:{CHEAP}", user_prefix="pw/")
    assert at.user(by_password()) == "pw/ann" and at.user(by_password("pw/ann")) == BAD


def test_a_name_with_its_prefix_is_a_name(at: At) -> None:
    """No longer than names are."""
    at.write(f"{'a' * 250}:{CHEAP}", user_prefix="prefix/")
    assert at.user(by_password("a" * 250)) == BAD


def test_a_changed_entry_throws_out_who_came_in_by_it(at: At) -> None:
    """So does one that is gone; one that is new, or the same, does nothing."""
    at.write(f"ann:{CHEAP}", f"bob:{CHEAP}", f"eve:{CHEAP}")
    at.owner.taken()
    at.write(f"ann:{pbkdf2(b'new')}", f"eve:{CHEAP}", f"zoe:{CHEAP}")
    assert at.owner.taken() == [IdentitiesRevoked(frozenset({"ann", "bob"}), frozenset())]
    at.change(passwords=PasswordSettings())
    assert at.owner.taken() == [IdentitiesRevoked(frozenset({"ann", "eve", "zoe"}), frozenset())]
    assert at.user(by_password("eve")) == BAD


def test_a_remembered_password_is_that_of_its_entry(at: At) -> None:
    """The former one lets nobody in, however often it did."""
    at.write(f"ann:{dear(b'secret')}")
    assert at.user(by_password()) == "ann"
    at.write(f"ann:{dear(b'new')}")
    assert at.user(by_password()) == BAD and at.user(by_password("ann", b"new")) == "ann"


def test_a_password_counts_by_the_entry_in_force_when_it_was_checked(at: At) -> None:
    """Right by the former one, it is looked at again."""
    at.write(f"ann:{dear(b'secret')}")
    at.begin(by_password())
    at.write(f"ann:{dear(b'new')}")
    at.owner.taken()
    at.checkers.all()
    (found,) = at.owner.taken()
    assert isinstance(found, AuthRefused) and at.checkers.ran == 2


def test_a_file_that_is_not_the_one_in_force_changes_nothing(at: At) -> None:
    """It was written after it was looked at: the next look says what becomes of it."""
    at.write(f"ann:{CHEAP}")
    at.path.write_text("ann:secret\n")
    at.change(passwords=replace(at.settings.passwords, sha256="0" * 64))
    at.fetchers.all()
    assert at.user(by_password()) == "ann"


def test_versions_that_come_fast_end_with_the_newest(at: At) -> None:
    """However long the first takes to be read."""
    at.write(f"ann:{CHEAP}")
    first = at.settings.passwords
    at.write(f"bob:{CHEAP}")
    at.change(passwords=first)
    at.change(passwords=replace(first, file="", sha256=""))
    at.fetchers.all()
    assert at.user(by_password("ann")) == BAD and at.user(by_password("bob")) == BAD


def test_who_is_ready_says_so(at: At) -> None:
    """When the file was read; at once where there is none."""
    said: list[str] = []
    at.desk.when_ready(lambda: said.append("none"))
    at.path.write_text("")
    at.change(passwords=PasswordSettings(str(at.path), "0" * 64))
    at.desk.when_ready(lambda: said.append("read"))
    assert said == ["none"]
    at.fetchers.all()
    assert said == ["none", "read"]


def test_nobody_is_answered_who_was_forgotten(at: At) -> None:
    """Before it was checked, and while it was."""
    at.write(f"ann:{dear(b'secret')}", f"bob:{dear(b'secret')}")
    working, waiting = at.begin(by_password()), at.begin(by_password("bob"))
    at.desk.forget(waiting)
    at.desk.forget(working)
    at.checkers.all()
    assert at.owner.taken() == [] and at.checkers.ran == 1


def test_a_newer_attempt_takes_the_place_of_the_former(at: At) -> None:
    """Which is not answered."""
    at.write(f"ann:{dear(b'secret')}")
    at.desk.ask(7, 1, by_password("ann", b"wrong"))
    at.desk.ask(7, 2, by_password())
    at.checkers.all()
    assert at.owner.taken() == [Authenticated(7, 2, Identity("ann", "password"))]


def test_one_thread_works_at_a_time_and_more_by_the_settings(at: At) -> None:
    """The others wait in the queue, whose bound is known."""
    at.write(f"ann:{dear(b'secret')}")
    for number in range(5):
        at.begin(by_password(address=f"192.0.2.{number}"))
    assert len(at.checkers.work) == 1
    at.change(passwords=replace(at.settings.passwords, threads=3))
    assert len(at.checkers.work) == 3


def test_a_full_queue_is_a_no_at_once(at: At) -> None:
    """For the source that has its tenth; another one is served in its turn."""
    at.write(f"ann:{dear(b'secret')}", queue_max=20)
    for _ in range(3):  # one works, two wait
        at.begin(by_password("ann", b"wrong", address="192.0.2.1"))
    full = at.begin(by_password("ann", b"wrong", address="192.0.2.1"))
    (found,) = at.owner.taken()
    assert isinstance(found, AuthRefused) and (found.socket, found.code) == (full, BUSY)
    other = at.begin(by_password(address="192.0.2.2"))
    for _ in range(3):
        at.checkers.one()
    assert other in [each.socket for each in at.owner.taken() if isinstance(each, Authenticated)]


def test_what_cannot_be_checked_is_no_yes(at: At) -> None:
    """As when there is no memory for it: the server's fault, and not counted as wrong."""
    at.write(f"ann:{dear(b'secret')}")
    for _ in range(6):
        at.begin(by_password())
        at.checkers.one(fails=MemoryError())
        (found,) = at.owner.taken()
        assert isinstance(found, AuthRefused) and found.code == AWAY
    assert at.user(by_password()) == "ann"


@pytest.mark.parametrize("entry", [CHEAP, dear(b"secret")], ids=["cheap", "dear"])
def test_after_five_wrong_ones_the_next_waits(at: At, entry: str) -> None:
    """A right one too, as nobody may know that it is; then it is looked at.  Another address does not wait."""
    at.write(f"ann:{entry}")
    assert [at.user(by_password("ann", b"wrong")) for _ in range(5)] == [BAD] * 5
    at.begin(by_password())
    at.checkers.all()
    assert at.owner.taken() == []
    assert at.user(by_password(address="192.0.2.1")) == "ann"
    at.clock.turn(1.0)
    at.checkers.all()
    (found,) = at.owner.taken()
    assert isinstance(found, Authenticated)


def test_of_a_flood_one_waits(at: At) -> None:
    """The others are told to come later, at once and unchecked: five and one were looked at, of a thousand."""
    at.write(f"ann:{dear(b'secret')}")
    for _ in range(5):
        at.user(by_password("ann", b"wrong"))
    for _ in range(1_000):
        at.begin(by_password("ann", b"wrong"))
    found = at.owner.taken()
    assert len(found) == 999 and {each.code for each in found if isinstance(each, AuthRefused)} == {BUSY}
    at.clock.turn(1.0)
    at.checkers.all()
    assert at.checkers.ran == 6


def test_who_would_wait_longer_than_he_may_is_told_so_at_once(at: At) -> None:
    """Within access.deadline he waits, beyond it he is told."""
    at.write(f"ann:{CHEAP}")
    for _ in range(8):  # four at once, then after 1, 2 and 4 s
        at.clock.turn(at.settings.deadline_s)
        at.begin(by_password("ann", b"wrong"))
    assert [each.code for each in at.owner.taken() if isinstance(each, AuthRefused)] == [BAD] * 8
    at.begin(by_password("ann", b"wrong"))
    (found,) = at.owner.taken()
    assert isinstance(found, AuthRefused) and found.code == BUSY and not at.clock.planned


def test_one_who_gave_up_waiting_keeps_nobody_from_it(at: At) -> None:
    """His place is free."""
    at.write(f"ann:{CHEAP}")
    for _ in range(5):
        at.user(by_password("ann", b"wrong"))
    at.desk.forget(at.begin(by_password()))
    at.begin(by_password())
    assert at.owner.taken() == []
    at.clock.turn(1.0)
    assert [type(each) for each in at.owner.taken()] == [Authenticated]


@pytest.mark.parametrize(
    ("names", "user", "wanted"),
    [
        (("meter-7",), None, "x/meter-7"),
        (("meter-7",), "meter-7", "x/meter-7"),
        (("meter-7",), "meter-8", BAD),
        (("meter-7",), "", BAD),
        ((), None, BAD),
        (("a", "b"), None, BAD),
        (("a\nb",), None, BAD),
    ],
)
def test_a_certificate_is_one_name(tmp_path: Path, names: tuple[str, ...], user: str | None, wanted: str | int) -> None:
    """Of whoever it says, and of nobody else."""
    at = At(tmp_path, certificate_prefix="x/")
    found = at.ask(login(user=user, names=names, serial="0A1B", takes_certificate=True))
    if isinstance(found, Authenticated):
        assert found.identity == Identity(str(wanted), "certificate", attributes=(("serial", "0A1B"),))
    else:
        assert isinstance(found, AuthRefused) and found.code == wanted


def test_entries_of_these_tests_cost_what_they_are_to_cost() -> None:
    """One is checked at once, the other in a thread."""
    assert (cost(CHEAP), cost(dear(b"secret"))) == (Cost.CHEAP, Cost.DEAR)
