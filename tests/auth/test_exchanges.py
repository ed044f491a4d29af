"""SCRAM by the desk: two rounds of AUTH, whoever asks, and what ends them."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from access.identity import Identity
from access.login import Login
from gateway.events import AuthChallenged, Authenticated, AuthRefused, IdentitiesRevoked
from mqtt.reason import ReasonCode
from tests.auth.by_hand import At, login, scram

BAD, BUSY = int(ReasonCode.BAD_USER_NAME_OR_PASSWORD), int(ReasonCode.SERVER_BUSY)


class Client:
    """The client's side of an exchange, as RFC 5802 has it."""

    def __init__(self, user: str = "ann", password: str = "secret") -> None:
        self.user, self.password = user, password
        self.bare = f"n={user},r=fyko+d2lbbFgONRv9qkxdawL"

    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={fields['r']}"
        self.signed = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), self.signed, "sha256")
        self.server_key = hmac.digest(salted, b"Server Key", "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def is_server(self, last: bytes | None) -> bool:
        return last == b"v=" + b64encode(hmac.digest(self.server_key, self.signed, "sha256"))


@pytest.fixture
def at(tmp_path: Path) -> At:
    at = At(tmp_path)
    at.write(f"ann:{scram('secret')}", user_prefix="s/")
    return at


def by_scram(data: bytes = b"", user: str | None = None) -> Login:
    return login(method="SCRAM-SHA-256", data=data, user=user)


def challenged(at: At, asked: Login) -> tuple[int, bytes]:
    found = at.ask(asked)
    assert isinstance(found, AuthChallenged)
    return found.socket, found.data


def proved(at: At, client: Client) -> Authenticated | AuthRefused:
    socket, challenge = challenged(at, by_scram(client.first()))
    at.desk.go_on(socket, 1, client.final(challenge))
    (found,) = at.owner.taken()
    assert isinstance(found, Authenticated | AuthRefused)
    return found


def test_who_proves_to_know_the_password_is_let_in(at: At) -> None:
    """And is shown that the server knows it too."""
    client = Client()
    found = proved(at, client)
    assert isinstance(found, Authenticated) and found.identity == Identity("s/ann", "scram") and client.is_server(found.data)


def test_the_first_message_may_come_later(at: At) -> None:
    """With CONNECT, or as the answer to a challenge without a word."""
    client = Client()
    socket, nothing = challenged(at, by_scram())
    assert nothing == b""
    at.desk.go_on(socket, 1, client.first())
    (found,) = at.owner.taken()
    assert isinstance(found, AuthChallenged)
    at.desk.go_on(socket, 1, client.final(found.data))
    assert isinstance(at.owner.taken()[0], Authenticated)


def test_another_password_is_a_no(at: At) -> None:
    """So is a user who is not there, who is challenged all the same."""
    for client in (Client(password="wrong"), Client("bob")):
        found = proved(at, client)
        assert isinstance(found, AuthRefused) and found.code == BAD


@pytest.mark.parametrize("data", [b"n,,n=ann", b"p=tls-unique,,n=ann,r=x", b"\xff", b"y" * 3_000])
def test_what_is_no_first_message_is_a_no(at: At, data: bytes) -> None:
    """At once."""
    found = at.ask(by_scram(data))
    assert isinstance(found, AuthRefused) and found.code == BAD


def test_the_user_name_of_connect_is_nobody_else(at: At) -> None:
    """What was chosen by it, as a zone, is that of the user who proves."""
    assert isinstance(at.ask(by_scram(Client().first(), "ann")), AuthChallenged)
    assert isinstance(at.ask(by_scram(Client().first(), "")), AuthChallenged)
    assert isinstance(at.ask(by_scram(Client().first(), "bob")), AuthRefused)


def test_an_exchange_ends_with_its_proof(at: At) -> None:
    """Nothing goes on from there, right or wrong; and nothing goes on that was not begun."""
    client = Client(password="wrong")
    socket, challenge = challenged(at, by_scram(client.first()))
    final = client.final(challenge)
    at.desk.go_on(socket, 1, final)
    at.desk.go_on(socket, 1, final)
    at.desk.go_on(99, 1, final)
    assert len(at.owner.taken()) == 1


def test_a_proof_of_a_former_attempt_means_nothing(at: At) -> None:
    """The exchange that is under way goes on."""
    client = Client()
    socket, challenge = challenged(at, by_scram(client.first()))
    at.desk.ask(socket, 2, by_scram(client.first()))
    at.desk.go_on(socket, 1, client.final(challenge))
    (found,) = at.owner.taken()
    assert isinstance(found, AuthChallenged) and found.attempt == 2


def test_a_proof_counts_by_the_entry_in_force(at: At) -> None:
    """One that was changed meanwhile is of nobody."""
    client = Client()
    socket, challenge = challenged(at, by_scram(client.first()))
    at.write(f"ann:{scram('new')}")
    revoked, *_ = at.owner.taken()
    assert revoked == IdentitiesRevoked(frozenset({"s/ann"}), frozenset())
    at.desk.go_on(socket, 1, client.final(challenge))
    (found,) = at.owner.taken()
    assert isinstance(found, AuthRefused) and found.code == BAD


def test_who_guesses_waits(at: At) -> None:
    """For his next challenge; and exchanges that were begun before it do not go on meanwhile."""
    begun = [(Client(password=f"guess {number}"), 0, b"") for number in range(20)]
    for number, (client, _, _) in enumerate(begun):
        begun[number] = (client, *challenged(at, by_scram(client.first())))
    for client, socket, challenge in begun:
        at.desk.go_on(socket, 1, client.final(challenge))
    codes = [each.code for each in at.owner.taken() if isinstance(each, AuthRefused)]
    assert codes == [BAD] * 5 + [BUSY] * 15
    at.begin(by_scram(Client().first()))
    assert at.owner.taken() == []
    at.clock.turn(1.0)
    assert isinstance(at.owner.taken()[0], AuthChallenged)


def test_who_is_gone_leaves_no_exchange(at: At) -> None:
    """It is not gone on with."""
    client = Client()
    socket, challenge = challenged(at, by_scram(client.first()))
    at.desk.forget(socket)
    at.desk.go_on(socket, 1, client.final(challenge))
    assert at.owner.taken() == []


def test_what_has_no_exchange_does_not_go_on(tmp_path: Path) -> None:
    """A word more about a token that waits for its keys is a mistake of the protocol."""
    at = At(tmp_path)
    at.desk.ask(1, 1, login(method="SCRAM-SHA-256", data=b"x"))
    (found,) = at.owner.taken()
    assert isinstance(found, AuthRefused) and found.code == ReasonCode.BAD_AUTHENTICATION_METHOD
