"""What a bridge has carried, against what was acknowledged to publishers: everything, in order, and once where that is promised.

Knows no bridge and no target: a gate brings what it has found there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tests.broker.history import History
from tests.gates.gate import GateFailed


class Arrival(NamedTuple):
    """identity: store/shard/position or shard/position, the same for a message for ever; empty where the target has no room for it."""

    identity: str
    publisher: str
    number: int


def check(name: str, arrivals: Sequence[Arrival], history: History, *, exactly_once: bool, with_identity: bool) -> int:
    """How often something was there again, as the same message of the store where that can be told.  arrivals: in their order.  Raises
    GateFailed."""
    keys = Counter((each.publisher, each.number) for each in arrivals)
    missing = [key for key, sent in history.sent.items() if sent.acknowledged_ns is not None and key not in keys]
    strangers = [key for key in keys if key not in history.sent]
    if missing or strangers:
        raise GateFailed(f"{name}: {len(missing)} are missing {missing[:3]}, {len(strangers)} were never sent {strangers[:3]}")
    _require_order(name, arrivals, history)
    if exactly_once:
        identities = Counter(each.identity for each in arrivals)
        repeated = [identity for identity, count in identities.items() if count > 1]
        if repeated:
            raise GateFailed(f"{name}: {len(repeated)} messages are there twice, such as {repeated[:3]}")
    if with_identity:
        _require_stored_as_sent(name, arrivals, history)
    return len(arrivals) - len(set(arrivals))


def _require_order(name: str, arrivals: Sequence[Arrival], history: History) -> None:
    """Of first arrivals of one publisher and topic."""
    newest: dict[tuple[str, str], int] = {}
    for publisher, number in dict.fromkeys((each.publisher, each.number) for each in arrivals):
        line = publisher, history.sent[publisher, number].topic
        if number < newest.get(line, -1):
            raise GateFailed(f"{name}: message {number} of {publisher} on {line[1]} came for the first time after {newest[line]}")
        newest[line] = number


def _require_stored_as_sent(name: str, arrivals: Sequence[Arrival], history: History) -> None:
    """At QoS 2 a message is one of the store; at QoS 1 what its publisher has sent again may be stored again."""
    stored: dict[tuple[str, int], set[str]] = defaultdict(set)
    for each in arrivals:
        stored[each.publisher, each.number].add(each.identity)
    for (publisher, number), under in stored.items():
        sent = history.sent[publisher, number]
        if len(under) > (sent.writings if sent.qos == 1 else 1):
            raise GateFailed(f"{name}: message {number} of {publisher} at QoS {sent.qos} is there as {sorted(under)}")
