"""What a payload says: CBOR and MessagePack to values of a Spark schema, and topics to the rules that name them.

Runs on executors, one Arrow batch at a time, and on the driver where a schema is to be inferred.  Knows no DataFrame: decoders.py
puts it into a query.  The libraries of the two formats are loaded by the first payload that needs them: who decodes neither on a cluster
needs neither there.

What always holds: whatever the payload is, the answer is values of the schema or an Unreadable with one sentence; bytes of a payload are
never in the sentence, since sentences get into logs.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql import types as t

Format = Literal["json", "cbor", "msgpack"]
Coerce = Callable[[Any], Any]

DEPTH_MAX: Final = 100
"""Deeper values are refused: what holds them afterwards, Spark's rows among it, is recursive code."""
DIGITS_MAX: Final = 400
"""Of a number that is written out; turning longer ones into text takes a time that grows with the square of it."""
ERROR_FIELD: Final = "_decode_error"
RULE_FIELD: Final = "_decode_rule"
_DECIMALS: Final = Context(prec=100)
"""More digits than any decimal of Spark's, which has 38."""
_FLOAT_MAX: Final = float.fromhex("0x1.ffffffp+127")
"""From here on a number is rounded to infinity in 32 bits."""
# Of its own in each process, so that no payload ends in it.
_END: Final = b"\x50" + os.urandom(16)
UNDEFINED: Final = "UndefinedType"
"""Of CBOR: a second null."""
_INTEGERS: Final[dict[type[t.DataType], int]] = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}


class Unreadable(Exception):
    """A payload that is not what the rule says; str() of it is why."""


# ---------------------------------------------------------------------------------------------------- formats


def load_json(payload: bytes) -> Any:
    """For inferring only: queries read JSON on the JVM."""
    try:
        return json.loads(payload)
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except (ValueError, UnicodeDecodeError):
        raise Unreadable("it is not JSON") from None


def load_cbor(payload: bytes) -> Any:
    import cbor2

    try:
        # As the first of two in a list: the library would not say that something follows after the end, the wrong second one does.
        value, end = cbor2.loads(b"\x82" + payload + _END, max_depth=DEPTH_MAX)
    except cbor2.CBORDecodeEOF:
        raise Unreadable("it ends in the middle") from None
    except (cbor2.CBORError, ValueError, ArithmeticError, TypeError, RecursionError, OverflowError, LookupError) as error:
        raise Unreadable(f"it is not CBOR ({_said(error)})") from None
    if end != _END[1:]:
        raise Unreadable("something follows after its end")
    return value


def load_msgpack(payload: bytes) -> Any:
    import msgpack

    try:
        # A map may have any keys here; what is no field of the schema is passed over later.
        return msgpack.unpackb(payload, strict_map_key=False, timestamp=3)
    except msgpack.ExtraData:
        raise Unreadable("something follows after its end") from None
    except msgpack.StackError:
        raise Unreadable("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise Unreadable("a text in it is not UTF-8") from None
    except (msgpack.UnpackException, ValueError, ArithmeticError, TypeError, RecursionError) as error:
        said = _said(error)
        raise Unreadable("it ends in the middle" if "incomplete" in said else f"it is not MessagePack ({said})") from None


LOADERS: Final[dict[str, Callable[[bytes], Any]]] = {"json": load_json, "cbor": load_cbor, "msgpack": load_msgpack}


def load(format: str, payload: bytes | None) -> Any:
    if not payload:
        raise Unreadable("it is empty")
    return LOADERS[format](payload)


def _said(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:120]


# ---------------------------------------------------------------------------------------------------- values of a schema


def coerced(of: t.DataType) -> Coerce:
    """A function from what a library made of a payload to what Arrow takes for this type; it raises Unreadable.

    Nothing is guessed: a text is no number, and a number with a fraction is no integer.  Text takes everything, as Spark's JSON does.
    """
    inner = _coerced(of)
    return lambda value: None if value is None else inner(value)


def _coerced(of: t.DataType) -> Coerce:
    if type(of) in _INTEGERS:
        return _integer(of.simpleString(), _INTEGERS[type(of)])
    if isinstance(of, t.DoubleType):
        return _real
    if isinstance(of, t.FloatType):
        return _short_real
    if isinstance(of, t.BooleanType):
        return lambda value: value if isinstance(value, bool) else _unfit(value, "a boolean")
    if isinstance(of, t.StringType):
        return lambda value: value if isinstance(value, str) else _text(value)
    if isinstance(of, t.BinaryType):
        return lambda value: bytes(value) if isinstance(value, bytes | bytearray) else _unfit(value, "bytes")
    if isinstance(of, t.DecimalType):
        return _decimal(of.precision, of.scale)
    if isinstance(of, t.TimestampType):
        return _moment
    if isinstance(of, t.DateType):
        return _day
    if isinstance(of, t.ArrayType):
        return _array(coerced(of.elementType))
    if isinstance(of, t.MapType) and isinstance(of.keyType, t.StringType):
        return _map(coerced(of.valueType))
    if isinstance(of, t.StructType):
        return _struct(of)
    if isinstance(of, t.VariantType):
        raise ValueError(
            'a field of type VARIANT is read from JSON only: for the whole payload of another format say "variant" instead of a schema'
        )
    raise ValueError(f"no payload is read as {of.simpleString()}")


def _unfit(value: Any, wanted: str) -> Any:
    if type(value).__name__ == UNDEFINED:
        return None
    raise Unreadable(f"{kind(value)} is where {wanted} is wanted")


def kind(value: Any) -> str:
    if value is None or type(value).__name__ == UNDEFINED:
        return "a null"
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        Decimal: "a number",
        str: "a text",
        bytes: "bytes",
        list: "a list",
        dict: "a map",
    }
    return names.get(type(value), f"a {type(value).__name__}")


def _text(value: Any) -> Any:
    return None if type(value).__name__ == UNDEFINED else json_text(value)


def _integer(name: str, bits: int) -> Coerce:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def integer(value: Any) -> Any:
        if type(value) is not int:
            return _unfit(value, f"{name}")
        return value if low <= value <= high else _unfit(value, f"a {name} that holds it")

    return integer


def _real(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is not int and not isinstance(value, Decimal):
        return _unfit(value, "a number")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    return real if math.isfinite(real) else _unfit(value, "a double that holds it")


def _short_real(value: Any) -> Any:
    real = _real(value)
    # Null, not a number and infinity stay what they are.
    return _unfit(value, "a float that holds it") if real is not None and _FLOAT_MAX <= abs(real) < math.inf else real


def _decimal(precision: int, scale: int) -> Coerce:
    wanted = f"decimal({precision},{scale})"

    def decimal(value: Any) -> Any:
        if type(value) is int and value.bit_length() < 4 * DIGITS_MAX:
            value = Decimal(value)
        elif type(value) is float and math.isfinite(value):
            value = Decimal(repr(value))
        if not isinstance(value, Decimal) or not value.is_finite():
            return _unfit(value, wanted)
        # adjusted() is the power of ten of the first digit: known without writing the number out.
        if value and value.adjusted() >= precision - scale:
            return _unfit(value, f"a {wanted} that holds it")
        if value.adjusted() <= -DIGITS_MAX:
            return Decimal(0)
        rounded = value.quantize(Decimal(1).scaleb(-scale), context=_DECIMALS)
        # Rounding up may have made it longer.
        return rounded if not rounded or rounded.adjusted() < precision - scale else _unfit(value, f"a {wanted} that holds it")

    return decimal


def _moment(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return _unfit("", "a time")
    if not isinstance(value, datetime):
        return _unfit(value, "a time")
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Unreadable("a time is where one of the years 1 to 9999 is wanted") from None


def _day(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            return _unfit("", "a date")
    return value if isinstance(value, date) and not isinstance(value, datetime) else _unfit(value, "a date")


def _array(element: Coerce) -> Coerce:
    return lambda value: [element(one) for one in value] if isinstance(value, list | tuple) else _unfit(value, "a list")


def _map(of: Coerce) -> Coerce:
    def mapping(value: Any) -> Any:
        if not isinstance(value, dict):
            return _unfit(value, "a map")
        return [(key_text(key), of(one)) for key, one in value.items()]

    return mapping


def _struct(of: t.StructType) -> Coerce:
    fields = [(field.name, coerced(field.dataType)) for field in of.fields]

    def struct(value: Any) -> Any:
        if not isinstance(value, dict):
            return _unfit(value, "a map")
        made = {}
        for name, coerce in fields:
            try:
                made[name] = coerce(value.get(name))
            except Unreadable as why:
                raise Unreadable(f"{name}: {why}") from None
        return made

    return struct


def _columns(of: t.StructType) -> Coerce:
    """Of a whole payload: what stands for nothing is no map either."""
    struct = _struct(of)

    def columns(value: Any) -> Any:
        made = struct(value)
        return made if made is not None else _unfit(None, "a map")

    return columns


def key_text(key: Any) -> str:
    return key if isinstance(key, str) else json_text(key)


def json_text(value: Any) -> str:
    """As JSON: bytes in base64, times in ISO 8601, numbers that JSON has no word for as text."""
    try:
        return json.dumps(_plain(value, 0), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it cannot be written as JSON ({_said(error)})") from None


def _plain(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        # CBOR can hold a list that holds itself.
        raise Unreadable("it is nested too deeply")
    if value is None or type(value).__name__ == UNDEFINED:
        return None
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < 4 * DIGITS_MAX else _unfit(value, "a number of a reasonable length")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key_text(key): _plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(one, depth + 1) for one in value), key=repr)
    if isinstance(value, datetime | date):
        return value.isoformat()
    tag = getattr(value, "tag", None)
    if tag is not None and hasattr(value, "value"):
        return {"tag": tag, "value": _plain(value.value, depth + 1)}
    return str(value)[:65_535]


# ---------------------------------------------------------------------------------------------------- topics


def levels_of(topic_filter: str) -> list[str]:
    """The levels of a topic filter; ValueError with one sentence when it is none."""
    levels = topic_filter.split("/")
    if not topic_filter or "\0" in topic_filter:
        raise ValueError(f"{topic_filter!r} is no topic filter: it is empty or has U+0000 in it")
    if topic_filter.startswith("$share/"):
        raise ValueError(f"{topic_filter!r} begins with $share: name the topics themselves")
    for number, level in enumerate(levels, 1):
        if ("#" in level or "+" in level) and len(level) > 1:
            raise ValueError(f"{topic_filter!r} is no topic filter: a wildcard stands for a whole level")
        if level == "#" and number < len(levels):
            raise ValueError(f"{topic_filter!r} is no topic filter: # is the last level or nowhere")
    return levels


def matches(levels: Sequence[str], topic: str) -> bool:
    """Whether the filter with these levels matches the topic, as MQTT says it."""
    names = topic.split("/")
    if levels[0] in ("+", "#") and topic.startswith("$"):
        return False
    for number, level in enumerate(levels):
        if level == "#":
            return True
        if number == len(names) or level not in ("+", names[number]):
            return False
    return len(levels) == len(names)


def regex_of(topic_filter: str) -> str:
    """What `matches` says, as a regular expression for the JVM, which must find it at the beginning."""
    levels = levels_of(topic_filter)
    parts = []
    for number, level in enumerate(levels):
        before = "/" if number else ""
        if level == "#":
            # The parent level is matched as well.
            parts.append(f"(?:{before}.*)?" if number else ".*")
        else:
            parts.append(before + ("[^/]*" if level == "+" else _quoted(level)))
    return ("^(?!\\$)" if levels[0] in ("+", "#") else "^") + "(?s:" + "".join(parts) + ")\\z"


def _quoted(text: str) -> str:
    return "".join(char if char.isalnum() or char in "_ " else f"\\x{{{ord(char):x}}}" for char in text)


# ---------------------------------------------------------------------------------------------------- a batch at a time


@dataclass(frozen=True, slots=True)
class Plan:
    """What an executor makes of the rows of a DataFrame; `rules` holds (levels of the filter, format, schema or None for JSON text)."""

    rules: tuple[tuple[tuple[str, ...], str, t.StructType | None], ...]
    made: tuple[tuple[str, pa.DataType], ...]
    """The columns that come on top, ERROR_FIELD and RULE_FIELD after them."""
    prefix: str
    """Of the columns of schemas."""
    text: str
    """The column, if any, of the JSON that variants are made of."""

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        coercers = [None if of is None or format == "json" else _columns(of) for _, format, of in self.rules]
        known: dict[str, int] = {}
        for batch in batches:
            yield self._batch(batch, coercers, known)

    def _rule(self, topic: str | None, known: dict[str, int]) -> int:
        """The first rule that matches; of each topic it is found out once."""
        if topic is None:
            return -1
        found = known.get(topic)
        if found is None:
            if len(known) >= 65_536:
                known.clear()
            found = next((n for n, (levels, _, _) in enumerate(self.rules) if matches(levels, topic)), -1)
            known[topic] = found
        return found

    def _batch(self, batch: pa.RecordBatch, coercers: list[Coerce | None], known: dict[str, int]) -> pa.RecordBatch:
        topics = batch.column("topic").dictionary_encode()
        of_topic = [self._rule(topic, known) for topic in topics.dictionary.to_pylist()]
        numbers = [-1 if index is None else of_topic[index] for index in topics.indices.to_pylist()]
        payloads = batch.column("payload").to_pylist()
        columns: dict[str, list[Any]] = {name: [None] * len(numbers) for name, _ in self.made}
        errors: list[str | None] = [None] * len(numbers)
        for row, number in enumerate(numbers):
            if number < 0 or self.rules[number][1] == "json":
                continue
            coerce = coercers[number]
            try:
                value = load(self.rules[number][1], payloads[row])
                if coerce is None:
                    columns[self.text][row] = json_text(value)
                    continue
                for name, one in coerce(value).items():
                    columns[self.prefix + name][row] = one
            except Unreadable as why:
                errors[row] = str(why)
        arrays = [pa.array(columns[name], type=of) for name, of in self.made]
        arrays += [pa.array(errors, type=pa.string()), pa.array(numbers, type=pa.int32())]
        names = [*batch.schema.names, *columns, ERROR_FIELD, RULE_FIELD]
        return pa.RecordBatch.from_arrays([*batch.columns, *arrays], names=names)
