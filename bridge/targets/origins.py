"""The mark of what came by bridges: which stores and bridges a message has passed, in a user property, so that no loop carries it for ever.

    STORE/BRIDGE            it was carried out of that store
    PEER>STORE/BRIDGE       it was brought from that broker into that store.  PEER is made of the broker's address; before it stands the id
                            of its store, and another >, where that broker is a Holdfast and has said it in its CONNACK

A bridge outwards adds the first, where the other side has user properties (MQTT 5); one inwards the second, which always stays with the
message while it is here.  What was carried out of a store is not carried out of it again, what was in it does not come in again, and what
was brought from a broker is not carried back to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from config.bridge_kinds import broker_address
from sessions.origins import MARK, STORE

ORIGIN: Final = MARK
"""Name of the user property: origins in the order in which they were passed, with commas between."""
IDENTITY: Final = "holdfast-id"
"""Name of the user property of what a message is: store/shard/position, by which a receiver knows one that comes again."""
ORIGINS_MAX: Final = 16
"""A message that has passed so many bridges is in a loop of brokers that keep no marks."""


def passed(properties: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The origins of a message."""
    return tuple(origin for name, value in properties if name == ORIGIN for origin in value.split(",") if origin)


def peer_of(url: str) -> str:
    """A broker by its address, as marks name it: the same for the same host and port, as they are written."""
    address = broker_address(url)
    return blake2b(f"{address[0]}:{address[1]}".encode(), digest_size=8).hexdigest() if address is not None else ""


def told_store(said: Iterable[tuple[str, str]]) -> str:
    """The id of its store, if a broker says one in its CONNACK; else nothing."""
    return next((value for name, value in said if name == STORE), "")


def passed_store(properties: Iterable[tuple[str, str]], store: str) -> bool:
    """Whether the message has come from this store already."""
    return any(origin.partition("/")[0] == store for origin in passed(properties))


def came_from(properties: Iterable[tuple[str, str]], peer: str, store: str) -> bool:
    """Whether the message was brought from this broker into this store."""
    return any(places[-1] == store and peer in places[:-1] for places in _places(properties))


def was_at(properties: Iterable[tuple[str, str]], store: str) -> bool:
    """Whether the message was carried out of this store, brought into it, or brought from it."""
    return any(store in places for places in _places(properties))


def _places(properties: Iterable[tuple[str, str]]) -> Iterable[list[str]]:
    return [origin.partition("/")[0].split(">") for origin in passed(properties)]


def arrived(properties: Iterable[tuple[str, str]], peers: tuple[str, ...], origin: str) -> list[tuple[str, str]]:
    """User properties of a message as it comes in, with this origin at the end of its mark.  peers: what the other broker is called."""
    properties = list(properties)
    mark = ",".join((*passed(properties), ">".join((*peers, origin))))
    return [*[each for each in properties if each[0] != ORIGIN], (ORIGIN, mark)]


def marked(properties: Iterable[tuple[str, str]], origin: str, identity: str) -> list[tuple[str, str]]:
    """User properties of the message as it goes on: one mark with this origin at its end, and one identity, of the first store."""
    properties = list(properties)
    kept = [(name, value) for name, value in properties if name != ORIGIN]
    if not any(name == IDENTITY for name, _ in kept):
        kept.append((IDENTITY, identity))
    return [*kept, (ORIGIN, ",".join((*passed(properties), origin)))]
