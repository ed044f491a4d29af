"""Bridges that would carry the same messages round and round between two brokers, found by their settings.

At MQTT 5 marks end loops (docs/bridge.md). 3.1.1 has nothing that could be a mark, so a pair of bridges to one broker, one in each
direction, has to keep its topics apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

from config.bridge_kinds import broker_address
from config.bridges import Bridge, pieces_of


class Loop(NamedTuple):
    """Names of the two bridges."""

    inwards: str
    outwards: str


def unmarked_loop(bridges: Mapping[str, Bridge]) -> Loop | None:
    """The first pair, if there is one, of which one speaks 3.1.1 and what one carries the other takes back."""
    to_brokers = [(name, bridge) for name, bridge in bridges.items() if bridge.type == "mqtt"]
    inwards = [each for each in to_brokers if each[1].direction == "in"]
    outwards = [each for each in to_brokers if each[1].direction == "out"]
    for (name, brings), (other, carries) in product(inwards, outwards):
        if "3.1.1" not in (brings.mqtt.version, carries.mqtt.version):
            continue
        if broker_address(brings.mqtt.url) == broker_address(carries.mqtt.url) and _meet(brings, carries):
            return Loop(name, other)
    return None


def _meet(brings: Bridge, carries: Bridge) -> bool:
    """Whether something that is carried out may come in again: a template may make any topic that begins as it does."""
    there = _topics(carries)
    here = _topics(brings)
    return overlap(there, brings.filter) and overlap(here, carries.filter)


def _topics(bridge: Bridge) -> str:
    """A filter that matches every topic under which the bridge hands messages on."""
    template = bridge.transform.topic
    if not template:
        return bridge.filter
    text = ""
    for piece, is_expression in pieces_of(template) or []:
        if is_expression:
            levels = text.split("/")[:-1]
            return "/".join([*levels, "#"])
        text += piece
    return text


def overlap(one: str, other: str) -> bool:
    """Whether some topic matches both filters."""
    return _levels_overlap(one.split("/"), other.split("/"))


def _levels_overlap(one: list[str], other: list[str]) -> bool:
    if one[:1] == ["#"] or other[:1] == ["#"]:
        return True
    if not one or not other:
        # `a/#` matches `a` as well.
        return one == other or (one or other) == ["#"]
    same = one[0] == other[0] or "+" in (one[0], other[0])
    return same and _levels_overlap(one[1:], other[1:])
