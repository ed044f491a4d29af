"""Engines by name: what `durable_storage.messages.backend` chooses, and what installed packages add.

A package offers an engine as an entry point of the group `holdfast.backends`: a callable that takes the directory of one shard
and returns a `shards.engine.Engine`. It must pass tests/contracts/test_engine.py (docs/storage-library.md says how to run it).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Literal

from shards.engine import Engine
from shards.engine_memory import MemoryEngine

ENTRY_POINTS = "holdfast.backends"
ALIASES = {"builtin_local": "rocksdb"}
"""EMQX's name for the store of one node -> ours."""

OnDamage = Literal["salvage", "strict"]
OpenEngine = Callable[[str], Engine]


wrap: Callable[[Engine], Engine] | None = None
"""Put around each engine that is opened in this process; None: nothing, which is the rule (actors.chaos.installing)."""


class BackendUnknown(ValueError):
    """A name that nothing here or installed answers to."""


def backends() -> dict[str, Callable[[], OpenEngine]]:
    """All there are: name -> loads what opens it. The built-in ones cannot be replaced by a package."""
    found: dict[str, Callable[[], OpenEngine]] = {point.name: point.load for point in entry_points(group=ENTRY_POINTS)}
    return found | {"rocksdb": _rocksdb, "memory": lambda: lambda path: MemoryEngine()}


def check_backend(name: str) -> str:
    """The name without aliases. Raises BackendUnknown, one sentence."""
    name = ALIASES.get(name, name)
    known = backends()
    if name not in known:
        raise BackendUnknown(f"backend {name!r} is not known; there are {', '.join(sorted((*known, *ALIASES)))}")
    return name


def open_backend(name: str, path: str, on_damage: OnDamage | None = None, block_cache_bytes: int | None = None) -> Engine:
    """Open the engine over this directory. Raises BackendUnknown, and what the engine raises at opening.

    For rocksdb only: on_damage, what shards.salvage does about broken files; None: what the engine itself does, refuse.
    block_cache_bytes, together with it; None: as many as the engine takes by itself.
    """
    engine = _open(check_backend(name), path, on_damage, block_cache_bytes)
    return engine if wrap is None else wrap(engine)


def _open(name: str, path: str, on_damage: OnDamage | None, block_cache_bytes: int | None) -> Engine:
    if name == "rocksdb" and on_damage is not None:
        from shards.rocks_options import RocksOptions  # only who uses it loads it
        from shards.salvage import open_store

        return open_store(path, on_damage, None if block_cache_bytes is None else RocksOptions(block_cache_bytes=block_cache_bytes))
    return backends()[name]()(path)


def _rocksdb() -> OpenEngine:
    from shards.engine_rocks import RocksEngine  # only who uses it loads it

    return lambda path: RocksEngine(path)
