"""What questions give, as JSON has it, for commands and over HTTP: the forms are interfaces, fields are added and never renamed."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

_TIME = "_at_ms"


def facts(row: Any) -> Any:
    """A dataclass as JSON has it: what ends in _at_ms is a time."""
    if isinstance(row, list | tuple):
        return [facts(each) for each in row]
    if not dataclasses.is_dataclass(row):
        return row
    found: dict[str, Any] = {}
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if field.name.endswith(_TIME):
            found[field.name.removesuffix("_ms")] = None if value is None else when(value)
        else:
            found[field.name] = facts(value)
    return found


def when(wall_ms: int) -> str:
    """RFC 3339, in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
