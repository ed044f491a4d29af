"""Values that configuration writes with a unit: durations, sizes, counts, addresses.

Each is a plain `int` or `str` to the code that uses it and knows how to be read from and written to a configuration file.
Leaves ranges to `config.schema` and sources to `config.load`.

Always holds: `T.parse(str(value)) == value` for every value of each type.
"""

from __future__ import annotations

import ipaddress
import math
import re
from abc import ABC, abstractmethod
from typing import ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

INFINITY = 2**62
"""Stands for "infinity" where a setting allows it: larger than any count, size or number of milliseconds that occurs."""


class _Text(ABC):
    """What the types below share: pydantic reads them with `parse` and writes them with `to_plain`."""

    json_type: ClassVar[JsonSchemaValue]

    @classmethod
    @abstractmethod
    def parse(cls, raw: object) -> Self:
        """The value that `raw` says. Raises ValueError with what it is not."""

    def to_plain(self) -> int | str:
        return str(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        writer = core_schema.plain_serializer_function_ser_schema(lambda value: value.to_plain())
        return core_schema.no_info_plain_validator_function(cls.parse, serialization=writer)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return dict(cls.json_type)


def _is_number(raw: object) -> bool:
    # bool is an int to Python; "true seconds" is a mistake to everybody else.
    return isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw)


def _parse_units(raw: object, units: dict[str, int], plain_unit: int, what: str) -> int:
    """`raw` in the smallest unit; a number alone counts in `plain_unit`."""
    if isinstance(raw, str):
        text = raw.strip()
        if text == "infinity":
            return INFINITY
        pieces = re.fullmatch(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[A-Za-z]*)", text)
        if pieces is None or (pieces["unit"] and pieces["unit"] not in units):
            raise ValueError(f"not {what}")
        scaled = float(pieces["number"]) * (units[pieces["unit"]] if pieces["unit"] else plain_unit)
        # Whole numbers stay exact however large; a float would round above 2**53.
        if "." not in pieces["number"]:
            scaled = int(pieces["number"]) * (units[pieces["unit"]] if pieces["unit"] else plain_unit)
    elif _is_number(raw):
        assert isinstance(raw, int | float)
        scaled = raw * plain_unit
    else:
        raise ValueError(f"not {what}")
    if scaled < 0 or scaled != int(scaled):
        raise ValueError(f"not {what}")
    return min(int(scaled), INFINITY)


class _Measure(_Text, int):
    """A whole number of the smallest of UNITS, written with the largest one that it is a multiple of."""

    UNITS: ClassVar[dict[str, int]]
    alone: ClassVar[str]
    """The unit that a number without one counts in; zero is written in it."""
    what: ClassVar[str]

    @classmethod
    def parse(cls, raw: object) -> Self:
        return raw if isinstance(raw, cls) else cls(_parse_units(raw, cls.UNITS, cls.UNITS[cls.alone], cls.what))

    @property
    def is_infinite(self) -> bool:
        return int(self) >= INFINITY

    def __str__(self) -> str:
        if self.is_infinite:
            return "infinity"
        if not self:
            return f"0{self.alone}"
        unit = max((u for u, size in self.UNITS.items() if self % size == 0), key=self.UNITS.__getitem__)
        return f"{self // self.UNITS[unit]}{unit}"


class Duration(_Measure):
    """A length of time in whole milliseconds. Written "100ms", "10s", "15m", "12h", "7d"; a number alone counts seconds."""

    UNITS: ClassVar[dict[str, int]] = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    alone = "s"
    what = "a duration"
    json_type: ClassVar[JsonSchemaValue] = {"type": ["string", "number"], "pattern": r"^(infinity|\d+(\.\d+)?\s*(ms|s|m|h|d)?)$"}

    @property
    def ms(self) -> int:
        return int(self)

    @property
    def seconds(self) -> float:
        return int(self) / 1000


class Size(_Measure):
    """A number of bytes. Written "64MiB" or "100KB"; a number alone counts bytes."""

    UNITS: ClassVar[dict[str, int]] = {
        "B": 1,
        "KB": 10**3,
        "KiB": 2**10,
        "MB": 10**6,
        "MiB": 2**20,
        "GB": 10**9,
        "GiB": 2**30,
        "TB": 10**12,
        "TiB": 2**40,
    }
    alone = "B"
    what = "a size"
    json_type: ClassVar[JsonSchemaValue] = {"type": ["string", "integer"], "pattern": r"^(infinity|\d+(\.\d+)?\s*([KMGT]i?)?B?)$"}


class Count(_Text, int):
    """A whole number, or "infinity"."""

    json_type: ClassVar[JsonSchemaValue] = {"anyOf": [{"type": "integer"}, {"const": "infinity"}]}

    @classmethod
    def parse(cls, raw: object) -> Self:
        if isinstance(raw, cls):
            return raw
        if raw == "infinity":
            return cls(INFINITY)
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise ValueError("not a whole number")
        return cls(min(raw, INFINITY))

    @property
    def is_infinite(self) -> bool:
        return int(self) >= INFINITY

    def to_plain(self) -> int | str:
        return "infinity" if self.is_infinite else int(self)

    def __str__(self) -> str:
        return str(self.to_plain())


class Bind(_Text, str):
    """Where a listener listens: "host:port", IPv6 in brackets. Port 0 takes any free one."""

    json_type: ClassVar[JsonSchemaValue] = {"type": "string", "pattern": r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$"}

    @classmethod
    def parse(cls, raw: object) -> Self:
        if isinstance(raw, cls):
            return raw
        if not isinstance(raw, str) or not (
            pieces := re.fullmatch(r"(\[(?P<v6>[^\]]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>\d{1,5})", raw)
        ):
            raise ValueError("not an address")
        if pieces["v6"]:
            ipaddress.IPv6Address(pieces["v6"])
        if int(pieces["port"]) > 65535:
            raise ValueError("not a port")
        return cls(raw)

    @property
    def host(self) -> str:
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.rpartition(":")[2])

    def __str__(self) -> str:
        return str.__str__(self)
