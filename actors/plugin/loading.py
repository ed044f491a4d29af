"""Plugins by their names, with the settings that stand under these names in a file.

What goes wrong is PluginRefused: one sentence that names the plugin, without what it said, which may have a secret in it.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

from actors.plugin.port import Plugin

CONFIG_BYTES_MAX: Final = 1 << 20
Kind = Literal["holdfast", "amqtt"]


class PluginRefused(Exception):
    """One sentence, without its full stop."""


def read_settings(path: str) -> Mapping[str, Any]:
    """The tables of a file, TOML or by its ending YAML; those below `plugins` where it has that, as files of amqtt do."""
    if not path:
        return {}
    try:
        with open(path, "rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
        if len(data) > CONFIG_BYTES_MAX:
            raise PluginRefused(f"{path} has more than {CONFIG_BYTES_MAX} bytes")
        found = _yaml(data) if Path(path).suffix in (".yaml", ".yml") else tomllib.loads(data.decode())
    except OSError as error:
        raise PluginRefused(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise PluginRefused(f"{path} is no TOML, and no YAML by its ending") from None
    if isinstance(found, Mapping):
        found = found.get("plugins", found)
    # A list of names, and of tables with one name each, is a form of amqtt too.
    if isinstance(found, Sequence) and not isinstance(found, str):
        found = {name: table for each in found for name, table in (each.items() if isinstance(each, Mapping) else [(each, {})])}
    if not isinstance(found, Mapping):
        raise PluginRefused(f"{path} has no tables with the names of plugins")
    return found


def load_class(name: str) -> type[Any]:
    """`module:Class`, or with a dot for the colon."""
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module that is loaded runs code of others
        raise PluginRefused(f"the plugin {name!r} cannot be loaded: {type(error).__name__}") from None
    if not isinstance(found, type):
        raise PluginRefused(f"the plugin {name!r} is no class")
    return found


async def load(kind: Kind, names: Sequence[str], config_file: str) -> list[Plugin]:
    settings = read_settings(config_file)
    if kind == "amqtt":
        from actors.plugin.amqtt import AmqttPlugins

        return [AmqttPlugins(names, settings)]
    return [await _started(name, settings.get(name) or {}) for name in names]


async def _started(name: str, settings: Mapping[str, Any]) -> Plugin:
    made = load_class(name)
    try:
        plugin = cast("Plugin", made())
        await plugin.start(settings)
    except Exception as error:  # code of others
        raise PluginRefused(f"the plugin {name!r} does not start: {type(error).__name__}") from None
    return plugin


def _yaml(data: bytes) -> Any:
    # Comes with amqtt, for whose files it is.
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise PluginRefused("a file of settings is YAML, and the package PyYAML is not installed") from None
    try:
        return yaml.safe_load(data)
    except yaml.YAMLError:
        raise ValueError("no YAML") from None
