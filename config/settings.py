"""The list of all settings, read off `config.schema`: one `Setting` per key, with the words that describe what it takes.

Error sentences, docs/configuration.md and `holdfast config` all speak from this list, so they cannot disagree with the models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from config.fields import Section
from config.schema import Config
from config.values import INFINITY, Bind, Count, Duration, Size

Kind = Literal["flag", "whole", "count", "duration", "size", "bind", "text", "choice", "list", "auto"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: where it is, what it takes, what it means."""

    key: str
    kind: Kind
    default: object
    allowed: str
    unit: str
    why: str
    fixed: bool

    @property
    def variable(self) -> str:
        """Name of its environment variable."""
        return "HOLDFAST__" + self.key.upper().replace(".", "__")


def _bounds(field: FieldInfo) -> tuple[int | None, int | None]:
    low: Any = next((m.ge for m in field.metadata if isinstance(m, Ge)), None)
    high: Any = next((m.le for m in field.metadata if isinstance(m, Le)), None)
    return low, high


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _kind(annotation: object) -> Kind:
    for kind, cls in (
        ("duration", Duration),
        ("size", Size),
        ("count", Count),
        ("bind", Bind),
        ("flag", bool),
        ("whole", int),
        ("text", str),
    ):
        if annotation is cls:
            return kind  # type: ignore[return-value]  # the tuple above lists only words of Kind
    origin = get_origin(annotation)
    if origin is Literal:
        return "choice"
    if origin is tuple:
        return "list"
    assert origin in (Union, UnionType), f"config.settings has no words for {annotation}"
    return "auto"


def _allowed(kind: Kind, annotation: object, low: int | None, high: int | None) -> str:
    if kind == "flag":
        return "true or false"
    if kind == "choice":
        words = [_quoted(value) for value in get_args(annotation)]
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    if kind == "bind":
        return 'an address such as "127.0.0.1:1883" or "[::1]:1883"'
    if kind == "text":
        return "text"
    if kind in ("duration", "size"):
        what, example, plain, cls = {
            "duration": ("a duration", '"10s"', "seconds", Duration),
            "size": ("a size", '"64MiB"', "bytes", Size),
        }[kind]
        span = f"from {cls(low or 0)} to {cls(INFINITY if high is None else high)}"
        return f"{what} {span}, such as {example} or a number of {plain}"
    if high is None:
        return f'a whole number from {low or 0} or "infinity"'
    return str(low) if low == high else f"a whole number from {low or 0} to {high}"


def _walk(section: type[Section], prefix: str) -> Iterator[Setting]:
    for name, field in section.model_fields.items():
        key, annotation = prefix + name, field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            yield from _walk(annotation, key + ".")
            continue
        kind = _kind(annotation)
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        yield Setting(
            key=key,
            kind=kind,
            default=field.default,
            allowed=str(extra["allowed"]) or _allowed(kind, annotation, *_bounds(field)),
            unit=str(extra["unit"]),
            why=str(field.description),
            fixed=bool(extra["fixed"]),
        )


@cache
def all_settings() -> dict[str, Setting]:
    """Every setting by its dotted key, in the order of the models."""
    return {found.key: found for found in _walk(Config, "")}


def section_names() -> dict[str, str]:
    """Every section by its dotted key, with what it is for."""
    found: dict[str, str] = {}

    def walk(section: type[Section], prefix: str) -> None:
        for name, field in section.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
                found[prefix + name] = str(field.description)
                walk(field.annotation, f"{prefix}{name}.")

    walk(Config, "")
    return found


def plain(value: object) -> bool | int | float | str | list[int]:
    """A value of a setting as a file would write it."""
    if isinstance(value, Duration | Size | Count | Bind):
        return value.to_plain()
    if isinstance(value, tuple):
        return list(value)
    assert isinstance(value, bool | int | float | str)
    return value


def value_at(config: Config, key: str) -> object:
    found: object = config
    for name in key.split("."):
        found = getattr(found, name)
    return found
