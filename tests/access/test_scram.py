"""SCRAM-SHA-256: the example of RFC 7677, whole exchanges with a client of our own, and every message that ends one."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.scram import ITERATIONS_MIN, SCRAM_PREFIX, ScramEntry, ScramError, ScramServer, parse_scram, scram_entry

# RFC 7677, 3.
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"

PENCIL = scram_entry("pencil", SALT)
USERS = {"user": PENCIL}
SECRET = b"of this data directory"


def server(users: dict[str, ScramEntry] | None = None, nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(USERS if users is None else users, SECRET, nonce)


@cache
def salted_password(password: bytes, salt: bytes, iterations: int) -> bytes:
    """The dear part, which is the same for one password and salt."""
    return hashlib.pbkdf2_hmac("sha256", password, salt, iterations)


def answer(password: bytes, client_first: bytes, server_first: bytes, extensions: bytes = b"") -> tuple[bytes, bytes]:
    """(client's final message, the server's final message it waits for), by the words of RFC 5802, 3."""
    nonce, salt, iterations = (part[2:] for part in server_first.split(b","))
    header, bare = client_first[:3], client_first[3:]
    salted = salted_password(password, b64decode(salt), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    plain = b"c=" + b64encode(header) + b",r=" + nonce + extensions
    signed = bare + b"," + server_first + b"," + plain
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    verifier = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
    return plain + b",p=" + b64encode(proof), b"v=" + b64encode(verifier)


def test_the_example_of_rfc_7677() -> None:
    """All four messages, byte by byte."""
    exchange = server()
    assert exchange.first(CLIENT_FIRST) == SERVER_FIRST
    assert exchange.final(CLIENT_FINAL) == ("user", SERVER_FINAL)


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b"n,,n=user,r=abc", "user"),
        (b"y,,n=user,r=abc", "user"),
        (b"n,,n=a=2Cb=3Dc,r=abc", "a,b=c"),
        (b"n,,n==2C=2C=3D2C,r=abc", ",,=2C"),
        ("n,,n=Zoë,r=~!".encode(), "Zoë"),
        (b"n,,n=user,r=abc,x=1,Y=a=b", "user"),
        (b"n,,n=user,r=" + b"r" * 256, "user"),
    ],
)
def test_who_knows_the_password_comes_in(first: bytes, name: str) -> None:
    """The client finds that the server knows it too."""
    exchange = server({name: PENCIL, "other": PENCIL})
    final, wanted = answer(b"pencil", first, exchange.first(first))
    assert exchange.claimed == name
    assert exchange.final(final) == (name, wanted)


def test_extensions_of_the_final_message_are_signed_and_mean_nothing() -> None:
    """A client may add them; who else does, on the way, breaks the proof."""
    exchange = server()
    final, wanted = answer(b"pencil", CLIENT_FIRST, exchange.first(CLIENT_FIRST), b",x=1")
    assert b",x=1,p=" in final and exchange.final(final) == ("user", wanted)
    exchange = server()
    final, _ = answer(b"pencil", CLIENT_FIRST, exchange.first(CLIENT_FIRST))
    with pytest.raises(ScramError, match="the proof does not fit"):
        exchange.final(final.replace(b",p=", b",x=1,p="))


@pytest.mark.parametrize("password", [b"", b"Pencil", b"pencil ", b"pencil\x00a"])
def test_a_wrong_password_does_not(password: bytes) -> None:
    """With a message that is right in everything but its proof."""
    exchange = server()
    final, _ = answer(password, CLIENT_FIRST, exchange.first(CLIENT_FIRST))
    with pytest.raises(ScramError, match="the proof does not fit the password"):
        exchange.final(final)


def test_what_the_file_holds_is_no_password() -> None:
    """Neither the stored key nor the server key, given as the client key, makes a proof."""
    for stolen in (PENCIL.stored_key, PENCIL.server_key):
        exchange = server()
        signed = CLIENT_FIRST[3:] + b"," + exchange.first(CLIENT_FIRST) + b"," + CLIENT_FINAL.rpartition(b",p=")[0]
        signature = hmac.digest(PENCIL.stored_key, signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(stolen, signature, strict=True))
        with pytest.raises(ScramError, match="the proof does not fit"):
            exchange.final(CLIENT_FINAL.rpartition(b",p=")[0] + b",p=" + b64encode(proof))


@pytest.mark.parametrize(
    ("message", "story"),
    [
        (b"", "begins with neither"),
        (b"n", "begins with neither"),
        (b"x,,n=user,r=abc", "begins with neither"),
        (b"N,,n=user,r=abc", "begins with neither"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,n=user", "no second comma"),
        (b"n,n=user,r=abc", "authorization identity"),
        (b"n,a=user,n=user,r=abc", "authorization identity"),
        (b"n,,m=1,n=user,r=abc", "mandatory extension"),
        (b"n,,", "another form"),
        (b"n,,n=user", "another form"),
        (b"n,,r=abc,n=user", "another form"),
        (b"n,,u=user,r=abc", "another form"),
        (b"n,,n=,r=abc", "the user name has 0 bytes"),
        (b"n,,n=" + b"u" * 257 + b",r=abc", "the user name has 257 bytes"),
        (b"n,,n=us\x00er,r=abc", "control character"),
        (b"n,,n=a=b,r=abc", "neither =2C nor =3D"),
        (b"n,,n=a=2c,r=abc", "neither =2C nor =3D"),
        (b"n,,n=a=,r=abc", "neither =2C nor =3D"),
        (b"n,,n=user,r=", "nonce"),
        (b"n,,n=user,r=a b", "nonce"),
        (b"n,,n=user,r=a\x7f", "nonce"),
        (b"n,,n=user,r=" + "é".encode(), "nonce"),
        (b"n,,n=user,r=" + b"r" * 257, "nonce"),
        (b"n,,n=user,r=abc,", "extension"),
        (b"n,,n=user,r=abc,1=2", "extension"),
        (b"n,,n=user,r=abc,x=", "extension"),
        (b"n,,n=user,r=abc,x=\x00", "extension"),
        (b"n,,n=\xff,r=abc", "not UTF-8"),
        (b"n,,n=user,r=abc,x=" + b"1" * 2_048, "at most 2048"),
    ],
)
def test_a_first_message_that_is_malformed_ends_it(message: bytes, story: str) -> None:
    """With what was found, and nobody's name."""
    exchange = server()
    with pytest.raises(ScramError, match=story):
        exchange.first(message)
    assert exchange.claimed == ""


NONCE = CLIENT_FINAL.split(b",")[1]
PROOF = CLIENT_FINAL.split(b",")[2]


@pytest.mark.parametrize(
    ("message", "story"),
    [
        (b"", "another form"),
        (b"c=biws," + NONCE, "another form"),
        (PROOF, "another form"),
        (NONCE + b",c=biws," + PROOF, "another form"),
        (b"c=biws," + PROOF, "another form"),
        (b"c=eSws," + NONCE + b"," + PROOF, "another header"),
        (b"c=," + NONCE + b"," + PROOF, "another header"),
        (b"c=biws," + NONCE + b"x," + PROOF, "another nonce"),
        (b"c=biws,r=" + SERVER_NONCE.encode() + b"," + PROOF, "another nonce"),
        (b"c=biws,r=rOprNGfwEbeRWgbNEkqO," + PROOF, "another nonce"),
        ("c=biws,r=é,".encode() + PROOF, "another nonce"),
        (b"c=biws," + NONCE + b",xx," + PROOF, "extension"),
        (b"c=biws," + NONCE + b",p=", "a proof of 0 bytes"),
        (b"c=biws," + NONCE + b",p=AAAA", "a proof of 3 bytes"),
        (b"c=biws," + NONCE + b"," + PROOF + b"AAAA", "no base64"),
        (b"c=biws," + NONCE + b",p=A*", "no base64"),
        (b"c=biws," + NONCE + ",p=é".encode(), "no base64"),
        (b"c=biws," + NONCE + b"," + PROOF + b",x=1", "no base64"),
        (b"c=\xff," + NONCE + b"," + PROOF, "not UTF-8"),
        (b"c=biws," + NONCE + b",x=" + b"1" * 2_048 + b"," + PROOF, "at most 2048"),
    ],
)
def test_a_final_message_that_is_malformed_ends_it(message: bytes, story: str) -> None:
    """A right proof among what is wrong does not help, and there is no second try."""
    exchange = server()
    exchange.first(CLIENT_FIRST)
    with pytest.raises(ScramError, match=story):
        exchange.final(message)
    with pytest.raises(AssertionError):
        exchange.final(CLIENT_FINAL)


@given(st.binary(max_size=60), st.integers(0, 2))
def test_no_other_error_comes_of_a_message(noise: bytes, where: int) -> None:
    """Whatever stands before, in the middle of, or behind a message that would be right."""

    def damaged(message: bytes) -> bytes:
        cut = (0, len(message) // 2, len(message))[where]
        return message[:cut] + noise + message[cut:]

    for damage_first in (True, False):
        exchange = server()
        try:
            exchange.first(damaged(CLIENT_FIRST) if damage_first else CLIENT_FIRST)
            name, _ = exchange.final(CLIENT_FINAL if damage_first else damaged(CLIENT_FINAL))
        except ScramError:
            continue
        assert not noise and name == "user"


def test_who_is_not_there_looks_like_one_who_is() -> None:
    """The same salt each time, another one for another name and another data directory, and in the end the same words."""

    def asked(name: str, secret: bytes = SECRET) -> tuple[bytes, str]:
        first = f"n,,n={name},r=abc".encode()
        exchange = ScramServer(USERS, secret, "xyz")
        begun = exchange.first(first)
        final, _ = answer(b"pencil", first, begun)
        with pytest.raises(ScramError) as found:
            exchange.final(final)
        return begun, str(found.value)

    begun, words = asked("nobody")
    assert asked("nobody") == (begun, words)
    assert words == "the proof does not fit the password"
    assert begun.split(b",")[2] == b"i=4096" and len(begun.split(b",")[1]) == len(b64encode(SALT)) + 2
    assert asked("nobody2")[0] != begun != asked("nobody", b"of another")[0]
    exchange = ScramServer({}, SECRET, "xyz")
    assert exchange.first(b"n,,n=nobody,r=abc").endswith(b",i=4096")


def test_an_exchange_has_one_order() -> None:
    """Each message once: what calls it wrongly is a mistake of ours, and said so."""
    exchange = server()
    with pytest.raises(AssertionError):
        exchange.final(CLIENT_FINAL)
    exchange.first(CLIENT_FIRST)
    with pytest.raises(AssertionError):
        exchange.first(CLIENT_FIRST)
    exchange.final(CLIENT_FINAL)
    with pytest.raises(AssertionError):
        exchange.final(CLIENT_FINAL)
    with pytest.raises(AssertionError):
        server(nonce="a,b")


def test_an_entry_comes_back_as_it_was_written() -> None:
    """And a password is brought into its one form before."""
    assert parse_scram(PENCIL.text()) == PENCIL
    assert PENCIL.text() == (
        "$scram-sha-256$4096$W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=$wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )
    assert scram_entry("pen\u00adcil", SALT) == PENCIL
    with pytest.raises(ValueError, match="at least one character"):
        scram_entry("", SALT)


GOOD = PENCIL.text().removeprefix(SCRAM_PREFIX).split("$")


@pytest.mark.parametrize(
    ("parts", "story"),
    [
        ([str(ITERATIONS_MIN - 1), *GOOD[1:]], "4095 iterations of SCRAM, 4096 to 1000000"),
        (["1000001", *GOOD[1:]], "1000001 iterations"),
        (["04096", *GOOD[1:]], "another form"),
        (["9" * 10, *GOOD[1:]], "another form"),
        (["٤٠٩٦", *GOOD[1:]], "another form"),
        (GOOD[:3], "another form"),
        ([*GOOD, ""], "another form"),
        ([GOOD[0], "AAA", *GOOD[2:]], "no base64"),
        ([GOOD[0], "AAAA", *GOOD[2:]], "a salt of SCRAM with 3 bytes"),
        ([*GOOD[:2], "AAAA", GOOD[3]], "keys of SCRAM with 3 and 32 bytes"),
        ([*GOOD[:3], "AAAA"], "keys of SCRAM with 32 and 3 bytes"),
    ],
)
def test_entries_that_are_not_taken(parts: list[str], story: str) -> None:
    """And no part of them is repeated."""
    with pytest.raises(ValueError, match=story) as found:
        parse_scram(SCRAM_PREFIX + "$".join(parts))
    assert not any(part in str(found.value) for part in parts[1:] if part)
