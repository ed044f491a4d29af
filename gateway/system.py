"""`$SYS`: what the broker says of itself, under the names that mosquitto 2 uses, so that what reads those can read these.

Every gateway counts for itself and tells the one with the smallest name every sys_interval.  That one adds up, publishes what has
changed, live and at QoS 0, to whoever has subscribed anywhere, and gives the whole table to the others.  Each gateway keeps it and shows
it to a new subscription with RETAIN 1, as a retained message would be.  Nothing of it is stored.

    Counts of all -> the first gateway -> totals and loads -> messages to subscribers, SystemTable to the others

What only the store knows it asks of every shard, for the next time; it is told when all have answered once.

When the first gateway ends, the next one goes on with what the counters of all say then; those of a gateway that has gone are gone
with the first one that had heard of them.  docs/mqtt.md says which of mosquitto's names there are, and what each counts.

Always holds: while one gateway is the first, what only grows never falls.
"""

from __future__ import annotations

from math import exp
from typing import Final

from gateway.events import HoldingsQuery, ToPeer
from gateway.fanout import Fanout
from gateway.frames import HANDED_ON, Counts, SystemTable
from gateway.live import LiveSub, LiveTable
from gateway.peers import Peers
from gateway.sending import Sending
from gateway.state import State
from mqtt.encode import PublishTemplate
from mqtt.topics import matches
from shards.frames import HoldingsFound
from shards.persistence import NOT_STORED

SYSTEM: Final = b"$SYS/"
_BROKER: Final = b"$SYS/broker/"
_GAUGES: Final = ("clients/connected", "subscriptions/count", "shared_subscriptions/count")
_TOTALS: Final = (
    "messages/received", "messages/sent", "bytes/received", "bytes/sent", "publish/messages/received", "publish/messages/sent",
    "publish/messages/dropped", "publish/bytes/received", "publish/bytes/sent", "connections", "sockets",
)  # fmt: skip
"""In the order in which Counts has them, behind the gauges.  The last two are told as loads only."""
_LOADS: Final = {
    "messages/received": "messages/received", "messages/sent": "messages/sent", "publish/messages/dropped": "publish/dropped",
    "publish/messages/received": "publish/received", "publish/messages/sent": "publish/sent", "bytes/received": "bytes/received",
    "bytes/sent": "bytes/sent", "sockets": "sockets", "connections": "connections",
}  # fmt: skip
"""Name in _TOTALS -> name below `load`."""
_LOAD_ONLY: Final = frozenset(("connections", "sockets"))
_MINUTE_MS: Final = 60_000
_PERIODS: Final = (1, 5, 15)
"""Minutes over which a load is a moving mean."""


class SystemTopics:
    def __init__(self, name: str, state: State, table: LiveTable, peers: Peers, fanout: Fanout, sending: Sending) -> None:
        self._name = name
        self._state = state
        self._live = table
        self._peers = peers
        self._fanout = fanout
        self._send = sending.send
        self._table: dict[bytes, bytes] = {}
        """Topic -> body, as of the last time."""
        self._next_ms = 0
        self._of: dict[str, list[int]] = {}
        """What other gateways counted last, and what was added up of everybody."""
        self._added: dict[str, list[int]] = {}
        self._totals = [0] * len(_TOTALS)
        self._loads = {name: [0.0] * len(_PERIODS) for name in _LOADS}
        self._most = 0
        self._told_ms = 0
        self._since_ms: int | None = None
        self._held: dict[int, HoldingsFound] = {}
        """By shard, as told last."""
        self._expired = 0

    # ---------------------------------------------------------------- other gateways
    def received(self, link: int, frame: Counts | SystemTable) -> None:
        peer = self._peers.links.get(link)
        if peer is None:
            return
        if isinstance(frame, SystemTable):
            self._table = dict(zip(frame.topics, frame.bodies, strict=True))
        elif len(frame.values) == len(_GAUGES) + len(_TOTALS):
            # Of another number when the other gateway is of another version.
            self._of[peer.gateway] = frame.values

    # ---------------------------------------------------------------- shards
    def held(self, shard: int, found: HoldingsFound) -> None:
        """What a shard counts from its start begins anew when it does."""
        before = self._held.get(shard)
        known = before.expired if before is not None and before.expired <= found.expired else 0
        self._expired += found.expired - known
        self._held[shard] = found

    def _of_the_store(self, connected: int) -> dict[str, object]:
        if self._held.keys() != {*self._state.slots.shards}:
            return {}
        held = self._held.values()
        away, messages = sum(each.away for each in held), sum(each.messages for each in held)
        return {
            "clients/total": connected + away, "clients/disconnected": away, "clients/inactive": away, "clients/expired": self._expired,
            "messages/stored": messages, "store/messages/count": messages, "store/messages/bytes": sum(each.bytes for each in held),
            "retained messages/count": sum(each.retained for each in held),
        }  # fmt: skip

    # ---------------------------------------------------------------- a turn of the loop
    def turn(self, now_ms: int) -> None:
        interval_ms = self._state.options.sys_interval_ms
        if self._since_ms is None:
            self._since_ms = now_ms
        if not interval_ms or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + interval_ms
        counts = self._counts()
        first = min([(peer.gateway, link) for link, peer in self._peers.links.items() if link >= 0], default=None)
        if first is not None and first[0] < self._name:
            self._state.outbox.effects.append(ToPeer(first[1], Counts(counts)))
        else:
            self._publish(now_ms, counts)
            self._state.outbox.effects += [HoldingsQuery(shard) for shard in sorted(self._state.shards_linked)]

    def next_ms(self) -> int | None:
        """When it is time again; None: never."""
        return self._next_ms if self._state.options.sys_interval_ms else None

    def _counts(self) -> list[int]:
        state, counters = self._state, self._state.counters
        delivered = counters.live_delivered + counters.durable_delivered + counters.retained_delivered
        dropped = (
            counters.live_dropped_queue_full + counters.live_dropped_too_large + counters.live_dropped_expired + counters.live_dropped_slow
            + counters.durable_too_large + counters.durable_expired
        )  # fmt: skip
        return [
            len(state.by_conn), self._live.subscriptions, self._live.shared,
            counters.publishes_received + counters.others_received, delivered + state.outbox.others_sent,
            counters.bytes_received, state.outbox.bytes_sent, counters.publishes_received, delivered, dropped,
            counters.publish_bytes_received, counters.publish_bytes_sent, counters.connects_received, counters.connections_accepted,
        ]  # fmt: skip

    # ---------------------------------------------------------------- the first gateway
    def _publish(self, now_ms: int, own: list[int]) -> None:
        links = {link: peer.gateway for link, peer in self._peers.links.items() if link >= 0}
        there = {name: self._of[name] for name in links.values() if name in self._of} | {self._name: own}
        gauges = [sum(values[at] for values in there.values()) for at in range(len(_GAUGES))]
        self._add_up(there, now_ms)
        fresh = self._rows(gauges, now_ms)
        for topic, body in fresh.items():
            if self._table.get(topic) != body:
                self._fanout.hand_over(b"", HANDED_ON, (NOT_STORED,), (topic,), (body,))
        self._table = fresh
        for link in links:
            self._state.outbox.effects.append(ToPeer(link, SystemTable(list(fresh), list(fresh.values()))))

    def _add_up(self, there: dict[str, list[int]], now_ms: int) -> None:
        """What each has counted since it was heard last; of one that is new everything, which says nothing of the last minutes."""
        passed_ms = now_ms - self._told_ms if self._told_ms else 0
        recent = [0] * len(_TOTALS)
        for name, values in there.items():
            known = self._added.get(name)
            totals = values[len(_GAUGES) :]
            for at, value in enumerate(totals):
                grown = value - (known[at] if known is not None else 0)
                self._totals[at] += grown
                recent[at] += grown if known is not None else 0
        self._added = {name: values[len(_GAUGES) :] for name, values in there.items()}
        self._of = {name: values for name, values in there.items() if name != self._name}
        self._told_ms = now_ms
        if not passed_ms:
            return
        for name, loads in self._loads.items():
            rate = recent[_TOTALS.index(name)] * _MINUTE_MS / passed_ms
            for at, minutes in enumerate(_PERIODS):
                loads[at] = rate + exp(-passed_ms / (minutes * _MINUTE_MS)) * (loads[at] - rate)

    def _rows(self, gauges: list[int], now_ms: int) -> dict[bytes, bytes]:
        self._most = max(self._most, gauges[0])
        assert self._since_ms is not None
        rows: dict[str, object] = {
            "version": f"holdfast version {self._state.options.version}".rstrip(),
            "uptime": f"{(now_ms - self._since_ms) // 1000} seconds",
            "clients/maximum": self._most,
            "clients/active": gauges[0],
            **dict(zip(_GAUGES, gauges, strict=True)),
            **self._of_the_store(gauges[0]),
            **{name: total for name, total in zip(_TOTALS, self._totals, strict=True) if name not in _LOAD_ONLY},
        }
        for name, loads in self._loads.items():
            for minutes, load in zip(_PERIODS, loads, strict=True):
                rows[f"load/{_LOADS[name]}/{minutes}min"] = f"{load:.2f}"
        return {_BROKER + name.encode(): b"\0" + str(value).encode() for name, value in rows.items()}

    # ---------------------------------------------------------------- new subscriptions
    def welcome(self, sub: LiveSub) -> None:
        """What is known goes to a new subscription, as retained messages do."""
        if not sub.filter.startswith(SYSTEM[:-1]):
            return
        for topic, body in self._table.items():
            if matches(sub.filter, topic) and self._send(sub, 0, 1, PublishTemplate(topic, body), self._state.wall_ms):
                self._state.counters.retained_delivered += 1
