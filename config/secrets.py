"""Settings that are secrets: where one lies, never the secret itself, so that no configuration has any in it.

    "file:///etc/holdfast/key.txt"    the first line of that file
    "env:HOLDFAST_KEY"                that variable of the environment `holdfast up` was called with

Always holds: no message of this module has any part of what was given where a reference was wanted, or of what a reference led to.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic.json_schema import JsonSchemaValue

from config.values import _Text

SECRET_ALLOWED = '"file:///absolute/path", "env:NAME" or "", never the secret itself'
CLUSTER_SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 64 * 1024
KEYS_BYTES_MAX = 2**20
HIDDEN = "(a text that is not shown)"
"""Stands for a value that was given where a secret's place is wanted: it may be the secret."""

_FILE, _ENV, _FETCHED = "file://", "env:", "https://"
_FORM = re.compile(r"file:///[^\0\n]{1,4096}|env:[A-Za-z_][A-Za-z0-9_]{0,255}|")
_ADDRESS = re.compile(r"https://[^\s/?#@\\]+(/[^\s#]*)?")


class SecretError(ValueError):
    """A secret that cannot be had: one sentence without its full stop."""


class Secret(_Text, str):
    """Where a secret lies; empty: there is none."""

    json_type: ClassVar[JsonSchemaValue] = {"type": "string", "pattern": rf"^({_FORM.pattern})$"}
    fetched: ClassVar[bool] = False
    bytes_min: ClassVar[int] = 1
    bytes_max: ClassVar[int] = SECRET_BYTES_MAX

    @classmethod
    def parse(cls, raw: object) -> Self:
        if isinstance(raw, str) and (_FORM.fullmatch(raw) or (cls.fetched and _ADDRESS.fullmatch(raw))):
            return cls(raw)
        raise ValueError("not the place of a secret")

    @property
    def is_local(self) -> bool:
        """Whether it is read here, when the configuration is."""
        return bool(self) and not self.startswith(_FETCHED)

    def __str__(self) -> str:
        return str.__str__(self)


class ClusterSecret(Secret):
    """One that is long enough not to be guessed by who has heard a proof of it."""

    bytes_min: ClassVar[int] = CLUSTER_SECRET_BYTES_MIN


class Keys(Secret):
    """Where keys lie that tokens are checked with: a secret, or a set of public keys, which may be at an https:// address as well."""

    json_type: ClassVar[JsonSchemaValue] = {"type": "string", "pattern": rf"^({_FORM.pattern}|{_ADDRESS.pattern})$"}
    fetched: ClassVar[bool] = True
    bytes_max: ClassVar[int] = KEYS_BYTES_MAX


def read_secret(place: Secret, environ: Mapping[str, str]) -> bytes:
    """What lies there: the first line, or all of it where it is a set of keys.  Raises SecretError."""
    if place.startswith(_ENV):
        name = place.removeprefix(_ENV)
        if name not in environ:
            raise SecretError(f"the environment has no variable {name}")
        return _first_line(environ[name].encode(errors="surrogateescape"), f"the variable {name} of the environment", place)
    path = Path(place.removeprefix(_FILE))
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            data = file.read(place.bytes_max + 1)
    except OSError as error:
        raise SecretError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise SecretError("its path is none") from None
    public_keys = isinstance(place, Keys) and data.lstrip().startswith(b"{")
    if stat.S_ISREG(mode) and mode & stat.S_IROTH and not public_keys:
        raise SecretError(f"everybody may read {path}, wanted are permissions such as 0600")
    if public_keys:
        if len(data) > place.bytes_max:
            raise SecretError(f"{path} has more than {place.bytes_max} bytes")
        return data
    return _first_line(data, str(path), place)


def _first_line(data: bytes, where: str, place: Secret) -> bytes:
    line = data.split(b"\n", 1)[0].removesuffix(b"\r")
    if not line:
        raise SecretError(f"{where} has nothing in its first line")
    if len(line) < place.bytes_min:
        raise SecretError(f"the first line of {where} has {len(line)} bytes, wanted are at least {place.bytes_min}")
    if len(line) > place.bytes_max:
        raise SecretError(f"the first line of {where} has more than {place.bytes_max} bytes")
    return line
