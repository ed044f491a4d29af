"""What the rows of all disks must say when everything is at rest: nothing is left of what has ended, nothing is missing.

routes      in every shard exactly those of the subscriptions that sessions have, wherever these are at home
work        nothing is left to remove
retained    the value of a topic was not followed by another acknowledged one
"""

from __future__ import annotations

from collections.abc import Iterator

from mqtt.body import strip_properties
from mqtt.topics import is_shared, matched_filter
from shards.engine import HOME_FAMILY
from shards.messages import header
from shards.rows import GROUP, RETAINED, ROUTE, SESSION, SUBSCRIPTION, WORK, read_u64, split_client_key, successor, unpack_group, unpack_row
from tests.sim.disk import Disk
from tests.sim.ledger import Ledger, Message
from tests.sim.rules import Violation

_ROWS_MAX = 100_000


def check(disks: list[Disk], ledger: Ledger) -> None:
    _routes(disks)
    _retained(disks, ledger)


def _rows(disk: Disk, family: bytes) -> list[tuple[bytes, bytes]]:
    return disk.engine.scan(HOME_FAMILY, family, successor(family), _ROWS_MAX)


def _routes(disks: list[Disk]) -> None:
    wanted: dict[int, bytes] = {}
    declared = {int.from_bytes(key[1:], "big") for disk in disks for key, _ in _rows(disk, ROUTE)} & {
        unpack_group(value).id for disk in disks for _, value in _rows(disk, GROUP)
    }
    for disk in disks:
        sessions = [split_client_key(key)[0] for key, _ in _rows(disk, SESSION)]
        for key, value in _rows(disk, SUBSCRIPTION):
            client, suffix = split_client_key(key)
            topic_filter, qos, _, _, _, starts, *_ = unpack_row(value)
            if client not in sessions:
                raise Violation(f"rest: a subscription of {client.decode()} to {topic_filter.decode()} is left, and no session")
            if is_shared(topic_filter):
                wanted[read_u64(suffix)] = matched_filter(topic_filter)
            elif (qos or starts) and not is_shared(client):
                # A group has none of its own, unless it was declared: its members have.
                wanted[read_u64(suffix)] = topic_filter
            elif is_shared(client) and read_u64(suffix) in declared:
                wanted[read_u64(suffix)] = topic_filter
    for shard, disk in enumerate(disks):
        work = [split_client_key(key)[0].decode() for key, _ in _rows(disk, WORK)]
        if work:
            raise Violation(f"rest: routes of {work} are still to be removed")
        found = {int.from_bytes(key[1:], "big"): unpack_row(value)[0] for key, value in _rows(disk, ROUTE)}
        if found != wanted:
            missing = {number: name for number, name in wanted.items() if number not in found}
            left = {number: name for number, name in found.items() if number not in wanted}
            raise Violation(f"rest: shard {shard} has no route for {missing}, and nobody has subscribed to {left}")


def _retained(disks: list[Disk], ledger: Ledger) -> None:
    """One that was never acknowledged may have been applied at any time, also last."""
    found = {key[1:]: _payload(value) for disk in disks for key, value in _rows(disk, RETAINED)}
    for topic, messages in _published_retained(ledger):
        if any(message.expires for message in messages):
            continue
        acked = [message for message in messages if message.acked_us >= 0 and ledger.promised(message)]
        kept = ledger.messages.get(found.get(topic, b""))
        if kept is None:
            if acked:
                raise Violation(f"retained: nothing is kept at {topic.decode()}, where {acked[-1]} was acknowledged")
            continue
        newer = [message for message in acked if 0 <= kept.acked_us < message.sent_us]
        if newer and kept.qos:
            raise Violation(f"retained: {kept}, acknowledged at {kept.acked_us}, is kept, and {newer[-1]} came later")


def _published_retained(ledger: Ledger) -> Iterator[tuple[bytes, list[Message]]]:
    by_topic: dict[bytes, list[Message]] = {}
    for message in ledger.messages.values():
        if message.retain and message.sent_us >= 0:
            by_topic.setdefault(message.topic, []).append(message)
    yield from by_topic.items()


def _payload(value: bytes) -> bytes:
    return strip_properties(header(value)[4])
