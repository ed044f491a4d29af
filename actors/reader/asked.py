"""What stands in a request: fields of JSON made into values, or one sentence about what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast_spark.protocol import Code, Refused
from mqtt.reason import ProtocolError
from mqtt.topics import parse_filter

POSITION_MAX = 1 << 63
FILTERS_MAX = 1000
CLIENTS_MAX = 10_000
Request = Mapping[str, Any]


def senseless(sentence: str) -> Refused:
    return Refused(Code.REQUEST, sentence)


def whole(request: Request, name: str, low: int = 0, high: int = POSITION_MAX) -> int:
    found = request.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
        raise senseless(f"{name} is {shown(found)}, and a whole number from {low} to {high} is wanted")
    return found


def whole_or_none(request: Request, name: str, low: int = 0, high: int = POSITION_MAX) -> int | None:
    return None if request.get(name) is None else whole(request, name, low, high)


def text(request: Request, name: str, length_max: int = 1024) -> str:
    found = request.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= length_max:
        raise senseless(f"{name} is {shown(found)}, and a text of 1 to {length_max} characters is wanted")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise senseless(f"{name} has a surrogate in it, and UTF-8 is wanted") from None
    return found


def shard(request: Request, n_shards: int) -> int:
    return whole(request, "shard", 0, n_shards - 1)


def by_shard(request: Request, name: str, n_shards: int) -> dict[int, int]:
    """`{"0": position, ..}`."""
    found = request.get(name)
    if not isinstance(found, dict):
        raise senseless(f'{name} is {shown(found)}, and an object such as {{"0": 17}} is wanted')
    positions: dict[int, int] = {}
    for key in sorted(found, key=lambda key: (len(key), key)):
        if not (key.isascii() and key.isdigit() and len(key) < 10) or str(int(key)) != key or int(key) >= n_shards:
            raise senseless(f"{name} names the shard {shown(key)}, and the store has the shards 0 to {n_shards - 1}")
        positions[int(key)] = whole(found, key)
    return positions


def ranges(request: Request, n_shards: int) -> dict[int, tuple[int, int]]:
    """`from` and `to`, of the same shards."""
    begins, ends = by_shard(request, "from", n_shards), by_shard(request, "to", n_shards)
    if begins.keys() != ends.keys():
        raise senseless(f"from names the shards {sorted(begins)} and to the shards {sorted(ends)}, and the same are wanted")
    for each, begin in begins.items():
        if begin > ends[each]:
            raise senseless(f"from is {begin} and to {ends[each]} in shard {each}, and from must not be the greater one")
    return {each: (begin, ends[each]) for each, begin in begins.items()}


def filters(request: Request, *, empty: bool = False) -> tuple[bytes, ...]:
    """Without `$share/name/`. empty: there may be none."""
    found = request.get("filters")
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found) or len(found) > FILTERS_MAX:
        raise senseless(f"filters is {shown(found)}, and a list of at most {FILTERS_MAX} topic filters is wanted")
    if not found and not empty:
        raise senseless("filters is an empty list, and at least one topic filter is wanted")
    try:
        return tuple(dict.fromkeys(parse_filter(each).filter for each in found))
    except ProtocolError as error:
        raise senseless(f"filters has one that is none: {error}") from None


def clients(request: Request) -> frozenset[bytes] | None:
    found = request.get("clients")
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found) or len(found) > CLIENTS_MAX:
        raise senseless(f"clients is {shown(found)}, and a list of at most {CLIENTS_MAX} client ids is wanted, or null")
    return frozenset(each.encode(errors="replace") for each in found)


def shards(request: Request, n_shards: int) -> frozenset[int] | None:
    found = request.get("shards")
    if found is None:
        return None
    if not isinstance(found, list) or not all(type(each) is int and 0 <= each < n_shards for each in found):
        raise senseless(f"shards is {shown(found)}, and a list of numbers from 0 to {n_shards - 1} is wanted, or null")
    return frozenset(found)


def shown(value: object) -> str:
    """For a sentence: never long."""
    found = repr(value)
    return found if len(found) <= 60 else f"{found[:57]}..."
