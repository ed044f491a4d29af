"""Writes a configuration: as TOML that `config.load` reads back, as JSON for other processes, and the JSON Schema of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from config.schema import Config
from config.settings import plain, settings_in, value_at

# Our own words about a field that JSON Schema has no place for; `ge` and `le` count milliseconds or bytes.
_NOT_SCHEMA = ("ge", "le", "allowed", "unit", "effect")


def literal(value: object) -> str:
    """A value as TOML writes it, on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            # A JSON text is a TOML basic string, except for DEL, which TOML wants escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(literal(item) for item in value)}]"
        case dict():
            return f"{{{', '.join(f'{key} = {literal(item)}' for key, item in value.items())}}}"
        case _:
            return str(value)


def dump_toml(config: Config, sources: Mapping[str, str] | None = None, *, changed_only: bool = False) -> str:
    """The whole configuration as a file; with `sources`, a comment says where a value that is not the default comes from."""
    lines: list[str] = []
    section = ""
    for key in settings_in(config):
        source = (sources or {}).get(key)
        value = value_at(config, key)
        if value is None or (changed_only and source is None):
            continue
        above, _, name = key.rpartition(".")
        if above != section:
            section = above
            lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        comment = f"  # from {source}" if source else ""
        lines.append(f"{name} = {literal(plain(value))}{comment}")
    return "".join(f"{line}\n" for line in lines)


def dump_json(config: Config, *, indent: int | None = None) -> str:
    """How a configuration travels to other processes; `config.load.from_json` reads it."""
    return config.model_dump_json(indent=indent)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the configuration file, for editors."""

    def cleaned(node: Any) -> Any:
        if isinstance(node, list):
            return [cleaned(item) for item in node]
        if not isinstance(node, dict):
            return node
        # `properties` maps names of settings, and one of them may be called like a word we drop.
        kept = {key: item for key, item in node.items() if key not in _NOT_SCHEMA or isinstance(item, dict)}
        if allowed := node.get("allowed"):
            kept["description"] = f"{node['description']} Takes {allowed}."
        return {key: cleaned(item) for key, item in kept.items()}

    body = cleaned(Config.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body, "title": "Holdfast configuration"}
