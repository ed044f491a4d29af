"""Password entries: the forms of our own files, of mosquitto's and of amqtt's; reading a file of them, and checking a password.

Leaves to others where checks run, what is remembered of them, and what a wrong password costs the one who sent it.  Exchanges of SCRAM are
access.scram; its entries stand in the same files.  What always holds: an entry that was read costs no more than the bounds below allow,
and no message of this module repeats any part of a line.

A file is read whole or not at all: half of it would lock out half a fleet, and nobody would see why.
"""

from __future__ import annotations

import binascii
import codecs
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Final

from argon2.exceptions import VerifyMismatchError
from argon2.low_level import Type, hash_secret, verify_secret

from access.identity import check_name
from access.scram import SCRAM_PREFIX, ScramEntry, parse_scram
from access.sha512_crypt import PASSWORD_BYTES_MAX, ROUNDS_DEFAULT, ROUNDS_MIN, sha512_crypt

ENTRIES_MAX: Final = 200_000
FILE_BYTES_MAX: Final = 64 << 20
ENTRY_CHARS_MAX: Final = 512

ARGON2_MEMORY_KIB_MAX: Final = 256 << 10
ARGON2_PASSES_MAX: Final = 10
ARGON2_LANES_MAX: Final = 16
ITERATIONS_MAX: Final = 1_000_000
"""Of PBKDF2 and of crypt: half a second of CPU each."""
CHEAP_ITERATIONS_MAX: Final = 2_000
"""Of PBKDF2: a millisecond."""

# 23 ms of CPU on the machine of the notes: what OWASP asks for at least, and 19 MiB for as long.
OUR_MEMORY_KIB: Final = 19 << 10
OUR_PASSES: Final = 2
OUR_LANES: Final = 1
_DIGEST_BYTES = 32

_ARGON2 = re.compile(r"\$argon2(id|i)\$v=19\$m=([0-9]+),t=([0-9]+),p=([0-9]+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)")
_PBKDF2 = re.compile(r"\$7\$([0-9]+)\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]{88})")
_SALTED = re.compile(r"\$6\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]{88})")
_CRYPT = re.compile(r"\$6\$(?:rounds=([0-9]+)\$)?([./0-9A-Za-z]{1,16})\$([./0-9A-Za-z]{86})")
_FORMS = "$argon2id$, $argon2i$, $7$, $6$ and $scram-sha-256$"


class EntryError(ValueError):
    """An entry of no known form, or one that would cost more than is allowed."""


class PasswordFileError(ValueError):
    """A password file that is not taken, with the number of the line."""


class Cost(Enum):
    """CHEAP: under a millisecond, can be checked where it is asked for."""

    CHEAP = 1
    DEAR = 2


@dataclass(frozen=True, slots=True)
class Argon2:
    """The whole entry is what the library reads."""

    text: str
    kind: Type
    cost: Cost = Cost.DEAR

    def matches(self, password: bytes) -> bool:
        """Whatever else the library says, as too little memory, is raised: it is no answer about the password."""
        try:
            return verify_secret(self.text.encode(), password, self.kind)
        except VerifyMismatchError:
            return False


@dataclass(frozen=True, slots=True)
class Pbkdf2:
    """mosquitto's `$7$`: PBKDF2 with HMAC-SHA512."""

    iterations: int
    salt: bytes
    digest: bytes

    @property
    def cost(self) -> Cost:
        return Cost.CHEAP if self.iterations <= CHEAP_ITERATIONS_MAX else Cost.DEAR

    def matches(self, password: bytes) -> bool:
        found = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations, len(self.digest))
        return hmac.compare_digest(found, self.digest)


@dataclass(frozen=True, slots=True)
class Salted:
    """mosquitto's `$6$` of former days: SHA512 over password and salt, once."""

    salt: bytes
    digest: bytes
    cost: Cost = Cost.CHEAP

    def matches(self, password: bytes) -> bool:
        return hmac.compare_digest(hashlib.sha512(password + self.salt).digest(), self.digest)


@dataclass(frozen=True, slots=True)
class Crypt:
    """amqtt's `$6$` of former days: SHA-512 of crypt."""

    rounds: int
    salt: bytes
    written: str
    cost: Cost = Cost.DEAR

    def matches(self, password: bytes) -> bool:
        if len(password) > PASSWORD_BYTES_MAX:
            return False
        return hmac.compare_digest(sha512_crypt(password, self.salt, self.rounds), self.written)


Entry = Argon2 | Pbkdf2 | Salted | Crypt


@dataclass(frozen=True, slots=True)
class Users:
    """What a password file says.  `absent` costs what most of its entries cost and fits no password: it is checked for users who are
    not there, so that they cannot be told from those who are.  None: the file has no password at all."""

    passwords: dict[str, str]
    scram: dict[str, ScramEntry]
    absent: str | None


def verify(entry: str, password: bytes) -> bool:
    """Raises EntryError for what `read_password_file` does not take, and argon2's VerificationError when it cannot say: both are no yes."""
    return _parse(entry).matches(password)


def cost(entry: str) -> Cost:
    """What `verify` takes of the CPU."""
    return _parse(entry).cost


def argon2id_entry(password: bytes, salt: bytes) -> str:
    """A new entry.  salt: 16 random bytes."""
    return hash_secret(password, salt, OUR_PASSES, OUR_MEMORY_KIB, OUR_LANES, _DIGEST_BYTES, Type.ID).decode()


def read_password_file(data: bytes) -> Users:
    """All of it, or PasswordFileError with the number of the first line that is wrong."""
    if len(data) > FILE_BYTES_MAX:
        raise PasswordFileError(f"a file of {len(data)} bytes found, at most {FILE_BYTES_MAX} are allowed")
    found = _Reading()
    for number, line in enumerate(_text(data).split("\n"), start=1):
        line = line.strip(" \t\r")
        if line and not line.startswith("#"):
            try:
                found.take(line, number)
            except ValueError as error:
                raise PasswordFileError(f"line {number}: {error}") from None
    return Users(found.passwords, found.scram, found.absent())


def _text(data: bytes) -> str:
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PasswordFileError(f"line {data.count(10, 0, error.start) + 1}: not UTF-8") from None


class _Reading:
    """What was read so far; lines tells where a user's first entry stands."""

    def __init__(self) -> None:
        self.passwords: dict[str, str] = {}
        self.scram: dict[str, ScramEntry] = {}
        self._lines: dict[tuple[str, bool], int] = {}
        self._heads: Counter[tuple[str, int]] = Counter()
        self._firsts: dict[tuple[str, int], str] = {}

    def take(self, line: str, number: int) -> None:
        name, colon, entry = line.partition(":")
        if not colon:
            raise ValueError("no ':' found, user:hash is wanted")
        name, entry = check_name(name.rstrip(" \t")), entry.lstrip(" \t")
        is_scram = entry.startswith(SCRAM_PREFIX)
        if is_scram:
            self.scram[name] = parse_scram(entry)
        else:
            _parse(entry)
            self.passwords[name] = entry
            self._count(entry)
        first = self._lines.setdefault((name, is_scram), number)
        if first != number:
            raise ValueError(f"a second entry {'for SCRAM' if is_scram else 'for passwords'} of the user of line {first}")
        if len(self._lines) > ENTRIES_MAX:
            raise ValueError(f"more than {ENTRIES_MAX} entries")

    def _count(self, entry: str) -> None:
        """Entries with the same head cost the same; the length tells mosquitto's `$6$` from crypt's."""
        head, _, digest = entry.rsplit("$", 2)
        self._heads[head, len(digest)] += 1
        self._firsts.setdefault((head, len(digest)), entry)

    def absent(self) -> str | None:
        """An entry of the commonest kind with a digest that no password has: every character an A."""
        if not self._heads:
            return None
        ((kind, _),) = self._heads.most_common(1)
        front, _, digest = self._firsts[kind].rpartition("$")
        padding = len(digest) - len(digest.rstrip("="))
        return f"{front}${'A' * (len(digest) - padding)}{'=' * padding}"


def _parse(entry: str) -> Entry:
    if len(entry) > ENTRY_CHARS_MAX:
        raise EntryError(f"an entry of {len(entry)} characters, at most {ENTRY_CHARS_MAX} are allowed")
    if match := _ARGON2.fullmatch(entry):
        return _argon2(entry, match)
    if match := _PBKDF2.fullmatch(entry):
        iterations = _between("iterations of $7$", match[1], 1, ITERATIONS_MAX)
        return Pbkdf2(iterations, _bytes(match[2], "salt"), _digest(match[3]))
    if match := _SALTED.fullmatch(entry):
        return Salted(_bytes(match[1], "salt"), _digest(match[2]))
    if match := _CRYPT.fullmatch(entry):
        rounds = ROUNDS_DEFAULT if match[1] is None else _between("rounds of $6$", match[1], ROUNDS_MIN, ITERATIONS_MAX)
        return Crypt(rounds, match[2].encode(), match[3])
    raise EntryError(f"an entry of no known form, wanted is one of {_FORMS}")


def _argon2(entry: str, match: re.Match[str]) -> Argon2:
    lanes = _between("lanes of argon2", match[4], 1, ARGON2_LANES_MAX)
    _between("KiB of memory of argon2", match[2], 8 * lanes, ARGON2_MEMORY_KIB_MAX)
    _between("passes of argon2", match[3], 1, ARGON2_PASSES_MAX)
    for what, text in (("salt", match[5]), ("hash", match[6])):
        size = len(_bytes(text + "=" * (-len(text) % 4), what))
        if not (8 if what == "salt" else 16) <= size <= 64:
            raise EntryError(f"a {what} of argon2 with {size} bytes, {8 if what == 'salt' else 16} to 64 are allowed")
    return Argon2(entry, Type.ID if match[1] == "id" else Type.I)


def _between(what: str, text: str, low: int, high: int) -> int:
    """No zeros in front: argon2's own reader refuses them, and one number has one form."""
    if text.startswith("0") or len(text) > 9 or not low <= int(text) <= high:
        raise EntryError(f"{text[:20]} {what}, {low} to {high} are allowed")
    return int(text)


def _bytes(text: str, what: str) -> bytes:
    """As strict as argon2's own reader, which wants the one form that an encoder writes: what was read can be checked later."""
    try:
        data = b64decode(text, validate=True)
    except binascii.Error:
        data = None
    if data is None or b64encode(data).decode() != text:
        raise EntryError(f"a {what} that is no base64")
    return data


def _digest(text: str) -> bytes:
    digest = _bytes(text, "hash")
    if len(digest) != hashlib.sha512().digest_size:
        raise EntryError(f"a hash of {len(digest)} bytes, {hashlib.sha512().digest_size} are wanted")
    return digest
