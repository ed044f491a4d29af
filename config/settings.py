"""The list of all settings, read off `config.schema`: one `Setting` per key, with the words that describe what it takes.

Error sentences, docs/configuration.md and `holdfast config` all speak from this list, so they cannot disagree with the models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from config.bridges import BRIDGES_MAX, Bridge
from config.fields import Effect, Section
from config.listeners import LISTENERS_MAX, TCP, Listener, Listeners
from config.schema import Config
from config.secrets import SECRET_ALLOWED, ClusterSecret, Keys, Secret
from config.selection import ZONES_MAX, Zone
from config.values import INFINITY, Bind, Count, Duration, Size

NAME = "NAME"
"""Stands for the name of any zone, listener or bridge where settings are described."""
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")

Kind = Literal["flag", "whole", "count", "duration", "size", "bind", "secret", "text", "choice", "list", "auto"]


@dataclass(frozen=True, slots=True)
class Naming:
    """Tables whose names are their author's, and which all have the same settings."""

    prefix: str
    section: type[Section]
    noun: str
    count_max: int
    reserved: tuple[str, ...] = ()
    """Names of tables that have settings of their own."""

    @property
    def template(self) -> str:
        return f"{self.prefix}{NAME}."

    def name_in(self, key: str) -> str | None:
        """The name in a key of this kind that has anything behind it."""
        name, dot, _ = key.removeprefix(self.prefix).partition(".")
        return name if key.startswith(self.prefix) and dot and name not in self.reserved else None


ZONES = Naming("zones.", Zone, "zone", ZONES_MAX)
LISTENERS = Naming("listeners.", Listener, "listener", LISTENERS_MAX, (TCP,))
BRIDGES = Naming("bridges.", Bridge, "bridge", BRIDGES_MAX)
NAMINGS = (ZONES, LISTENERS, BRIDGES)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: where it is, what it takes, what it means."""

    key: str
    kind: Kind
    default: object
    allowed: str
    unit: str
    why: str
    effect: Effect


def _bounds(field: FieldInfo) -> tuple[int | None, int | None]:
    low: Any = next((m.ge for m in field.metadata if isinstance(m, Ge)), None)
    high: Any = next((m.le for m in field.metadata if isinstance(m, Le)), None)
    return low, high


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _given(annotation: object) -> object:
    """The type of a value that is given, for a setting that may also be unset (None)."""
    if get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation):
        (annotation,) = [one for one in get_args(annotation) if one is not NoneType]
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
    return annotation


def _kind(annotation: object) -> Kind:
    for kind, cls in (
        ("duration", Duration),
        ("size", Size),
        ("count", Count),
        ("bind", Bind),
        ("secret", ClusterSecret),
        ("secret", Keys),
        ("secret", Secret),
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
    if kind == "secret":
        return SECRET_ALLOWED
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
        key, annotation = prefix + name, _given(field.annotation)
        if get_origin(annotation) is dict:
            continue  # the zones, whose names are not known here: see named_settings
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
            effect=cast(Effect, extra["effect"]),
        )


@cache
def all_settings() -> dict[str, Setting]:
    """Every setting by its dotted key, in the order of the models."""
    return {found.key: found for found in _walk(Config, "")}


@cache
def named_settings(naming: Naming) -> dict[str, Setting]:
    """The settings of a zone, of a listener or of a bridge, as `all_settings`, with NAME for its name."""
    return {found.key: found for found in _walk(naming.section, naming.template)}


def setting_of(key: str) -> Setting | None:
    """The setting with this key, of a zone or a listener too; None: there is none."""
    found = all_settings().get(key)
    if found is not None:
        return found
    for naming in NAMINGS:
        name = naming.name_in(key)
        if name is not None and is_name(name):
            found = named_settings(naming).get(naming.template + key.removeprefix(f"{naming.prefix}{name}."))
            return None if found is None else replace(found, key=key)
    return None


def is_name(name: str) -> bool:
    """Whether a zone or a listener may be called so."""
    return _NAME_PATTERN.fullmatch(name) is not None


def settings_in(config: Config) -> dict[str, Setting]:
    """Every setting of this configuration, those of its zones and listeners with their names."""
    found = dict(all_settings())
    _add_named(found, LISTENERS, config.listeners.named)
    _add_named(found, ZONES, config.zones)
    _add_named(found, BRIDGES, config.bridges)
    return found


def _add_named(found: dict[str, Setting], naming: Naming, names: Iterable[str]) -> None:
    for name in names:
        for template in named_settings(naming).values():
            key = template.key.replace(naming.template, f"{naming.prefix}{name}.", 1)
            found[key] = replace(template, key=key)


def named_sections() -> dict[str, str]:
    """The sections of a listener and of a zone, as `section_names`."""
    return {
        f"{LISTENERS.prefix}{NAME}": (
            f"A further listener, of which there may be {LISTENERS_MAX}. `NAME` is yours, as for zones; rules and zones may name it."
        ),
        f"{LISTENERS.prefix}{NAME}.tls": str(Listener.model_fields["tls"].description),
        f"{LISTENERS.prefix}{NAME}.ws": str(Listener.model_fields["ws"].description),
        f"{ZONES.prefix}{NAME}": (
            "Settings of durable sessions for some connections or topics only. A connection is in the first zone, in the order of "
            "the file, of which `listeners`, `users` or `client_id_prefixes` names it. A topic, or a subscription by what its filter "
            "begins with, is in the first zone whose `topic_prefixes` names it; for a subscription that zone comes before the one of "
            "its connection. `NAME` is yours: letters, digits, _ and -; at most 64 zones. In an environment variable, such as "
            "`HOLDFAST__ZONES__NAME__USERS`, upper and lower case of the name do not matter."
        ),
        f"{ZONES.prefix}{NAME}.durable_sessions": str(Zone.model_fields["durable_sessions"].description),
        f"{BRIDGES.prefix}{NAME}": (
            f"A bridge: what is stored and carried elsewhere (docs/bridge.md). `NAME` is yours: letters, digits, _ and -; at most "
            f"{BRIDGES_MAX} bridges. What `holdfast bridge` sets is in `bridges.toml` of the data directory, and counts more than the "
            "configuration's file."
        ),
        **{
            f"{BRIDGES.prefix}{NAME}.{name}": str(field.description)
            for name, field in Bridge.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        },
    }


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


def plain(value: object) -> bool | int | float | str | list[object] | dict[str, object]:
    """A value of a setting as a file would write it."""
    if isinstance(value, Duration | Size | Count | Bind | Secret):
        return value.to_plain()
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Section):
        return {name: plain(item) for name, item in value}
    assert isinstance(value, bool | int | float | str)
    return value


def value_at(config: Config, key: str) -> object:
    found: object = config
    for name in key.split("."):
        if isinstance(found, Listeners) and name not in type(found).model_fields:
            found = found.named
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found
