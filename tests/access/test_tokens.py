"""Tokens: what a good one says, and every way in which one is not good."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from access.identity import Grant, Identity
from access.jwks import KEYS_MAX, SET_BYTES_MAX, Keys, KeysError, read_keys
from access.rights import Right
from access.tokens import Token, TokenError, TokenOptions, UnknownKey, is_token, read_token

NOW = 1_800_000_000
SECRET = b"0123456789abcdef0123456789abcdef"
ALL = TokenOptions(("RS256", "ES256", "EdDSA", "HS256"))
CLAIMS = {"sub": "ann", "exp": NOW + 60}


@cache
def private(kind: str) -> Any:
    """One key of each type for the whole file."""
    match kind:
        case "rsa":
            return rsa.generate_private_key(65_537, 2_048)
        case "p256":
            return ec.derive_private_key(11, ec.SECP256R1())
        case "p384":
            return ec.derive_private_key(12, ec.SECP384R1())
        case _:
            return ed25519.Ed25519PrivateKey.from_private_bytes(b"e" * 32)


def jwk(kind: str, **members: Any) -> dict[str, Any]:
    """The public half, as an issuer shows it."""
    public = private(kind).public_key()
    made: Any = RSAAlgorithm if kind == "rsa" else OKPAlgorithm if kind == "ed" else ECAlgorithm
    return {name: value for name, value in made.to_jwk(public, as_dict=True).items() if name != "key_ops"} | {"kid": kind} | members


def keys(*members: dict[str, Any]) -> Keys:
    return read_keys(json.dumps({"keys": members}).encode())


@cache
def every() -> Keys:
    return keys(jwk("rsa"), jwk("p256"), jwk("p384"), jwk("ed"))


SIGNERS = {"RS256": "rsa", "ES256": "p256", "ES384": "p384", "EdDSA": "ed"}


def token(algorithm: str, claims: dict[str, Any] | None = None, key_id: str | None = "", **header: Any) -> bytes:
    """Made by PyJWT, as most issuers of tests make them.  key_id "": that of the key."""
    kind = SIGNERS.get(algorithm, "")
    named = kind if key_id == "" else key_id
    headers = {**({"kid": named} if named else {}), **header}
    return jwt.encode(CLAIMS if claims is None else claims, private(kind) if kind else SECRET, algorithm, headers).encode()


def part(value: object) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=")


def by_hand(header: object, claims: object = CLAIMS, secret: bytes = SECRET) -> bytes:
    """Signed with HMAC whatever the header says, which no library would do."""
    signed = part(header) + b"." + part(claims)
    return signed + b"." + part(hmac.digest(secret, signed, hashlib.sha256))


HS = {"alg": "HS256", "typ": "JWT"}
SHARED = Keys(read_keys(SECRET).keys)


def refused(password: bytes, story: str, found: Keys = SHARED, options: TokenOptions = ALL, now_s: float = NOW) -> TokenError:
    with pytest.raises(TokenError, match=story) as error:
        read_token(password, found, options, now_s)
    return error.value


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("key_id", ["", None])
def test_a_good_token_says_who_somebody_is(algorithm: str, key_id: str | None) -> None:
    """With the key it names, or with the one key of that type."""
    found = read_token(token(algorithm, key_id=key_id), every(), ALL, NOW)
    assert found == Token(Identity("ann", "jwt"), NOW + 90)


def test_a_secret_is_a_key_too() -> None:
    """Alone in its file, with white space of an editor behind it, or in a set; whatever name the token gives to its key."""
    listed = keys({"kty": "oct", "k": part(SECRET).decode()})
    for found in (SHARED, read_keys(SECRET + b"\n"), listed):
        for key_id in (None, "k1"):
            assert read_token(token("HS256", key_id=key_id), found, ALL, NOW).identity.user == "ann"
    refused(by_hand(HS, secret=SECRET[::-1]), "the signature is not that of the key")


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "ES384", "EdDSA", "HS256"])
def test_only_algorithms_that_are_configured_count(algorithm: str) -> None:
    """Also when the key is there and the signature right."""
    others = TokenOptions(tuple(name for name in (*ALL.algorithms, "ES384") if name != algorithm))
    found = SHARED if algorithm == "HS256" else every()
    refused(token(algorithm), f"the algorithm '{algorithm}' found, allowed are ", found, others)


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", "HS1", "hs256", None, 1, ["HS256"], {"a": 1}, "\x1b[2J"])
def test_none_and_other_words_are_no_algorithms(name: object) -> None:
    """With a signature and without; control characters of it reach no terminal."""
    for password in (by_hand({"alg": name}), by_hand({"alg": name}).rpartition(b".")[0] + b".", by_hand({"typ": "JWT"})):
        for found in (SHARED, every()):
            assert "\x1b" not in str(refused(password, "the algorithm .* found, allowed are", found))


@pytest.mark.parametrize("names", [(), ("none",), ("RS256", "none"), ("RS256", "ES256K"), ("HS1",)])
def test_settings_cannot_allow_what_is_no_algorithm(names: tuple[str, ...]) -> None:
    """And have to allow one."""
    with pytest.raises(ValueError, match=r"algorithms of tokens: .* found, known are RS256"):
        TokenOptions(names)


def test_a_public_key_is_no_secret() -> None:
    """Signed by HMAC with what everybody can read of the key: its PEM, its DER, its JWK, its number."""
    public = private("rsa").public_key()
    open_to_all = [public.public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo) for encoding in (Encoding.PEM, Encoding.DER)]
    open_to_all += [json.dumps(jwk("rsa")).encode(), jwk("rsa")["n"].encode()]
    for secret in open_to_all:
        for key_id in ("rsa", "p256", "ed"):
            forged = by_hand({**HS, "kid": key_id}, secret=secret)
            assert isinstance(refused(forged, "no key .* for HS256 among 4", every()), UnknownKey)
        refused(by_hand(HS, secret=secret), "0 keys for HS256 among 4", every())


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_key_is_used_with_the_algorithms_of_its_type_only(algorithm: str) -> None:
    """A token that names a key of another type, or of another curve, has no key."""
    for key_id in {"rsa", "p256", "p384", "ed"} - {SIGNERS[algorithm]}:
        assert isinstance(refused(token(algorithm, key_id=key_id), f"no key '{key_id}' for {algorithm}", every()), UnknownKey)


def test_a_key_with_an_algorithm_is_used_with_that_one_only() -> None:
    """RSA has two ways to sign."""
    bound = keys(jwk("rsa", alg="PS256"))
    both = TokenOptions(("RS256", "PS256"))
    refused(token("RS256"), "no key 'rsa' for RS256", bound, both)
    signed = jwt.encode(CLAIMS, private("rsa"), "PS256", {"kid": "rsa"}).encode()
    assert read_token(signed, bound, both, NOW).identity.user == "ann"


def test_a_token_that_names_no_key_needs_one_that_is_alone() -> None:
    """Which of two it means is not guessed; a name that is not there says that the set may be old."""
    other = OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.from_private_bytes(b"f" * 32).public_key(), as_dict=True)
    two = keys(jwk("ed"), {**other, "kid": "new", "key_ops": ["verify"]})
    refused(token("EdDSA", key_id=None), "2 keys for EdDSA among 2, and the token names none", two)
    assert read_token(token("EdDSA"), two, ALL, NOW).identity.user == "ann"
    refused(token("EdDSA", key_id="new"), "the signature is not that of the key 'new' with EdDSA", two)
    assert isinstance(refused(token("EdDSA", key_id="newer"), "no key 'newer' for EdDSA among 2", two), UnknownKey)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA", "HS256"])
def test_what_was_changed_after_signing_is_refused(algorithm: str) -> None:
    """Claims of another, a signature of another token, none at all."""
    found = SHARED if algorithm == "HS256" else every()
    good, other = token(algorithm).split(b"."), token(algorithm, {**CLAIMS, "sub": "root"}).split(b".")
    changed = (b"B" if good[2].startswith(b"A") else b"A") + good[2][1:]
    for parts in ([good[0], other[1], good[2]], [good[0], good[1], other[2]], [good[0], good[1], b""], [*good[:2], changed]):
        refused(b".".join(parts), "the signature is not that", found)


@pytest.mark.parametrize(
    ("claims", "now_s", "story"),
    [
        ({}, NOW + 29.9, None),
        ({}, NOW + 30, "the token has ended 30 s ago"),
        ({"nbf": NOW + 30}, NOW, None),
        ({"nbf": NOW + 31}, NOW, "the token counts in 31 s by its nbf"),
        ({"iat": NOW + 30}, NOW, None),
        ({"iat": NOW + 31}, NOW, "the token counts in 31 s by its iat"),
        ({"exp": NOW + 0.5}, NOW, None),
        ({"exp": None}, NOW, "a claim exp that is no time"),
        ({"exp": True}, NOW, "a claim exp that is no time"),
        ({"exp": str(NOW)}, NOW, "a claim exp that is no time"),
        ({"exp": [NOW]}, NOW, "a claim exp that is no time"),
        ({"exp": -1}, NOW, "a claim exp that is no time"),
        ({"exp": 1e300}, NOW, "a claim exp that is no time"),
        ({"exp": 10**400}, NOW, "a claim exp that is no time"),
        ({"nbf": "0"}, NOW, "a claim nbf that is no time"),
        ({"iat": None}, NOW, "a claim iat that is no time"),
    ],
)
def test_times_count_with_their_leeway(claims: dict[str, Any], now_s: float, story: str | None) -> None:
    """By the clock of whoever asks; what is no time is a no."""
    password = by_hand(HS, {"sub": "ann", "exp": NOW, **claims})
    if story is None:
        assert read_token(password, SHARED, ALL, now_s).ends_s == claims.get("exp", NOW) + 30
    else:
        refused(password, story, now_s=now_s)


def test_a_token_has_to_end() -> None:
    """One that does not would count for ever."""
    refused(by_hand(HS, {"sub": "ann"}), "no exp found")
    for word in (b"Infinity", b"NaN", b"1e999"):
        refused(by_hand(HS, b'{"sub": "ann", "exp": ' + word + b"}"), "no JSON object|no time in seconds")


@pytest.mark.parametrize(
    ("claims", "wanted", "story"),
    [
        ({"iss": "a"}, {}, None),
        ({"iss": "a"}, {"issuer": "a"}, None),
        ({"iss": "b"}, {"issuer": "a"}, "the issuer 'b' found, 'a' is wanted"),
        ({"iss": ["a"]}, {"issuer": "a"}, r"the issuer '\(list\)' found"),
        ({}, {"issuer": "a"}, r"the issuer \(none\) found"),
        ({"aud": "a"}, {"audience": "a"}, None),
        ({"aud": ["b", "a"]}, {"audience": "a"}, None),
        ({"aud": ["b", ["a"]]}, {"audience": "a"}, "the audience"),
        ({"aud": "ab"}, {"audience": "a"}, "the audience 'ab' found, 'a' is wanted"),
        ({"aud": {"a": 1}}, {"audience": "a"}, "the audience"),
        ({"aud": []}, {"audience": "a"}, "the audience"),
        ({}, {"audience": "a"}, r"the audience \(none\) found, 'a' is wanted"),
        ({"aud": "a"}, {}, "the audience 'a' found, and access.jwt.audience is not set"),
    ],
)
def test_issuer_and_audience_are_those_that_are_wanted(claims: dict[str, Any], wanted: dict[str, str], story: str | None) -> None:
    """A token for somebody else is not for us, also when nobody said who we are."""
    password = by_hand(HS, {**CLAIMS, **claims})
    options = TokenOptions(("HS256",), wanted.get("issuer", ""), wanted.get("audience", ""))
    if story is None:
        assert read_token(password, SHARED, options, NOW).identity.user == "ann"
    else:
        refused(password, story, options=options)


@pytest.mark.parametrize("name", ["", None, 7, ["ann"], {"a": 1}, "a\x00b", "\ud800", "x" * 300, True])
def test_what_is_no_user_name_is_nobody(name: object) -> None:
    """Neither anonymous nor a part of what stood there."""
    refused(by_hand(HS, {**CLAIMS, "sub": name}), "user name|claim 'sub'")
    refused(by_hand(HS, {"exp": NOW}), "no text in the claim 'sub'")


def test_what_a_token_brings_along() -> None:
    """User by the claim that is configured, with its prefix; groups; rights."""
    options = TokenOptions(("HS256",), user_claim="name", groups_claim="roles", grants_claim="acl", user_prefix="jwt/")
    claims = {
        "exp": NOW,
        "sub": "x",
        "name": "ann",
        "roles": ["a", "b"],
        "acl": {"pub": ["a", "d/#"], "sub": ["b/+"], "all": ["c/#"]},
    }
    publish, subscribe = Right.PUBLISH | Right.RETAIN | Right.DELAY, Right.SUBSCRIBE | Right.SHARE | Right.REPLAY
    grants = (Grant(publish, (b"a", b"d/#")), Grant(subscribe, (b"b/+",)), Grant(publish | subscribe, (b"c/#",)))
    assert read_token(by_hand(HS, claims), SHARED, options, NOW).identity == Identity("jwt/ann", "jwt", ("a", "b"), (), grants)
    one = read_token(by_hand(HS, {**claims, "roles": "a", "acl": {"pub": []}}), SHARED, options, NOW).identity
    assert (one.groups, one.grants) == (("a",), ())
    without = read_token(by_hand(HS, {"exp": NOW, "name": "ann"}), SHARED, options, NOW).identity
    assert without == Identity("jwt/ann", "jwt")


@pytest.mark.parametrize(
    "claims",
    [
        {"groups": 7},
        {"groups": {"a": 1}},
        {"groups": ["a", 7]},
        {"groups": [""]},
        {"groups": ["a\x00"]},
        {"groups": ["a"] * 101},
        {"groups": ["g" * 100] * 90},
        {"acl": []},
        {"acl": "a/#"},
        {"acl": {"pub": "a/#"}},
        {"acl": {"pub": [7]}},
        {"acl": {"pub": ["a/#/b"]}},
        {"acl": {"pub": [""]}},
        {"acl": {"pub": ["\ud800"]}},
        {"acl": {"sub": ["$share/g/a"]}},
        {"acl": {"publish": ["a"]}},
        {"acl": {"pub": ["a"], "deny": ["b"]}},
        {"acl": {"pub": ["a"] * 65}},
        {"acl": {"sub": ["${user}/#"]}},
        {"acl": {"all": ["x" * 9_000]}},
    ],
)
def test_rights_and_groups_of_another_form_are_a_no(claims: dict[str, Any]) -> None:
    """A token of which a part is not understood would give other rights than its issuer meant."""
    refused(by_hand(HS, {**CLAIMS, **claims}), "group|grant|identity", options=TokenOptions(("HS256",), grants_claim="acl"))


@pytest.mark.parametrize(
    ("password", "story"),
    [
        (b"", "no token"),
        (b"secret", "no token"),
        (b"a.b", "no token"),
        (b"a.b.c.d", "no token"),
        (b".b.c", "no token"),
        (b"a b.c.d", "no token"),
        (b"e30.e30.e30\n", "no token"),
        (b"\xff.\xff.\xff", "no token"),
        (b"A.e30.e30", "the header of the token is no JSON"),
        (part(b"[]") + b".e30.", "the header of the token is no JSON"),
        (part(b"\xff") + b".e30.", "the header of the token is no JSON"),
        (part(b'{"alg":NaN}') + b".e30.", "the header of the token is no JSON"),
        (part(b'{"alg":' + b"[" * 5_000) + b".e30.", "the header of the token is no JSON"),
        (part(b'{"alg":' + b"1" * 5_000 + b"}") + b".e30.", "the header of the token is no JSON"),
        (b"a." * 8_200, "a token of 16400 bytes, at most 16384"),
        (by_hand({**HS, "crit": ["b64"], "b64": False}), "crit or b64"),
        (by_hand({**HS, "b64": False}), "crit or b64"),
        (by_hand({**HS, "crit": ["exp"]}), "crit or b64"),
        (by_hand({**HS, "kid": 7}), "a kid that is no text"),
        (by_hand({**HS, "kid": "k" * 257}), "a kid that is no text"),
        (by_hand(HS, []), "the claims of the token are no JSON object"),
        (by_hand(HS, b"\xff"), "the claims of the token are no JSON object"),
        (by_hand(HS, b"[" * 5_000), "the claims of the token are no JSON object"),
    ],
)
def test_what_is_no_token_is_refused(password: bytes, story: str) -> None:
    """In one sentence."""
    refused(password, story)


def test_a_key_inside_the_token_is_not_looked_at() -> None:
    """Headers jwk, jku, x5u and x5c let the one who signs choose the key."""
    forged = {"jwk": {"kty": "oct", "k": part(b"f" * 32).decode()}, "jku": "https://example.org", "x5u": "https://example.org", "x5c": []}
    refused(by_hand({**HS, **forged}, secret=b"f" * 32), "the signature is not that")


@given(st.binary(max_size=40), st.integers(0, 300))
def test_no_other_error_comes_of_a_token(noise: bytes, where: int) -> None:
    """Whatever is put into one that was right."""
    good = by_hand(HS)
    password = good[:where] + noise + good[where:]
    is_token(password)
    try:
        assert read_token(password, SHARED, ALL, NOW).identity.user == "ann"
    except TokenError:
        assert password != good


VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    NOW,
    10**30,
    "",
    "a",
    "\ud800",
    "\x00",
    [],
    [None],
    ["a"],
    [["a"]],
    [{}],
    {},
    {"a": 1},
    {"pub": None},
    {"pub": [[]]},
]


def test_claims_of_any_form_are_refused_or_taken() -> None:
    """Each claim we look at, with each kind of value, under a right signature: who comes in is the one whose name stands there."""
    options = TokenOptions(("HS256",), issuer="i", audience="a", grants_claim="acl")
    good = {"sub": "ann", "exp": NOW, "iss": "i", "aud": "a", "acl": {"pub": ["a"]}, "groups": ["g"]}
    taken = set()
    for name in (*good, "nbf", "iat", "jti"):
        for value in VALUES:
            try:
                found = read_token(by_hand(HS, {**good, name: value}), SHARED, options, NOW).identity
            except TokenError:
                continue
            taken.add((name, str(value)))
            assert found.user == (value if name == "sub" else "ann")
    wanted = {("sub", "a"), ("aud", "a"), ("aud", "['a']"), ("exp", str(NOW))}
    assert {found for found in taken if found[0] in ("sub", "iss", "aud", "exp")} == wanted


def test_a_password_in_the_form_of_a_token_is_known_by_its_header() -> None:
    """Good or not; a password with two dots is a password."""
    assert is_token(token("HS256")) and is_token(by_hand({"alg": "none"})) and is_token(token("EdDSA")[:-4])
    for password in (b"a.b.c", b"hunter.2.", b"", part({"typ": "JWT"}) + b".e30.", b"Zo\xc3\xab." * 3):
        assert not is_token(password)


@pytest.mark.parametrize(
    ("data", "story"),
    [
        (b"", "a secret of 0 bytes found, at least 32"),
        (b"hunter2", "a secret of 7 bytes found, at least 32"),
        (b"-----BEGIN PUBLIC KEY-----\n" + b"A" * 100, "in PEM found"),
        (b"{", "is no JWKS"),
        (b"{}", "is no JWKS"),
        (b'{"keys":' + b"[" * 5_000, "is no JWKS"),
        (b'{"keys": {}}', "is a list of at most 100"),
        (json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode(), "is a list of at most 100"),
        (b'{"keys": []}', "no key of the JWKS can be used; it is empty"),
        (b" " * (SET_BYTES_MAX + 1), "at most 1048576 are allowed"),
        (b"\xff{" * 5, "a secret of 10 bytes"),
    ],
)
def test_what_has_no_keys_is_refused(data: bytes, story: str) -> None:
    """And a secret that is too short is not repeated."""
    with pytest.raises(KeysError, match=story) as found:
        read_keys(data)
    assert "hunter2" not in str(found.value)


@pytest.mark.parametrize(
    ("member", "story"),
    [
        (7, "no JSON object"),
        ({"kty": "AKP"}, "a kty other than"),
        ({"kty": ["RSA"]}, "a kty other than"),
        ({"kty": "oct", "k": "aHVudGVyMg"}, "a secret of 7 bytes"),
        ({"kty": "oct", "k": "*"}, "a secret of 0 bytes|values that are no key"),
        ({"kty": "oct"}, "without k as texts"),
        ({"kty": "RSA", "n": "AQAB"}, "without n, e as texts"),
        ({"kty": "RSA", "n": "AQAB", "e": "AQAB"}, "an RSA key of .* bits|values that are no key"),
        ({"kty": "RSA", "n": "w" + "A" * 170, "e": "AQAB"}, "an RSA key of 10.. bits, 2048 to 8192|values that are no key"),
        ({"kty": "EC", "crv": "secp256k1", "x": "A" * 43, "y": "A" * 43}, "a curve other than P-256"),
        ({"kty": "EC", "crv": "P-256", "x": "A" * 43, "y": "A" * 43}, "values that are no key"),
        ({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, "values that are no key"),
        ({"kty": "OKP", "crv": "X25519", "x": "A" * 43}, "a curve other than Ed25519"),
        ({"kty": "OKP", "crv": "Ed25519", "x": "AA"}, "values that are no key"),
        ({"kty": "OKP", "crv": "Ed25519", "x": "é"}, "values that are no key"),
        (("ed", {"use": "enc"}), "not for signatures"),
        (("ed", {"key_ops": ["sign"]}), "not for signatures"),
        (("ed", {"key_ops": "verify"}), "not for signatures"),
        (("ed", {"alg": "ES256"}), "an alg that is none of its type"),
        (("ed", {"alg": "none"}), "an alg that is none of its type"),
        (("ed", {"alg": 7}), "an alg that is none of its type"),
        (("rsa", {"alg": "HS256"}), "an alg that is none of its type"),
        (("ed", {"kid": 7}), "a kid that is no text"),
        (("ed", {"kid": "k" * 257}), "a kid that is no text"),
        (("ed", {"d": "A" * 43}), "a private key"),
        (("p256", {}), "another key before it has the same name"),
    ],
)
def test_keys_that_are_not_understood_are_left_out_and_named(member: Any, story: str) -> None:
    """The others count, as the standard has it; which one was left out, and why, is there to be logged, without what it holds."""
    member = jwk(member[0], **member[1]) if isinstance(member, tuple) else member
    found = keys(jwk("p256"), member)
    assert [key.id for key in found.keys] == ["p256"]
    (problem,) = found.problems
    assert re.search(f"^key 2: .*(?:{story})", problem)
    held = member.values() if isinstance(member, dict) else ()
    assert not any(str(value) in problem for value in held if len(str(value)) > 9)


def test_a_set_of_which_nothing_can_be_used_is_no_set() -> None:
    """And says why."""
    with pytest.raises(KeysError, match=r"no key of the JWKS can be used; key 1: not for signatures.*; key 2: a kty other than"):
        keys(jwk("ed", use="enc"), {"kty": "AKP"})


def test_a_secret_is_in_no_text_of_its_key() -> None:
    """What is logged of keys is their names."""
    assert SECRET.decode() not in repr(SHARED)
