"""The SHA-512 of crypt(3), as Ulrich Drepper's description of 2007 has it: `$6$salt$hash` and `$6$rounds=n$salt$hash`.

Only for reading files that others wrote; Python has no crypt of its own from 3.13 on.  What happens in a round depends on its number
modulo 42, so the 42 pairs of what is put before and behind are made once.
"""

from __future__ import annotations

from hashlib import sha512
from typing import Final

ROUNDS_DEFAULT: Final = 5_000
ROUNDS_MIN: Final = 1_000
PASSWORD_BYTES_MAX: Final = 511
"""As libxcrypt has it: the work grows with the square of the length."""
_ALPHABET = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PERIOD = 42


def sha512_crypt(password: bytes, salt: bytes, rounds: int) -> str:
    """The 86 characters behind the last `$`.  The caller keeps to PASSWORD_BYTES_MAX."""
    digest = _first_digest(password, salt)
    by_password = _as_long_as(password, sha512(password * len(password)).digest())
    by_salt = _as_long_as(salt, sha512(salt * (16 + digest[0])).digest())
    around = [_around(number, by_password, by_salt) for number in range(_PERIOD)]
    for number in range(rounds):
        before, behind = around[number % _PERIOD]
        digest = sha512(before + digest + behind).digest()
    return _written(digest)


def _first_digest(password: bytes, salt: bytes) -> bytes:
    """What the rounds begin with.  Each bit of the password's length, the lowest first, takes either the other digest or the password."""
    other = sha512(password + salt + password).digest()
    parts = [password, salt, _as_long_as(password, other)]
    length = len(password)
    while length:
        parts.append(other if length & 1 else password)
        length >>= 1
    return sha512(b"".join(parts)).digest()


def _as_long_as(text: bytes, digest: bytes) -> bytes:
    return (digest * (len(text) // len(digest) + 1))[: len(text)]


def _around(number: int, by_password: bytes, by_salt: bytes) -> tuple[bytes, bytes]:
    """What round `number` puts before the digest, and what behind it."""
    between = (by_salt if number % 3 else b"") + (by_password if number % 7 else b"")
    return (by_password + between, b"") if number & 1 else (b"", between + by_password)


def _written(digest: bytes) -> str:
    """Three bytes become four characters, low bits first; which three follow each other is the format's own order."""
    characters = []
    first, second, third = 0, 21, 42
    for _ in range(21):
        characters.append(_characters(digest[first] << 16 | digest[second] << 8 | digest[third], 4))
        first, second, third = second + 1, third + 1, first + 1
    characters.append(_characters(digest[63], 2))
    return "".join(characters)


def _characters(value: int, count: int) -> str:
    return "".join([_ALPHABET[value >> 6 * place & 63] for place in range(count)])
