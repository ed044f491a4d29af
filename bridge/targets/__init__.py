"""Which class is the target of which kind.  Each is loaded when a bridge uses it: what it needs may not be installed."""

from __future__ import annotations

import importlib
import json
from typing import Any, Final

from bridge.port import Context, Misconfigured, Target
from config.bridges import Bridge

KINDS: Final[dict[str, str]] = {
    "http": "bridge.targets.http:HttpTarget",
    "jsonl": "bridge.targets.jsonl:JsonlTarget",
    "mqtt": "bridge.targets.mqtt:MqttTarget",
    "parquet": "bridge.targets.parquet:ParquetTarget",
    "postgresql": "bridge.targets.postgresql:PostgresqlTarget",
}


def target_class(settings: Bridge) -> Any:
    """Raises Misconfigured."""
    place = settings.plugin.target if settings.type == "plugin" else KINDS[settings.type]
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise Misconfigured(f"{place} cannot be loaded: {error}") from error
    except AttributeError:
        raise Misconfigured(f"{module} has no {name}") from None


def make_target(settings: Bridge, context: Context) -> Target:
    """Raises Misconfigured."""
    made = target_class(settings)
    options = json.loads(settings.plugin.options) if settings.type == "plugin" else settings.target
    try:
        target: Target = made(options, context)
    except Misconfigured:
        raise
    except Exception as error:  # Somebody else's code, which may fail in any way.
        raise Misconfigured(f"{made.__name__} cannot be made: {type(error).__name__}: {error}") from error
    return target
