"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side: entries of password files, and one exchange of four messages.

Without channel binding, without clock and without randomness of its own: the nonce comes in.  Leaves to others how the messages travel.
What always holds: the name of a user is given out only after his proof was right, and a user who is not there is answered like one who
is: the same salt every time, and the same work.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from access.identity import check_name
from access.saslprep import saslprep

SCRAM_METHOD: Final = "SCRAM-SHA-256"
SCRAM_PREFIX: Final = "$scram-sha-256$"
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 1_000_000
"""The client does this work; beyond it a small device would need longer than it has for CONNECT."""
MESSAGE_BYTES_MAX: Final = 2_048
NONCE_CHARS_MAX: Final = 256

_DIGEST_BYTES = hashlib.sha256().digest_size
_ENTRY = re.compile(r"\$scram-sha-256\$([1-9][0-9]{0,8})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)")
_NONCE = re.compile(r"[!-+\--~]+")
_EXTENSION = re.compile(r"[A-Za-z]=[^,\0]+")


class ScramError(ValueError):
    """A message that ends the exchange: malformed, or the proof of somebody else."""


@dataclass(frozen=True, slots=True)
class ScramEntry:
    """What is known of a password; nobody can log in with it who does not know the password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def text(self) -> str:
        """As it stands in a password file."""
        parts = [b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)]
        return SCRAM_PREFIX + "$".join([str(self.iterations), *parts])


def scram_entry(password: str, salt: bytes, iterations: int = ITERATIONS_MIN) -> ScramEntry:
    """A new entry.  salt: 16 random bytes.  Raises ValueError for a password that SCRAM has no form for."""
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
    return ScramEntry(iterations, salt, hashlib.sha256(_hmac(salted, b"Client Key")).digest(), _hmac(salted, b"Server Key"))


def parse_scram(text: str) -> ScramEntry:
    """Raises ValueError, without a part of the entry."""
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ValueError("an entry for SCRAM of another form than $scram-sha-256$iterations$salt$stored$server")
    iterations = int(match[1])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"{iterations} iterations of SCRAM, {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed")
    try:
        salt, stored, server = (b64decode(part, validate=True) for part in match.group(2, 3, 4))
    except binascii.Error:
        raise ValueError("an entry for SCRAM with a part that is no base64") from None
    if not 8 <= len(salt) <= 64:
        raise ValueError(f"a salt of SCRAM with {len(salt)} bytes, 8 to 64 are allowed")
    if len(stored) != _DIGEST_BYTES or len(server) != _DIGEST_BYTES:
        raise ValueError(f"keys of SCRAM with {len(stored)} and {len(server)} bytes, {_DIGEST_BYTES} are wanted")
    return ScramEntry(iterations, salt, stored, server)


class ScramServer:
    """One exchange: `first`, then `final`, each once.  secret: of this data directory.  nonce: new and random for each exchange."""

    def __init__(self, users: Mapping[str, ScramEntry], secret: bytes, nonce: str) -> None:
        assert _NONCE.fullmatch(nonce), "a nonce is printable and has no comma"
        self._users = users
        self._secret = secret
        self._nonce = nonce
        self._header = b""
        self._so_far = b""
        self._entry: ScramEntry | None = None
        self.claimed = ""
        """Whose name the client gave; until `final` has answered, nothing but a claim."""

    def first(self, data: bytes) -> bytes:
        """The client's first message; what comes back is the server's first."""
        assert not self.claimed, "the first message was there already"
        header, bare, name, nonce = _read_first(_text(data))
        entry = self._users.get(name)
        self._entry = entry or self._invented(name)
        self._nonce = nonce + self._nonce
        self._header = header.encode()
        answer = f"r={self._nonce},s={b64encode(self._entry.salt).decode()},i={self._entry.iterations}"
        self._so_far = f"{bare},{answer}".encode()
        self.claimed = name
        return answer.encode()

    def final(self, data: bytes) -> tuple[str, bytes]:
        """The client's final message; what comes back is who he is, and the server's final message."""
        entry, self._entry = self._entry, None
        assert entry is not None, "the final message follows the first, once"
        without_proof, proof = _read_final(_text(data), self._header, self._nonce)
        signed = self._so_far + b"," + without_proof.encode()
        client_key = _xor(proof, _hmac(entry.stored_key, signed))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), entry.stored_key):
            raise ScramError("the proof does not fit the password")
        return self.claimed, b"v=" + b64encode(_hmac(entry.server_key, signed))

    def _invented(self, name: str) -> ScramEntry:
        """For a user who is not there: always the same, and no proof fits it.  With the iterations and the size of salt of the first in
        the file; in one of which the entries differ it is one kind among them."""
        like = next(iter(self._users.values()), None)
        salt = hmac.digest(self._secret, b"salt " + name.encode(), "sha512")
        key = _hmac(self._secret, b"key " + name.encode())
        iterations, size = (like.iterations, len(like.salt)) if like else (ITERATIONS_MIN, 16)
        return ScramEntry(iterations, salt[:size], key, key)


def _text(data: bytes) -> str:
    if len(data) > MESSAGE_BYTES_MAX:
        raise ScramError(f"a message of {len(data)} bytes, at most {MESSAGE_BYTES_MAX} are allowed")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ScramError("a message that is not UTF-8") from None


def _read_first(message: str) -> tuple[str, str, str, str]:
    """(header, the message without it, user, nonce)"""
    binding, comma, rest = message.partition(",")
    if binding.startswith("p="):
        raise ScramError("channel binding asked for, n or y is wanted")
    if binding not in ("n", "y") or not comma:
        raise ScramError("the first message begins with neither n, nor y,")
    other, comma, bare = rest.partition(",")
    if not comma:
        raise ScramError("the first message has no second comma")
    if other:
        raise ScramError("an authorization identity found, none is wanted")
    fields = bare.split(",")
    if fields[0].startswith("m="):
        raise ScramError("a mandatory extension found, none is known")
    if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r="):
        raise ScramError("the first message has another form than n=user,r=nonce")
    _check_extensions(fields[2:])
    nonce = fields[1][2:]
    if len(nonce) > NONCE_CHARS_MAX or not _NONCE.fullmatch(nonce):
        raise ScramError(f"a nonce that is not 1 to {NONCE_CHARS_MAX} printable characters")
    return f"{binding},,", bare, _user(fields[0][2:]), nonce


def _user(written: str) -> str:
    """`,` and `=` are written =2C and =3D; no other `=` is allowed."""
    parts = written.split("=")
    if any(not part.startswith(("2C", "3D")) for part in parts[1:]):
        raise ScramError("a user name with '=' that is neither =2C nor =3D")
    try:
        return check_name(parts[0] + "".join([("," if part.startswith("2C") else "=") + part[2:] for part in parts[1:]]))
    except ValueError as error:
        raise ScramError(str(error)) from None


def _read_final(message: str, header: bytes, nonce: str) -> tuple[str, bytes]:
    """(the message without its proof, the proof)"""
    without_proof, found, proof = message.rpartition(",p=")
    fields = without_proof.split(",")
    if not found or len(fields) < 2 or not fields[0].startswith("c=") or not fields[1].startswith("r="):
        raise ScramError("the final message has another form than c=header,r=nonce,p=proof")
    if fields[0][2:] != b64encode(header).decode():
        raise ScramError("the final message has another header than the first")
    if not hmac.compare_digest(fields[1][2:].encode(), nonce.encode()):
        raise ScramError("the final message has another nonce than the first answer")
    _check_extensions(fields[2:])
    try:
        data = b64decode(proof, validate=True)
    except ValueError:  # binascii.Error is one, and so is what text that is no ASCII gives
        raise ScramError("a proof that is no base64") from None
    if len(data) != _DIGEST_BYTES:
        raise ScramError(f"a proof of {len(data)} bytes, {_DIGEST_BYTES} are wanted")
    return without_proof, data


def _check_extensions(fields: list[str]) -> None:
    """They mean nothing to us, and have to have their form."""
    if not all(_EXTENSION.fullmatch(field) for field in fields):
        raise ScramError("an extension of another form than letter=value")


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes([a ^ b for a, b in zip(one, other, strict=True)])
