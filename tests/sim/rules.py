"""What the facts of the ledger must obey.  A broken rule raises Violation with the whole story in one sentence.

    committed first     PUBACK, PUBREC and a delivery to a durable session only after a sync covered the message
    nothing from nowhere  what is delivered was published, to a topic that the session has subscribed to, at no higher QoS
    FIFO                first deliveries per (publisher, topic, QoS) and subscription are in the order of the publisher
    no gap              when a message comes, every earlier one of its stream that is owed has come
    QoS 2 once          at most once per subscription, and to one member of a shared group; what came at a lower QoS first may
                        come once more when the subscription was raised meanwhile
    no local            a subscription with that option brings nothing of its own client
    QoS 0 once          likewise what was published at QoS 0, where it comes from the store
    excluded            what the persistence filter excludes comes to durable sessions at QoS 0, or not at all
    all of it           at the end nothing that is owed is missing

A durable subscription is owed a message of QoS 1 or 2 that was acknowledged, and that reached its shard after the SUBACK had
left: because its first PUBLISH was sent later, or because its shard wrote it later.  Order and gaps count only what was first
sent after the SUBACK, since a message that is sent again takes the place of its repetition.

A client of 3.1.1 with overlapping subscriptions cannot tell which one a message came for: there only count and
completeness are checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqtt.topics import matches
from shards.persistence import Persistence
from tests.sim.ledger import Ledger, Message, Subscription


class Violation(AssertionError):
    """A promise was broken."""


class Rules:
    def __init__(self, ledger: Ledger, persistence: Persistence | None = None, store_qos0: bool = False) -> None:
        self._ledger = ledger
        self.persistence = persistence
        self._store_qos0 = store_qos0
        self._gaps_checked: dict[tuple[Subscription, tuple[bytes, bytes, int]], int] = {}
        self.dropped: dict[int, int] = {}
        """shard -> everything before this position may be gone: its generation was dropped."""

    # ------------------------------------------------------------------ as it happens

    def acknowledged(self, message: Message, left_us: int) -> None:
        """PUBACK or PUBREC with success has reached the publisher."""
        # A delayed one was synced as a row of its home, long before it is written as a message.
        if message.payload in self._ledger.unsynced and message.delay_s < 0:
            raise Violation(f"committed first: {message} was acknowledged and no sync has covered it")
        if message.acked_us < 0:
            message.acked_us = left_us

    def delivered(self, client: bytes, identifier: int, payload: bytes, qos: int, retained: bool, durable: bool) -> None:
        """A PUBLISH that is not a repetition known by its packet id has reached a subscriber."""
        ledger = self._ledger
        message = ledger.messages.get(payload)
        if message is None or (message.sent_us < 0 and not message.will):
            raise Violation(f"nothing from nowhere: {client.decode()} got {payload!r}, which nobody has sent")
        excluded = self._excluded(message)
        if durable and (qos or (self._store_qos0 and not excluded)) and payload in ledger.unsynced:
            raise Violation(f"committed first: {message} was delivered to {client.decode()} and no sync has covered it")
        if identifier:
            subs = [sub for sub in ledger.by_identifier.get((client, identifier), ()) if matches(sub.topics, message.topic)]
        else:
            subs = ledger.matching(client, message)
        if not subs:
            raise Violation(f"nothing from nowhere: {client.decode()} got {message} for no subscription (identifier {identifier})")
        if durable and excluded and qos and not retained:
            raise Violation(f"excluded: {client.decode()} got {message} at QoS {qos}")
        if not (durable and excluded and not qos) and qos not in [min(message.qos, granted) for sub in subs for granted in sub.granted]:
            raise Violation(f"nothing from nowhere: {client.decode()} got {message} at QoS {qos} for {subs}")
        if retained:
            for sub in subs:
                if sub.as_published_once:
                    _got_weakly(sub, message)
            return
        if message.publisher == client and not any(sub.local for sub in subs):
            raise Violation(f"no local: {message} came back to its publisher for {subs}")
        if len(subs) > 1:
            self._one_of_several(client, subs, message, qos)
        else:
            self._of_one(subs[0], message, qos)

    def _one_of_several(self, client: bytes, subs: list[Subscription], message: Message, qos: int) -> None:
        if qos < 2:
            for sub in subs:
                _got_weakly(sub, message)
            return
        count = 1 if message in subs[0].weakly else subs[0].got.get(message, 0) + 1
        if count > len(subs):
            raise Violation(f"QoS 2 once: {message} came {count} times to {client.decode()} with {len(subs)} subscriptions")
        for sub in subs:
            sub.got[message] = count
            sub.weakly.discard(message)

    def _of_one(self, sub: Subscription, message: Message, qos: int) -> None:
        before = sub.got.get(message, 0)
        if sub.shared:
            # What a member leaves is handed on, and may come behind newer messages; at QoS 2 only what was not sent yet.
            sub.got[message] = before + 1
            if qos == 2 and not message.will and self._ledger.grouped.setdefault((sub.filter, message.payload), sub.client) != sub.client:
                raise Violation(f"QoS 2 once: {message} came to two members of {sub.filter.decode()}")
            # A will enters at every gateway: it may come twice while members come or go (gateway/sharing.py).
            if before == 0 or qos < 2 or message.will:
                return
        if qos == 2 and before and message not in sub.weakly:
            raise Violation(f"QoS 2 once: {message} came again for {sub}")
        if before and sub.durable and self._store_qos0 and not message.qos and not self._excluded(message):
            raise Violation(f"QoS 0 once: {message} came again for {sub}")
        _got_weakly(sub, message)
        sub.got[message] = before + 1
        if qos == 2:
            sub.weakly.discard(message)
        if before or sub.since_us < 0 or message.sent_us <= sub.since_us or message.expires:
            return
        if message.again and not (sub.durable and qos):
            # The first copy may have been dropped from a full queue, or lost with a connection at QoS 0; the second one is behind what came
            # meanwhile.
            return
        line = message.key, qos
        last = sub.last.get(line, 0)
        if message.number < last:
            raise Violation(f"FIFO: {message} came for {sub} after #{last} of its stream")
        sub.last[line] = message.number
        if sub.durable and qos and sub.uncertain_us < 0:
            self._no_gap(sub, message)

    def _no_gap(self, sub: Subscription, message: Message) -> None:
        checked = self._gaps_checked.get((sub, message.key), 0)
        for earlier in self._ledger.streams[message.key][checked : message.number - 1]:
            if earlier.sent_us > sub.since_us and earlier not in sub.got and self.owed(sub, earlier):
                raise Violation(f"no gap: {message} came for {sub}, and {earlier}, acknowledged at {earlier.acked_us}, did not")
        self._gaps_checked[sub, message.key] = message.number - 1

    def _excluded(self, message: Message) -> bool:
        return self.persistence is not None and self.persistence.excludes(message.qos, message.topic)

    # ------------------------------------------------------------------ at the end

    def owed(self, sub: Subscription, message: Message) -> bool:
        """Whether the session must have got this message, or get it yet."""
        if message.qos == 0 or message.acked_us < 0 or message.expires or sub.qos <= 0 or not sub.durable:
            return False
        if self._excluded(message) or not self._ledger.promised(message) or (sub.client, message.topic) in self._ledger.unreadable:
            return False
        if max(message.sent_us, message.written_us) <= sub.since_us:
            return False
        if 0 <= sub.uncertain_us <= message.acked_us:
            return False
        if sub.no_local_once and message.publisher == sub.client:
            return False
        if message.copies and all(position < self.dropped.get(shard, 0) for shard, position in message.copies):
            return False
        return matches(sub.topics, message.topic)

    def missing(self) -> Iterator[tuple[Subscription, Message]]:
        """What is owed to subscriptions that are open, and has not come.  To members of groups: tests.sim.sharing."""
        for subs in self._ledger.subscriptions.values():
            for sub in subs:
                if not sub.open or not sub.durable or sub.shared or sub.qos <= 0:
                    continue
                for key, stream in self._ledger.streams.items():
                    if key[2] and matches(sub.topics, key[1]):
                        for message in stream:
                            if message not in sub.got and self.owed(sub, message):
                                yield sub, message


def _got_weakly(sub: Subscription, message: Message) -> None:
    if message not in sub.got:
        sub.got[message] = 1
        sub.weakly.add(message)
