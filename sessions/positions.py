"""Where a subscription stands, as text that its client can keep: a place in each shard, behind one message.

It means only what it says: everything up to these places was delivered.  Whoever gives it back can read what his rights let him read,
however he came by it, so it is neither signed nor secret.  Text of an older form stays readable.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

import msgpack

from shards.frames import Place

MARK: Final = "@"
"""With which a position begins, and nothing else that a replay can begin with."""
_FORM: Final = 1
_CHARS_MAX: Final = 8_192
_POSITION_MAX: Final = 1 << 62
_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def encode_position(since_ms: int, places: Sequence[Place]) -> bytes:
    """since_ms: what was published before is left out of the history (0: nothing).  places: by shard."""
    rows = [place if place.horizon else place[:1] for place in places]
    return MARK.encode() + urlsafe_b64encode(_pack((_FORM, since_ms, rows))).rstrip(b"=")


def decode_position(text: str, n_shards: int) -> tuple[int, list[Place]]:
    """Raises ValueError, with one sentence for whoever wrote it."""
    try:
        if not text.startswith(MARK) or len(text) > _CHARS_MAX:
            raise ValueError
        data = text[len(MARK) :].encode("ascii")
        form, since_ms, rows = msgpack.unpackb(urlsafe_b64decode(data + b"=" * (-len(data) % 4)), raw=False)
        places = [Place(*row) for row in rows]
        if form != _FORM or not _is_number(since_ms) or not all(_is_sound(place) for place in places):
            raise ValueError
    except (ValueError, TypeError, msgpack.UnpackException):
        raise ValueError("this is no position that a message of this broker has carried") from None
    if len(places) != n_shards:
        raise ValueError(f"this position is of a store with {len(places)} shards, and there are {n_shards} here")
    return since_ms, places


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _POSITION_MAX


def _is_sound(place: Place) -> bool:
    """A cut of -1 is before everything."""
    numbers = (place.cut + 1, place.horizon, place.generation, place.position + 1)
    if not all(_is_number(number) for number in numbers) or not isinstance(place.static, bytes):
        return False
    return not place.horizon or place.cut <= place.position <= place.horizon
