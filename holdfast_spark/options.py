"""The options of `format("holdfast")` for reading: their names, what they may be, what they are when nobody says.

One table, `OPTIONS`; each is read by one function. What is wrong is one sentence: the option, what was found, what is wanted. An option
that is not in the table is an error too: a misspelled `maxRowsPerTrigger` that limits nothing would be found out too late.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

from holdfast_spark.client import Endpoint, parse_brokers
from holdfast_spark.offsets import BadOffset, Offset, parse_offset
from holdfast_spark.schema import UnknownColumn, check_columns

ROWS_PER_PARTITION: Final = 250_000
NAMED: Final = 12
"""Options in an error."""
"""About a quarter of a second of work: enough that starting a task does not count, little enough to be done again."""

Place = Literal["earliest", "latest", "lease"] | Offset


class OptionError(ValueError):
    """An option that is unknown, ill-formed, or at odds with another."""


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    name: str
    ttl_ms: int
    max_age_ms: int | None
    max_bytes: int | None
    block: bool
    capture: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reading is to be. ``starting`` None: not said; batch and stream differ in what that means."""

    endpoint: Endpoint
    filters: tuple[str, ...]
    clients: tuple[str, ...] | None
    shards: tuple[int, ...] | None
    columns: tuple[str, ...] | None
    starting: Place | None
    ending: Place | None
    ts_from_ms: int | None
    ts_before_ms: int | None
    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_delay_ms: int
    min_partitions: int
    rows_per_partition: int
    fail_on_loss: bool
    drop_expired: bool
    pushdown: bool
    lease: LeaseOptions | None
    exclude: Mapping[int, Mapping[int, int]]
    """Shard -> generation -> position below which it is read elsewhere, as in an archive."""


# ---------------------------------------------------------------------------------------------- values


def _text(value: str) -> str:
    if not value:
        raise ValueError("a text that is not empty")
    return value


def _brokers(value: str) -> tuple[tuple[str, int], ...]:
    try:
        return parse_brokers(value)
    except ValueError:
        raise ValueError("host:port, several of them with commas between") from None


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def _count(value: str) -> int:
    if not re.fullmatch(r"\d{1,18}", value) or int(value) < 1:
        raise ValueError("a whole number from 1")
    return int(value)


_DURATIONS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES: Final = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _duration_ms(value: str) -> int:
    found = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|h|d)", value)
    if not found:
        raise ValueError("a duration with its unit, such as 500ms, 30s, 10m, 12h or 7d")
    return int(found[1]) * _DURATIONS[found[2]]


def _size(value: str) -> int:
    found = re.fullmatch(r"(\d{1,15})\s*([KMGT]i?B|B|)", value)
    if not found or int(found[1]) < 1:
        raise ValueError("a number of bytes, or a size such as 64MiB or 10GB")
    return int(found[1]) * _SIZES[found[2]]


def _time_ms(value: str) -> int:
    if re.fullmatch(r"\d{1,15}", value):
        return int(value)
    try:
        # A time without a zone is somebody's local one, and nobody knows whose.
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError("milliseconds since 1970, or a time with its zone such as 2026-11-21T20:00:00Z")
    since = found.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400_000) + since.seconds * 1000 + since.microseconds // 1000


def _list(value: str) -> tuple[str, ...]:
    """With commas between, or a JSON array for what has commas in it."""
    if value.lstrip().startswith("["):
        try:
            found = json.loads(value)
        except ValueError:
            raise ValueError("a list with commas between, or a JSON array of strings") from None
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise ValueError("a list with commas between, or a JSON array of strings")
        pieces = found
    else:
        pieces = [piece.strip() for piece in value.split(",")]
    if not pieces or "" in pieces:
        raise ValueError("a list without empty pieces")
    return tuple(dict.fromkeys(pieces))


def _filters(value: str) -> tuple[str, ...]:
    found = _list(value)
    for each in found:
        levels = each.split("/")
        wrong = "\0" in each or len(each.encode("utf-8", "surrogatepass")) > 65535
        wrong |= any(("+" in level and level != "+") or ("#" in level and level != "#") for level in levels) or "#" in levels[:-1]
        if wrong or levels[0] == "$share":
            raise ValueError(f"topic filters such as plant/+/temp or plant/#, and {each[:80]!r} is none")
    return found


def _shards(value: str) -> tuple[int, ...]:
    pieces = _list(value)
    if not all(re.fullmatch(r"\d{1,4}", piece) for piece in pieces):
        raise ValueError("numbers of shards with commas between, such as 0,1")
    return tuple(sorted({int(piece) for piece in pieces}))


def _columns(value: str) -> tuple[str, ...]:
    try:
        return check_columns(_list(value))
    except UnknownColumn as error:
        raise ValueError(f"columns of the source: {error}") from None


def _place(value: str) -> Place:
    if value in ("earliest", "latest", "lease"):
        return value  # type: ignore[return-value]  # mypy does not narrow to a literal by `in`
    try:
        return parse_offset(value)
    except BadOffset as error:
        raise ValueError(f"earliest, latest, lease or an offset: {error}") from None


def _exclude(value: str) -> Mapping[int, Mapping[int, int]]:
    wanted = 'shards, their generations and positions, such as {"0":{"12":4711}}'
    try:
        found = {int(shard): {int(number): at for number, at in of.items()} for shard, of in json.loads(value).items()}
    except (ValueError, AttributeError):
        raise ValueError(wanted) from None
    if not all(type(at) is int and at >= 0 for of in found.values() for at in of.values()):
        raise ValueError(wanted)
    return found


def _lease_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value):
        raise ValueError("a name of up to 64 letters, digits, dots, underlines and hyphens")
    return value


OPTIONS: Final[Mapping[str, Callable[[str], Any]]] = {
    "brokers": _brokers,
    "token": _text,
    "tokenFile": _text,
    "tls": _flag,
    "caFile": _text,
    "topicFilter": _filters,
    "clientIds": _list,
    "shards": _shards,
    "columns": _columns,
    "startingOffsets": _place,
    "endingOffsets": _place,
    "startingTimestamp": _time_ms,
    "endingTimestamp": _time_ms,
    "maxRowsPerTrigger": _count,
    "maxBytesPerTrigger": _size,
    "minRowsPerTrigger": _count,
    "maxTriggerDelay": _duration_ms,
    "minPartitions": _count,
    "maxRowsPerPartition": _count,
    "failOnDataLoss": _flag,
    "lease": _lease_name,
    "leaseTtl": _duration_ms,
    "leaseMaxAge": _duration_ms,
    "leaseMaxBytes": _size,
    "leaseBlock": _flag,
    "capture": _filters,
    "dropExpired": _flag,
    "exclude": _exclude,
    "pushdown": _flag,
}
"""Name -> how its text is read."""

_STREAM_ONLY: Final = ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "maxTriggerDelay")
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "exclude")
_OF_A_LEASE: Final = ("leaseTtl", "leaseMaxAge", "leaseMaxBytes", "leaseBlock", "capture")


def read_options(given: Mapping[str, str], *, stream: bool | None) -> ReadOptions:
    """All options of a reading; stream None: of either kind. Reads the files that they name: on the driver, which is where they are."""
    found = read_values(given, OPTIONS)
    _check_together(found, stream=stream)
    lease = None
    if "lease" in found:
        lease = LeaseOptions(
            found["lease"],
            found.get("leaseTtl", 7 * _DURATIONS["d"]),
            found.get("leaseMaxAge"),
            found.get("leaseMaxBytes"),
            found.get("leaseBlock", False),
            found.get("capture", ()),
        )
    return ReadOptions(
        endpoint=endpoint_of(found),
        filters=found.get("topicFilter", ("#",)),
        clients=found.get("clientIds"),
        shards=found.get("shards"),
        columns=found.get("columns"),
        starting=found.get("startingOffsets"),
        ending=found.get("endingOffsets"),
        ts_from_ms=found.get("startingTimestamp"),
        ts_before_ms=found.get("endingTimestamp"),
        max_rows=found.get("maxRowsPerTrigger"),
        max_bytes=found.get("maxBytesPerTrigger"),
        min_rows=found.get("minRowsPerTrigger"),
        max_delay_ms=found.get("maxTriggerDelay", 15 * _DURATIONS["m"]),
        min_partitions=found.get("minPartitions", 1),
        rows_per_partition=found.get("maxRowsPerPartition", ROWS_PER_PARTITION),
        fail_on_loss=found.get("failOnDataLoss", True),
        drop_expired=found.get("dropExpired", False),
        pushdown=found.get("pushdown", False),
        lease=lease,
        exclude=found.get("exclude", {}),
    )


def _check_together(found: Mapping[str, Any], *, stream: bool | None) -> None:
    for name in () if stream is None else _BATCH_ONLY if stream else _STREAM_ONLY:
        if name in found:
            raise OptionError(f"option {name} is for {'batch' if stream else 'stream'} reading, and this is the other")
    for first, second in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        _either(found, first, second)
    for name in _OF_A_LEASE:
        if name in found and "lease" not in found:
            raise OptionError(f"option {name} belongs to a lease, and option lease is not given")
    if "lease" not in found and "lease" in (found.get("startingOffsets"), found.get("endingOffsets")):
        raise OptionError("offsets are to be those of a lease, and option lease is not given")
    if found.get("endingOffsets") == "earliest":
        raise OptionError("option endingOffsets is 'earliest'; wanted is latest, lease or an offset, since nothing is before the earliest")
    if "maxTriggerDelay" in found and "minRowsPerTrigger" not in found:
        raise OptionError("option maxTriggerDelay is how long minRowsPerTrigger may wait, and that is not given")


def _either(found: Mapping[str, Any], first: str, second: str) -> None:
    if first in found and second in found:
        raise OptionError(f"options {first} and {second} say the same thing twice; leave one out")


def _near(key: str, spelled: Mapping[str, str]) -> str:
    """What may have been meant: all of them would be half a page."""
    if near := [spelled[name] for name in get_close_matches(key.lower(), spelled)]:
        return f"{' or '.join(near)}, or another one of docs/pipeline.md"
    names = list(spelled.values())
    more = f" and {len(names) - NAMED} others of docs/pipeline.md" if len(names) > NAMED else ""
    return f"one of {', '.join(names[:NAMED])}{more}"


def read_values(given: Mapping[str, str], table: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """The values of options as Spark gives them, by their names in the table, whatever their capitals."""
    spelled = {name.lower(): name for name in table}
    found: dict[str, Any] = {}
    for key, text in given.items():
        name = spelled.get(key.lower())
        if name is None:
            raise OptionError(f"option {key!r} is unknown; wanted is {_near(key, spelled)}")
        try:
            found[name] = table[name](str(text))
        except ValueError as error:
            shown = "not one" if name == "token" else repr(str(text)[:100])
            raise OptionError(f"option {name} is {shown}; wanted is {error}") from None
    return found


def endpoint_of(found: Mapping[str, Any]) -> Endpoint:
    """Where the reader is, of the values of options."""
    _either(found, "token", "tokenFile")
    if "caFile" in found and not found.get("tls", False):
        raise OptionError("option caFile is given and tls is not true; wanted are both or neither")
    if "brokers" not in found:
        raise OptionError("option brokers is missing; wanted is host:port of a reader, such as 127.0.0.1:7883")
    token = found.get("token")
    if "tokenFile" in found:
        path = found["tokenFile"]
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise OptionError(f"option tokenFile is {path!r}, which cannot be read: {error}") from None
        token = lines[0].strip() if lines else ""
    if not token:
        raise OptionError("option token is missing or empty; wanted is a token of the reader, or tokenFile with one in its first line")
    ca_pem = None
    if "caFile" in found:
        path = found["caFile"]
        try:
            ca_pem = Path(path).read_text(encoding="utf-8")
            ssl.create_default_context(cadata=ca_pem)
        except (OSError, ValueError) as error:
            raise OptionError(f"option caFile is {path!r}, which holds no certificates that can be read: {error}") from None
    return Endpoint(found["brokers"], token, found.get("tls", False), ca_pem)
