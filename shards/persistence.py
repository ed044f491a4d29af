"""Which messages the store keeps for durable sessions: those of QoS 1 and 2, or of every QoS, and not those that a filter excludes.

A message that is excluded carries NOT_STORED in its flags from the gateway that took it on: through its home shard, which
keeps it for nobody, and to every gateway, which gives it at QoS 0 to durable sessions that are online, like a message of
QoS 0.  Wills enter in a shard and are marked there.

Always holds: whatever the flags of a message say, either the store brings it to durable sessions or they get it live, never
both: shards and gateways ask the same table.
"""

from __future__ import annotations

from dataclasses import dataclass

NOT_STORED = 0x10
"""In the flags of a message on its way (not of a stored one), above the four bits of the PUBLISH packet."""
PERSIST = 0x40
"""There too: its publisher wants it stored, whoever has subscribed.  What NOT_STORED, or its QoS, keeps out stays out."""


def stored_flags(store_qos0: bool) -> bytes:
    """By the flags of a message: 1 if the store brings it to durable sessions."""
    return bytes([not flags & NOT_STORED and (store_qos0 or flags & 6 != 0) for flags in range(256)])


@dataclass(frozen=True, slots=True)
class Persistence:
    """rules: topics that begin with one of some prefixes, and whether their messages are stored; the first that fits decides
    against them.  Then min_qos, except_prefixes and prefixes each may exclude a message; no prefixes: every topic."""

    min_qos: int = 0
    prefixes: tuple[bytes, ...] = ()
    except_prefixes: tuple[bytes, ...] = ()
    rules: tuple[tuple[tuple[bytes, ...], bool], ...] = ()

    def excludes(self, qos: int, topic: bytes) -> bool:
        if qos < self.min_qos:
            return True
        for prefixes, stored in self.rules:
            if topic.startswith(prefixes):
                if not stored:
                    return True
                break
        if self.except_prefixes and topic.startswith(self.except_prefixes):
            return True
        return bool(self.prefixes) and not topic.startswith(self.prefixes)
