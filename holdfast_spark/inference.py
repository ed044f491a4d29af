"""Which columns a sample of payloads has: the schema that `infer` stands for (holdfast_spark.decoders).

What always holds: each of the values fits the schema that was inferred from them (test_payloads).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any, Final

from pyspark.sql import types as t

from holdfast_spark.payloads import UNDEFINED, Unreadable, key_text, kind

_INFERRED_DEPTH: Final = 20
_SIMPLE: Final[dict[type, type[t.DataType]]] = {
    bool: t.BooleanType, float: t.DoubleType, bytes: t.BinaryType, datetime: t.TimestampType, date: t.DateType,
}  # fmt: skip
"""datetime before date, which it is one of."""


def inferred(values: Iterable[Any]) -> t.StructType:
    """The schema that all of these maps fit: what is wider wins, and what cannot be reconciled is text."""
    found: t.DataType = t.StructType([])
    for value in values:
        if not isinstance(value, dict):
            raise Unreadable(f"{kind(value)} is where a map is wanted")
        found = _wider(found, _struct_of(value, 0))
    assert isinstance(found, t.StructType)
    return t.StructType([t.StructField(field.name, _known(field.dataType)) for field in found.fields])


def _struct_of(value: dict[Any, Any], depth: int) -> t.StructType:
    named = {key_text(key): one for key, one in value.items()}
    return t.StructType([t.StructField(name, _type_of(named[name], depth + 1)) for name in sorted(named)])


def _type_of(value: Any, depth: int) -> t.DataType:
    """A NullType is what nothing is known of yet."""
    if value is None or type(value).__name__ == UNDEFINED:
        return t.NullType()
    if isinstance(value, int) and not isinstance(value, bool):
        return t.LongType() if -(1 << 63) <= value < 1 << 63 else t.StringType()
    if isinstance(value, dict) and depth < _INFERRED_DEPTH and all(isinstance(key, str) for key in value):
        return _struct_of(value, depth)
    if isinstance(value, list | tuple) and depth < _INFERRED_DEPTH:
        of: t.DataType = t.NullType()
        for one in value:
            of = _wider(of, _type_of(one, depth + 1))
        return t.ArrayType(of)
    return next((of() for python, of in _SIMPLE.items() if isinstance(value, python)), t.StringType())


def _wider(one: t.DataType, other: t.DataType) -> t.DataType:
    if isinstance(one, t.NullType) or one == other:
        return other
    if isinstance(other, t.NullType):
        return one
    if {type(one), type(other)} == {t.LongType, t.DoubleType}:
        return t.DoubleType()
    if isinstance(one, t.ArrayType) and isinstance(other, t.ArrayType):
        return t.ArrayType(_wider(one.elementType, other.elementType))
    if isinstance(one, t.StructType) and isinstance(other, t.StructType):
        fields = {field.name: field.dataType for field in one.fields}
        for field in other.fields:
            fields[field.name] = _wider(fields.get(field.name, t.NullType()), field.dataType)
        return t.StructType([t.StructField(name, of) for name, of in sorted(fields.items())])
    return t.StringType()


def _known(of: t.DataType) -> t.DataType:
    """Without what nothing is known of: text takes everything."""
    if isinstance(of, t.ArrayType):
        return t.ArrayType(_known(of.elementType))
    if isinstance(of, t.StructType) and of.fields:
        return t.StructType([t.StructField(field.name, _known(field.dataType)) for field in of.fields])
    return t.StringType() if isinstance(of, t.NullType | t.StructType) else of
