"""Who somebody is, found once at CONNECT.

An identity has a form in bytes, because wills, delayed and retained messages are judged again when nobody is connected: a msgpack array
of version, user, how, groups, attributes and grants; no bytes at all are the anonymous one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar
from unicodedata import category

import msgpack

from access.rights import Right

PACKED_BYTES_MAX: Final = 8_192
NAME_BYTES_MAX: Final = 256
_VERSION = 1
_ALL_RIGHTS = sum(Right)
_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token brought along: these rights on these topic filters."""

    rights: Right
    filters: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """user: "" is the anonymous one.  how: in which way it was found.  attributes: texts that placeholders of rules may name."""

    user: str
    how: str
    groups: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    grants: tuple[Grant, ...] = ()

    def pack(self) -> bytes:
        """Raises ValueError for one that is larger than an identity may be."""
        if self is ANONYMOUS or self == ANONYMOUS:
            return b""
        grants = [(int(grant.rights), grant.filters) for grant in self.grants]
        data = bytes(_pack((_VERSION, self.user, self.how, self.groups, self.attributes, grants)))
        if len(data) > PACKED_BYTES_MAX:
            raise ValueError(f"the identity of {self.user[:64]!r} has {len(data)} bytes, at most {PACKED_BYTES_MAX} are allowed")
        return data

    @staticmethod
    def unpack(data: bytes) -> Identity:
        """Raises ValueError for anything that `pack` does not make."""
        if not data:
            return ANONYMOUS
        if len(data) > PACKED_BYTES_MAX:
            raise ValueError(f"an identity of {len(data)} bytes found, at most {PACKED_BYTES_MAX} are allowed")
        try:
            version, user, how, groups, attributes, grants = msgpack.unpackb(data, raw=False, use_list=False)
            if version != _VERSION:
                raise ValueError(f"version {version!r} found, {_VERSION} is the newest this program reads")
            return Identity(
                _a(str, user),
                _a(str, how),
                tuple([_a(str, group) for group in _a(tuple, groups)]),
                tuple([(_a(str, name), _a(str, value)) for name, value in _a(tuple, attributes)]),
                tuple([_grant(rights, filters) for rights, filters in _a(tuple, grants)]),
            )
        except (msgpack.UnpackException, TypeError, ValueError) as error:
            raise ValueError(f"not an identity: {error}") from None


def check_name(name: str, what: str = "the user name") -> str:
    """What may be the name of a user or a group, as it is.  Raises ValueError, without the name: some of what is tried is a secret."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} has no form in UTF-8") from None
    if not 1 <= size <= NAME_BYTES_MAX:
        raise ValueError(f"{what} has {size} bytes, 1 to {NAME_BYTES_MAX} are allowed")
    if not name.isprintable():
        for position, character in enumerate(name, start=1):
            if category(character) == "Cc":
                raise ValueError(f"{what} has the control character U+{ord(character):04X} at place {position}")
    return name


def _grant(rights: Any, filters: Any) -> Grant:
    if not 0 <= _a(int, rights) <= _ALL_RIGHTS:
        raise ValueError(f"rights {rights} found, 0 to {_ALL_RIGHTS} are known")
    return Grant(Right(rights), tuple([_a(bytes, each) for each in _a(tuple, filters)]))


def _a(kind: type[Kind], value: Any) -> Kind:
    if type(value) is not kind:
        raise ValueError(f"{type(value).__name__} found, {kind.__name__} wanted")
    return value


ANONYMOUS: Final = Identity("", "anonymous")
