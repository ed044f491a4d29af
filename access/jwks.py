"""The keys that tokens are checked with: a set of public keys (JWKS, RFC 7517), or one secret.

Leaves to others where they come from and how old they may be.  What always holds: each key has one family, by its own type and curve,
and is never used with an algorithm of another; a key that is not understood, or too weak, is left out and said so, and no message has
any part of a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

SET_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 100
SECRET_BYTES_MIN: Final = 32
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 8_192
KEY_ID_CHARS_MAX: Final = 256

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
FAMILIES: Final[Mapping[str, str]] = dict.fromkeys(_RSA, "RSA") | {
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed",
    "HS256": "secret",
}
"""Every algorithm we know, and the keys it works with."""

_PUBLIC_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x"), "oct": ("k",)}
_PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})


class KeysError(ValueError):
    """No set of keys, and no secret."""


@dataclass(frozen=True, slots=True)
class Key:
    """id None: the set gives it no name.  algorithm None: any of its family."""

    id: str | None
    family: str
    algorithm: str | None
    key: Any

    def fits(self, algorithm: str) -> bool:
        return FAMILIES[algorithm] == self.family and self.algorithm in (None, algorithm)

    def __repr__(self) -> str:
        return f"Key({self.id!r}, {self.family!r}, {self.algorithm!r})"


@dataclass(frozen=True, slots=True)
class Keys:
    """problems: why keys of the set were left out."""

    keys: tuple[Key, ...]
    problems: tuple[str, ...] = ()

    def candidates(self, algorithm: str, key_id: str | None) -> list[Key]:
        """The keys of that name; a token without one, and a key without one, leave it open."""
        fitting = [key for key in self.keys if key.fits(algorithm)]
        if key_id is None:
            return fitting
        return [key for key in fitting if key.id == key_id] or [key for key in fitting if key.id is None]


def read_keys(data: bytes) -> Keys:
    """A JWKS when it begins as JSON does, else a secret.  Raises KeysError, also when nothing in a set can be used."""
    if len(data) > SET_BYTES_MAX:
        raise KeysError(f"{len(data)} bytes of keys found, at most {SET_BYTES_MAX} are allowed")
    data = data.strip()
    if data.startswith(b"{"):
        return _read_set(data)
    if b"-----BEGIN" in data:
        raise KeysError("a key or a certificate in PEM found, a JWKS or a secret is wanted")
    if len(data) < SECRET_BYTES_MIN:
        raise KeysError(f"a secret of {len(data)} bytes found, at least {SECRET_BYTES_MIN} are wanted")
    return Keys((Key(None, "secret", None, data),))


def _read_set(data: bytes) -> Keys:
    try:
        members = json.loads(data)["keys"]
    except (ValueError, KeyError, RecursionError):
        raise KeysError('what begins with "{" is no JWKS: JSON with a list "keys" is wanted') from None
    if not isinstance(members, list) or len(members) > KEYS_MAX:
        raise KeysError(f'"keys" of a JWKS is a list of at most {KEYS_MAX}')
    keys: list[Key] = []
    problems = []
    for number, member in enumerate(members, start=1):
        try:
            key = _read_key(member)
            if any((key.id, key.family) == (other.id, other.family) for other in keys if key.id is not None):
                raise KeysError("another key before it has the same name")
            keys.append(key)
        except KeysError as error:
            problems.append(f"key {number}: {error}")
    if not keys:
        raise KeysError("no key of the JWKS can be used; " + ("; ".join(problems[:3]) or "it is empty"))
    return Keys(tuple(keys), tuple(problems))


def _read_key(member: object) -> Key:
    if not isinstance(member, dict):
        raise KeysError("no JSON object")
    kind, key_id, algorithm = member.get("kty"), member.get("kid"), member.get("alg")
    if not isinstance(kind, str) or kind not in _PUBLIC_MEMBERS:
        raise KeysError("a kty other than RSA, EC, OKP and oct")
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= KEY_ID_CHARS_MAX):
        raise KeysError(f"a kid that is no text of at most {KEY_ID_CHARS_MAX} characters")
    if member.get("use", "sig") != "sig" or "verify" not in _operations(member):
        raise KeysError("not for signatures, by its use or key_ops")
    if _PRIVATE_MEMBERS & member.keys():
        raise KeysError("a private key, which nobody but the issuer should have")
    family, key = _loaded(kind, member)
    if algorithm is not None and (not isinstance(algorithm, str) or FAMILIES.get(algorithm) != family):
        raise KeysError("an alg that is none of its type")
    return Key(key_id, family, algorithm, key)


def _operations(member: dict[str, Any]) -> list[Any]:
    found = member.get("key_ops", ["verify"])
    return found if isinstance(found, list) else []


def _loaded(kind: str, member: dict[str, Any]) -> tuple[str, Any]:
    """(family, key)"""
    public: dict[str, str] = {name: member[name] for name in ("kty", *_PUBLIC_MEMBERS[kind]) if isinstance(member.get(name), str)}
    if len(public) <= len(_PUBLIC_MEMBERS[kind]):
        raise KeysError(f"kty {kind} without {', '.join(_PUBLIC_MEMBERS[kind])} as texts")
    try:
        match kind:
            case "RSA":
                return "RSA", _strong_enough(RSAAlgorithm.from_jwk(public))
            case "EC":
                return _curve(public["crv"], ("P-256", "P-384", "P-521")), ECAlgorithm.from_jwk(public)
            case "OKP":
                return _curve(public["crv"], ("Ed25519", "Ed448"))[:2], OKPAlgorithm.from_jwk(public)
            case _:
                return "secret", _long_enough(HMACAlgorithm.from_jwk(public))
    except KeysError:
        raise
    except (PyJWTError, ValueError):
        raise KeysError(f"kty {kind} with values that are no key") from None


def _curve(found: str, known: tuple[str, ...]) -> str:
    if found not in known:
        raise KeysError(f"a curve other than {', '.join(known)}")
    return found


def _strong_enough(key: Any) -> Any:
    if not RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
        raise KeysError(f"an RSA key of {key.key_size} bits, {RSA_BITS_MIN} to {RSA_BITS_MAX} are allowed")
    return key


def _long_enough(secret: bytes) -> bytes:
    if len(secret) < SECRET_BYTES_MIN:
        raise KeysError(f"a secret of {len(secret)} bytes, at least {SECRET_BYTES_MIN} are wanted")
    return secret
