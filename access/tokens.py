"""Tokens (JWT, RFC 7519) that come as a password: who somebody is by the word of the one who signed it.

Time comes in.  Leaves to others where the keys come from (access.jwks reads them) and what happens when a token ends.  What always holds:
nothing of a token is believed, but the name of its key and its algorithm, before its signature was right; that algorithm is one of those
the settings name, and of the type of the key; and what is configured and not there, or there in another form, is a no.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from jwt.api_jws import PyJWS
from jwt.exceptions import PyJWTError

from access.grants import read_grants
from access.identity import Identity, check_name
from access.jwks import FAMILIES, KEY_ID_CHARS_MAX, Key, Keys

TOKEN_BYTES_MAX: Final = 16_384
GROUPS_MAX: Final = 100
_SECONDS_MAX = 253_402_300_800  # the year 10000

_FORM = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")
_jws = PyJWS(algorithms=list(FAMILIES))


class TokenError(ValueError):
    """A token that lets nobody in."""


class UnknownKey(TokenError):
    """The set has no key of that name: it may be newer than the set."""


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Those of the settings `access.jwt`.  Empty texts: not wanted."""

    algorithms: tuple[str, ...]
    issuer: str = ""
    audience: str = ""
    user_claim: str = "sub"
    groups_claim: str = "groups"
    grants_claim: str = ""
    leeway_s: float = 30
    user_prefix: str = ""

    def __post_init__(self) -> None:
        unknown = [name for name in self.algorithms if name not in FAMILIES]
        if unknown or not self.algorithms:
            raise ValueError(f"algorithms of tokens: {', '.join(unknown) or 'none at all'} found, known are {', '.join(FAMILIES)}")


@dataclass(frozen=True, slots=True)
class Token:
    """ends_s: when it counts no more, leeway included."""

    identity: Identity
    ends_s: float


def is_token(password: bytes) -> bool:
    """Whether a password has the form of a token: three parts, of which the first is the JSON that tokens begin with."""
    try:
        return "alg" in _header(password)[0]
    except TokenError:
        return False


def read_token(password: bytes, keys: Keys, options: TokenOptions, now_s: float) -> Token:
    """Raises TokenError.  The order is: form, algorithm, key, signature, times, issuer and audience, names and rights."""
    header, algorithm = _header(password)
    if algorithm not in options.algorithms:
        raise TokenError(f"the algorithm {_quoted(algorithm)} found, allowed are {', '.join(options.algorithms)}")
    if "crit" in header or "b64" in header:
        raise TokenError("a header with crit or b64, of which we know none")
    key = _key(keys, algorithm, header.get("kid"))
    claims = _signed(password, key, algorithm)
    ends_s = _check_times(claims, options.leeway_s, now_s)
    _check_issuer(claims, options.issuer)
    _check_audience(claims, options.audience)
    return Token(_identity(claims, options), ends_s)


def _header(password: bytes) -> tuple[dict[str, Any], Any]:
    """(the header, its algorithm)"""
    if len(password) > TOKEN_BYTES_MAX:
        raise TokenError(f"a token of {len(password)} bytes, at most {TOKEN_BYTES_MAX} are allowed")
    form = _FORM.fullmatch(password)
    if form is None:
        raise TokenError("no token: three parts in base64url with dots between them are wanted")
    try:
        header = _json(urlsafe_b64decode(form[1] + b"=" * (-len(form[1]) % 4)))
    except ValueError:
        raise TokenError("the header of the token is no JSON object") from None
    return header, header.get("alg")


def _json(data: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        found = json.loads(data.decode(), parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _key(keys: Keys, algorithm: str, key_id: object) -> Key:
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= KEY_ID_CHARS_MAX):
        raise TokenError(f"a kid that is no text of at most {KEY_ID_CHARS_MAX} characters")
    found = keys.candidates(algorithm, key_id)
    if not found and key_id is not None:
        raise UnknownKey(f"no key {_quoted(key_id)} for {algorithm} among {len(keys.keys)}")
    if len(found) != 1:
        raise TokenError(f"{len(found)} keys for {algorithm} among {len(keys.keys)}, and the token names none of them")
    return found[0]


def _signed(password: bytes, key: Key, algorithm: str) -> dict[str, Any]:
    """The claims, when the signature is right."""
    try:
        payload = _jws.decode_complete(password, key.key, algorithms=[algorithm])["payload"]
    except (PyJWTError, ValueError, TypeError):
        raise TokenError(f"the signature is not that of the key {_quoted(key.id)} with {algorithm}") from None
    try:
        return _json(payload)
    except ValueError:
        raise TokenError("the claims of the token are no JSON object") from None


def _check_times(claims: dict[str, Any], leeway_s: float, now_s: float) -> float:
    """When it ends."""
    if "exp" not in claims:
        raise TokenError("no exp found: a token has to end")
    ends_s = _seconds(claims, "exp") + leeway_s
    if now_s >= ends_s:
        raise TokenError(f"the token has ended {now_s - _seconds(claims, 'exp'):.0f} s ago")
    for name in ("nbf", "iat"):
        if name in claims and _seconds(claims, name) > now_s + leeway_s:
            raise TokenError(f"the token counts in {_seconds(claims, name) - now_s:.0f} s by its {name}")
    return ends_s


def _seconds(claims: dict[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _SECONDS_MAX:
        raise TokenError(f"a claim {name} that is no time in seconds")
    return float(value)


def _check_issuer(claims: dict[str, Any], wanted: str) -> None:
    found = claims.get("iss")
    if wanted and found != wanted:
        raise TokenError(f"the issuer {_quoted(found)} found, {_quoted(wanted)} is wanted")


def _check_audience(claims: dict[str, Any], wanted: str) -> None:
    """A token that names its audience is for nobody else [RFC 7519, 4.1.3], so it is not for one who has no name."""
    found = claims.get("aud")
    if not wanted:
        if found is not None:
            raise TokenError(f"the audience {_quoted(found)} found, and access.jwt.audience is not set")
        return
    if found != wanted and not (isinstance(found, list) and wanted in found):
        raise TokenError(f"the audience {_quoted(found)} found, {_quoted(wanted)} is wanted")


def _identity(claims: dict[str, Any], options: TokenOptions) -> Identity:
    user = claims.get(options.user_claim)
    if not isinstance(user, str) or not user:
        raise TokenError(f"no text in the claim {_quoted(options.user_claim)}, which is to be the user name")
    groups = _groups(claims.get(options.groups_claim)) if options.groups_claim else ()
    granted = claims.get(options.grants_claim) if options.grants_claim else None
    try:
        grants = () if granted is None else read_grants(granted)
        identity = Identity(check_name(options.user_prefix + user), "jwt", groups, (), grants)
        identity.pack()
    except ValueError as error:
        raise TokenError(str(error)) from None
    return identity


def _groups(found: object) -> tuple[str, ...]:
    """One text is one group; no claim is none."""
    listed = [] if found is None else [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or len(listed) > GROUPS_MAX or not all(isinstance(each, str) for each in listed):
        raise TokenError(f"groups that are no list of at most {GROUPS_MAX} texts")
    try:
        return tuple([check_name(each, "the name of a group") for each in listed])
    except ValueError as error:
        raise TokenError(str(error)) from None


def _quoted(value: object) -> str:
    """Short, and with what does not print escaped: it came from outside."""
    return ascii(value if isinstance(value, str) else f"({type(value).__name__})")[:80] if value is not None else "(none)"
