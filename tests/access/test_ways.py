"""What CONNECT carries decides who is asked: the table of docs/access.md, row by row and against each other."""

from __future__ import annotations

import itertools
import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from access.login import Login
from access.ways import Refused, Way, Ways, way_of
from mqtt.reason import ReasonCode

TOKEN = urlsafe_b64encode(json.dumps({"alg": "ES256"}).encode()).rstrip(b"=") + b".e30.AA"
BAD, NOT_AUTHORIZED, METHOD = ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED, ReasonCode.BAD_AUTHENTICATION_METHOD
EVERY = Ways({"ann"}, tokens=True, plugin=True)
NOBODY = Ways()


def login(**shown: Any) -> Login:
    given: dict[str, Any] = {"user": None, "password": None, "method": None, "names": (), "serial": "", "takes_certificate": False} | shown
    return Login(client="c", version=5, data=b"", listener="tcp", address="192.0.2.1", loopback=False, **given)


def answer(found: Way | Refused) -> Way | ReasonCode:
    return found.code if isinstance(found, Refused) else found


@pytest.mark.parametrize(
    ("shown", "ways", "wanted"),
    [
        ({"method": "SCRAM-SHA-256", "user": "ann", "password": TOKEN}, EVERY, Way.SCRAM),
        ({"method": "SCRAM-SHA-256"}, NOBODY, METHOD),
        ({"method": "SCRAM-SHA-1"}, EVERY, METHOD),
        ({"method": ""}, EVERY, METHOD),
        ({"takes_certificate": True, "names": ("ann",), "serial": "0A"}, EVERY, Way.CERTIFICATE),
        ({"takes_certificate": True, "names": ("ann",), "serial": "0A", "user": "ann", "password": TOKEN}, EVERY, Way.CERTIFICATE),
        ({"takes_certificate": True, "serial": "0A"}, EVERY, Way.CERTIFICATE),
        ({"takes_certificate": True}, EVERY, Way.PLUGIN),
        ({"takes_certificate": True}, NOBODY, NOT_AUTHORIZED),
        ({"names": ("ann",), "serial": "0A"}, NOBODY, NOT_AUTHORIZED),
        ({"password": TOKEN}, EVERY, Way.TOKEN),
        ({"password": TOKEN, "user": "ann"}, EVERY, Way.TOKEN),
        ({"password": TOKEN, "user": "ann"}, Ways({"ann"}), Way.PASSWORD),
        ({"password": TOKEN}, NOBODY, BAD),
        ({"user": "ann", "password": b"x"}, EVERY, Way.PASSWORD),
        ({"user": "ann"}, EVERY, Way.PASSWORD),
        ({"user": "bob", "password": b"x"}, EVERY, Way.PLUGIN),
        ({"user": "bob", "password": b"x"}, Ways({"ann"}), Way.PASSWORD),
        ({"user": "", "password": b"x"}, Ways(set()), Way.PASSWORD),
        ({"password": b"x"}, Ways({"ann"}), BAD),
        ({"user": "bob"}, NOBODY, BAD),
        ({"user": ""}, NOBODY, BAD),
        ({"password": b""}, NOBODY, BAD),
        ({}, EVERY, Way.PLUGIN),
        ({}, Ways({"ann"}, tokens=True), NOT_AUTHORIZED),
    ],
)
def test_one_is_asked(shown: dict[str, Any], ways: Ways, wanted: Way | ReasonCode) -> None:
    """The first row that fits."""
    assert answer(way_of(login(**shown), ways)) == wanted


@pytest.mark.parametrize(
    ("allowed", "loopback", "wanted"),
    [
        ("yes", False, Way.ANONYMOUS),
        ("yes", True, Way.ANONYMOUS),
        ("loopback", True, Way.ANONYMOUS),
        ("loopback", False, NOT_AUTHORIZED),
        ("no", True, NOT_AUTHORIZED),
        ("something", True, NOT_AUTHORIZED),
    ],
)
def test_who_shows_nothing_is_let_in_by_the_listener(allowed: str, loopback: bool, wanted: Way | ReasonCode) -> None:
    """And by nothing else; a word that nobody knows lets nobody in."""
    asked = Login("c", 4, None, None, None, b"", "tcp", "127.0.0.1", loopback, (), "", False)
    assert answer(way_of(asked, Ways(anonymous={"tcp": allowed}))) == wanted


def test_a_listener_of_which_nothing_is_said_takes_its_own_machine() -> None:
    """The default of the settings is the default here."""
    asked = Login("c", 4, None, None, None, b"", "tcp", "127.0.0.1", True, (), "", False)
    assert way_of(asked, NOBODY) is Way.ANONYMOUS


def test_nobody_becomes_anonymous_by_showing_something() -> None:
    """Whatever else is wrong with it: a failed login is no anonymous one, on a listener that takes everybody."""
    users, passwords = (None, "", "ann", "bob"), (None, b"", b"x", TOKEN)
    kinds = itertools.product((None, set(), {"ann"}), (False, True), (False, True), (False, True))
    for known, tokens, plugin, takes in kinds:
        ways = Ways(known, tokens, plugin, {"tcp": "yes"})
        for user, password, method, serial in itertools.product(users, passwords, (None, "X"), ("", "0A")):
            shows = user is not None or password is not None or method is not None or (takes and serial != "")
            asked = login(user=user, password=password, method=method, serial=serial, takes_certificate=takes)
            if shows or plugin:
                assert way_of(asked, ways) is not Way.ANONYMOUS
