"""Topic filters of rules: `${client_id}`, `${user}` and `${attr.NAME}` stand for what is known of the one who asks.

Always holds: a value becomes one level or a part of one, never a wildcard and never the $ that begins a topic; two values never become the
same level.  So nobody gets another's topics by his name.  That is why a level has one placeholder at most.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from access.identity import Identity
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_filter, is_shared

# A longer value counts as missing: rules are many, and each would have a copy of it.
VALUE_BYTES_MAX: Final = 1_024
_MEANT: Final = re.compile(rb"[/+#%\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\A\$")
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_NAME: Final = re.compile(r"client_id|user|attr\.[A-Za-z0-9_.-]{1,64}")
Values = Mapping[str, bytes]
"""By the name of the placeholder, escaped; what is missing or of no use is not there."""


class TemplateError(ValueError):
    """What was found and what was wanted, as the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A level with a placeholder."""

    before: bytes
    name: str
    after: bytes


@dataclass(frozen=True, slots=True)
class Template:
    """A topic filter by levels, before its placeholders are filled in."""

    levels: tuple[bytes | Piece, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of its placeholders."""
        return tuple([level.name for level in self.levels if isinstance(level, Piece)])

    def fill(self, values: Values, allow: bool) -> tuple[bytes, ...] | None:
        """The filter by levels.  A value is missing: None for a rule that allows; in one that denies the level matches everything."""
        levels: list[bytes] = []
        for level in self.levels:
            if isinstance(level, bytes):
                levels.append(level)
            elif (value := values.get(level.name)) is not None:
                levels.append(level.before + value + level.after if level.before or level.after else value)
            elif allow:
                return None
            else:
                levels.append(b"+")
        return tuple(levels)

    def widest(self) -> bytes:
        """A topic filter that matches whatever this one matches, filled in for anybody."""
        return b"/".join([level if isinstance(level, bytes) else b"+" for level in self.levels])


def parse_template(text: str) -> Template:
    """Raises TemplateError for what is no topic filter, whatever is filled in."""
    try:
        # With a value that is like any other: every value is a part of a level, without wildcards.
        filled = check_topic_filter(_PLACEHOLDER.sub("x", text))
    except ProtocolError as error:
        raise TemplateError(error.detail) from None
    if is_shared(filled):
        raise TemplateError("a shared subscription, wanted is the filter behind its share name, and the right `share`")
    levels = tuple([_level(level) for level in text.split("/")])
    if isinstance(levels[0], Piece) and levels[0].before.startswith(b"$"):
        raise TemplateError("its first level begins with $ and has a placeholder, only one of both is allowed")
    return Template(levels)


def values_of(who: Identity, client: bytes) -> dict[str, bytes]:
    """What placeholders stand for, for this one."""
    found = {"client_id": client, "user": _encoded(who.user)}
    for name, value in who.attributes:
        # Two of one name: nobody can say which is meant.
        found[f"attr.{name}"] = b"" if f"attr.{name}" in found else _encoded(value)
    return {name: escape(value) for name, value in found.items() if _is_usable(value)}


def escape(value: bytes) -> bytes:
    """One level, without wildcards and without a $ at its beginning; a value is found again in what is made of it."""
    return _MEANT.sub(_percent, value)


def _percent(found: re.Match[bytes]) -> bytes:
    return b"".join([b"%%%02X" % byte for byte in found[0]])


def _is_usable(value: bytes) -> bool:
    if not 0 < len(value) <= VALUE_BYTES_MAX:
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _encoded(value: str) -> bytes:
    """Nothing, where there is no UTF-8 for it."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return b""


def _level(text: str) -> bytes | Piece:
    before, *found = _PLACEHOLDER.split(text)
    if any("${" in part for part in (before, *found[1::2])):
        raise TemplateError("a placeholder without its }")
    if not found:
        return text.encode()
    name, after, *others = found
    if others:
        raise TemplateError(f"{len(found) // 2} placeholders in one level, at most one is allowed")
    if not _NAME.fullmatch(name):
        raise TemplateError(f"{name[:64]!r} is no placeholder, known are client_id, user and attr.NAME")
    return Piece(before.encode(), name, after.encode())
