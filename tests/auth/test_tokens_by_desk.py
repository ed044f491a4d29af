"""Tokens by the desk: whose keys count, when they are fetched, and what is answered while there are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from access.tokens import TokenOptions
from actors.auth.keys import ALARM, RETRY_S, WAITING_MAX
from actors.auth.settings import TokenSettings
from gateway.events import Authenticated, AuthRefused
from mqtt.reason import ReasonCode
from tests.access.test_tokens import SECRET, jwk, token
from tests.auth.by_hand import NOW_S, At, by_password, login, token_settings

BAD, AWAY = int(ReasonCode.BAD_USER_NAME_OR_PASSWORD), int(ReasonCode.SERVER_UNAVAILABLE)
URL = "https://issuer.example/jwks.json"


def claims(**changed: Any) -> dict[str, Any]:
    return {"sub": "ann", "exp": NOW_S + 86_400} | changed


def signed(**changed: Any) -> bytes:
    return token("ES256", claims(**changed))


def by_secret(**changed: Any) -> bytes:
    return token("HS256", claims(**changed))


class Issuer(At):
    """A desk whose keys are at an address, and what is found there."""

    def __init__(self, tmp_path: Path, **changed: Any) -> None:
        self.found: bytes | Exception = json.dumps({"keys": [jwk("p256")]}).encode()
        self.asked = 0
        super().__init__(tmp_path, tokens=token_settings(url=URL, **changed))

    def fetched(self) -> None:
        """What is being fetched comes, or fails."""
        while self.fetchers.work:
            _, done = self.fetchers.work.pop(0)
            self.asked += 1
            done(self.found)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    found = Issuer(tmp_path)
    found.fetched()
    return found


@pytest.fixture
def secret(tmp_path: Path) -> At:
    return At(tmp_path, tokens=token_settings(data=SECRET))


def test_a_token_is_a_user_until_it_ends(secret: At) -> None:
    """With the leeway; how long that is goes with the answer."""
    found = secret.ask(login(password=by_secret(exp=NOW_S + 60, groups=["a"])))
    assert isinstance(found, Authenticated) and found.ends_in_ms == 90_000
    assert (found.identity.user, found.identity.how, found.identity.groups) == ("ann", "jwt", ("a",))
    secret.clock.turn(90)
    assert secret.user(login(password=by_secret(exp=NOW_S + 60))) == BAD


@pytest.mark.parametrize(("user", "wanted"), [(None, "t/ann"), ("", "t/ann"), ("ann", "t/ann"), ("t/ann", BAD), ("bob", BAD)])
def test_the_user_name_is_that_of_the_token(tmp_path: Path, user: str | None, wanted: str | int) -> None:
    """Or none."""
    options = TokenOptions(("HS256",), user_prefix="t/")
    at = At(tmp_path, tokens=TokenSettings(options, data=SECRET))
    assert at.user(login(user=user, password=by_secret())) == wanted


def test_a_token_that_is_not_good_is_asked_nobody_else(secret: At) -> None:
    """Not even the password file, in which its text may be a password; what is no token is a password."""
    bad = by_secret(exp=NOW_S - 60)
    secret.write(f"ann:{'$7$1$AAECAwQFBgcICQoLDA0ODw==$' + 'A' * 86 + '=='}")
    assert secret.user(login(user="ann", password=bad)) == BAD and secret.user(by_password("ann")) == BAD
    found = secret.ask(login(user="ann", password=bad))
    assert isinstance(found, AuthRefused) and "ended" in found.cause


def test_keys_that_are_none_let_nobody_in(tmp_path: Path) -> None:
    """And somebody is told, until they are some."""
    at = At(tmp_path, tokens=token_settings(data=b"too short"))
    assert at.user(login(password=by_secret())) == AWAY and "9 bytes" in at.owner.alarms[ALARM]
    at.change(tokens=token_settings(data=SECRET))
    assert at.user(login(password=by_secret())) == "ann" and not at.owner.alarms


def test_before_the_first_fetch_tokens_wait_for_it(tmp_path: Path) -> None:
    """And are read when it has come."""
    at = Issuer(tmp_path)
    at.begin(login(password=signed()))
    assert at.owner.taken() == []
    at.fetched()
    assert [type(each) for each in at.owner.taken()] == [Authenticated] and at.asked == 1


def test_a_set_is_fetched_again_and_again(issuer: Issuer) -> None:
    """Every refresh_s."""
    issuer.clock.turn(299)
    issuer.fetched()
    assert issuer.asked == 1
    for _ in range(3):
        issuer.clock.turn(300)
        issuer.fetched()
    assert issuer.asked == 4


def test_a_key_that_nobody_knows_is_looked_for(issuer: Issuer) -> None:
    """The issuer may have a new one: the token waits for the set."""
    issuer.clock.turn(RETRY_S)
    issuer.begin(login(password=token("EdDSA", claims())))
    issuer.found = json.dumps({"keys": [jwk("p256"), jwk("ed")]}).encode()
    assert issuer.owner.taken() == []
    issuer.fetched()
    assert [type(each) for each in issuer.owner.taken()] == [Authenticated]


def test_made_up_keys_make_no_flood_of_fetches(issuer: Issuer) -> None:
    """At most one in ten seconds, whatever comes; those beyond are a no at once."""
    for second in range(30):
        issuer.clock.turn(1)
        for number in range(10):
            issuer.begin(login(password=token("ES256", claims(), key_id=f"{second}-{number}")))
        issuer.fetched()
    assert issuer.asked <= 4
    assert {each.code for each in issuer.owner.taken() if isinstance(each, AuthRefused)} == {BAD}


def test_so_many_tokens_wait_and_no_more(tmp_path: Path) -> None:
    """Further ones are told that the server cannot say."""
    at = Issuer(tmp_path)
    for _ in range(WAITING_MAX + 1):
        at.begin(login(password=signed()))
    (found,) = at.owner.taken()
    assert isinstance(found, AuthRefused) and found.code == AWAY


def test_while_none_can_be_fetched_the_last_set_counts_for_a_while(issuer: Issuer) -> None:
    """With an alarm; then no token does, until there is one again."""
    issuer.found = TimeoutError("timed out")
    issuer.clock.turn(300)
    issuer.fetched()
    assert issuer.user(login(password=signed())) == "ann" and "timed out" in issuer.owner.alarms[ALARM]
    for _ in range(360):
        issuer.clock.turn(RETRY_S)
        issuer.fetched()
    assert issuer.user(login(password=signed())) == "ann"
    issuer.clock.turn(1)
    assert issuer.user(login(password=signed())) == AWAY
    issuer.found = json.dumps({"keys": [jwk("p256")]}).encode()
    issuer.clock.turn(RETRY_S)
    issuer.fetched()
    assert issuer.user(login(password=signed())) == "ann" and not issuer.owner.alarms


def test_a_failed_fetch_is_tried_again_soon(issuer: Issuer) -> None:
    """Every ten seconds, and not five minutes later."""
    issuer.found = b'{"keys": []}'
    issuer.clock.turn(300)
    issuer.fetched()
    for _ in range(3):
        issuer.clock.turn(RETRY_S)
        issuer.fetched()
    assert issuer.asked == 5


def test_keys_of_another_address_are_others(issuer: Issuer) -> None:
    """Those of the former one count no more, and a fetch of it that comes late is not taken."""
    issuer.clock.turn(300)
    assert issuer.settings.tokens is not None
    issuer.change(tokens=replace(issuer.settings.tokens, url="https://other.example/"))
    _, done = issuer.fetchers.work.pop(0)
    done(issuer.found)
    issuer.begin(login(password=signed()))
    assert issuer.owner.taken() == [] and len(issuer.fetchers.work) == 1
    issuer.found = OSError("no route")
    issuer.fetched()
    (found,) = issuer.owner.taken()
    assert isinstance(found, AuthRefused) and found.code == AWAY


def test_other_settings_of_the_same_keys_fetch_nothing(issuer: Issuer) -> None:
    """They count at once."""
    assert issuer.settings.tokens is not None
    issuer.change(tokens=replace(issuer.settings.tokens, options=TokenOptions(("ES256",), issuer="us")))
    assert not issuer.fetchers.work and issuer.user(login(password=signed())) == BAD
    assert issuer.user(login(password=signed(iss="us"))) == "ann"


def test_tokens_that_are_switched_off_are_passwords(issuer: Issuer) -> None:
    """And who waited for keys is told."""
    issuer.clock.turn(RETRY_S)
    issuer.begin(login(password=token("EdDSA", claims())))
    issuer.change(tokens=None)
    issuer.fetched()
    assert [type(each) for each in issuer.owner.taken()] == [AuthRefused]
    assert issuer.user(login(password=signed())) == BAD and not issuer.clock.planned
