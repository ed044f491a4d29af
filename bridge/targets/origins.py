"""The mark of what came by bridges: which stores and bridges a message has passed, in a user property, so that no loop carries it for ever.

A bridge to a broker of MQTT 5 adds its own; whoever is asked to carry what already passed his store leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ORIGIN: Final = "holdfast-bridge"
"""Name of the user property: origins in the order in which they were passed, with commas between."""
IDENTITY: Final = "holdfast-id"
"""Name of the user property of what a message is: store/shard/position, by which a receiver knows one that comes again."""
ORIGINS_MAX: Final = 16
"""A message that has passed so many bridges is in a loop of brokers that keep no marks."""


def passed(properties: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The origins of a message."""
    return tuple(origin for name, value in properties if name == ORIGIN for origin in value.split(",") if origin)


def passed_store(properties: Iterable[tuple[str, str]], store: str) -> bool:
    """Whether the message has come from this store already."""
    return any(origin.partition("/")[0] == store for origin in passed(properties))


def marked(properties: Iterable[tuple[str, str]], origin: str, identity: str) -> list[tuple[str, str]]:
    """User properties of the message as it goes on: one mark with this origin at its end, and one identity, of the first store."""
    properties = list(properties)
    kept = [(name, value) for name, value in properties if name != ORIGIN]
    if not any(name == IDENTITY for name, _ in kept):
        kept.append((IDENTITY, identity))
    return [*kept, (ORIGIN, ",".join((*passed(properties), origin)))]
