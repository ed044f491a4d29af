"""API keys: who may ask the admin process for what, by a file of them in the data directory.

A key has a name for people, an id that it is found by, a secret of which the file has only the hash, and a scope. Leaves to others when
the file is read, what time it is, and where hashes are checked.

A file is read whole or not at all. No message of this module has any part of a secret or of a hash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from access.passwords import cost, verify

FILE_NAME: Final = "api-keys.json"
"""In the data directory."""
KEYS_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 1 << 20
ID_BYTES: Final = 9
SECRET_BYTES: Final = 32
"""Random ones, told in base64 without padding."""
NAME_ALLOWED: Final = "1 to 64 letters, digits and . _ -"
_NAME = r"^[A-Za-z0-9._-]{1,64}$"
_ID = r"^[A-Za-z0-9_-]{1,64}$"
Scope = Literal["read", "write"]
"""write: everything, reading included."""


class KeyFileError(ValueError):
    """A file of keys that is not taken: one sentence without its full stop."""


class ApiKey(BaseModel):
    """hash: as entries of password files have it.  expires_at_ms None: never.  Times are milliseconds since 1970."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=_NAME)]
    id: Annotated[str, Field(pattern=_ID)]
    scope: Scope
    hash: str
    created_at_ms: int
    expires_at_ms: int | None = None

    @model_validator(mode="after")
    def _readable(self) -> Self:
        # Raises for a hash that could not be checked, or would cost too much.
        cost(self.hash)
        return self

    def expired(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and now_ms >= self.expires_at_ms

    def matches(self, secret: str) -> bool:
        """Takes some 20 ms of CPU."""
        return verify(self.hash, secret.encode())


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1]
    keys: Annotated[list[ApiKey], Field(max_length=KEYS_MAX)]


@dataclass(frozen=True, slots=True)
class Shown:
    """What somebody who asks has shown."""

    id: str
    secret: str


def read_keys(data: bytes) -> list[ApiKey]:
    """In the order of the file; nothing at all is an empty one.  Raises KeyFileError."""
    if not data:
        return []
    if len(data) > FILE_BYTES_MAX:
        raise KeyFileError(f"a file of {len(data)} bytes found, at most {FILE_BYTES_MAX} are allowed")
    try:
        keys = _File.model_validate_json(data).keys
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise KeyFileError(f"{where} is not as it has to be ({first['type']})") from None
    for what, found in (("name", [key.name for key in keys]), ("id", [key.id for key in keys])):
        if len(set(found)) < len(found):
            raise KeyFileError(f"two keys have the same {what}")
    return keys


def written(keys: list[ApiKey]) -> bytes:
    """Raises KeyFileError when there are too many."""
    if len(keys) > KEYS_MAX:
        raise KeyFileError(f"more than {KEYS_MAX} keys")
    return _File(version=1, keys=keys).model_dump_json(indent=1).encode() + b"\n"


def check_name(name: str) -> str:
    """Raises ValueError."""
    if not re.match(_NAME, name) or name.endswith("\n"):
        raise ValueError(f"{name!r} is no name of a key: {NAME_ALLOWED} are wanted")
    return name


def bearer(id: str, secret: str) -> str:
    """Both as one token."""
    return f"{id}.{secret}"


def shown_as_bearer(token: str) -> Shown | None:
    id, dot, secret = token.partition(".")
    return Shown(id, secret) if dot else None


def shown_as_basic(pair: str) -> Shown | None:
    id, colon, secret = pair.partition(":")
    return Shown(id, secret) if colon else None
