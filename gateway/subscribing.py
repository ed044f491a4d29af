"""SUBSCRIBE and UNSUBSCRIBE, of ephemeral sessions (answered here) and of all others (answered by their session actor).

A SUBACK that brings new live interest waits until every linked gateway has confirmed that it knows, at most
`suback_wait_ms` (PROTOCOLS 9).  Retained messages of an ephemeral subscription follow its SUBACK.

Shared subscriptions ($share/name/filter) are for sessions that are not durable, of MQTT 3.1.1 too, as other brokers have it.

A filter that may not be used gets its own code in the SUBACK and does not harm the others in the packet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gateway.closing import Closing
from gateway.connection import Connection, Phase
from gateway.groups import is_shared
from gateway.live import LiveSub, LiveTable
from gateway.peers import Peer
from gateway.permitting import Permitting
from gateway.reasons import answer
from gateway.retained import Retained
from gateway.rights import may_subscribe
from gateway.state import State
from gateway.wheel import Wheel
from mqtt.packets import MQTT_5, Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from mqtt.reason import ProtocolError, ReasonCode
from mqtt.topics import parse_filter
from sessions.bodies import UPGRADE_QOS
from sessions.frames import ROUTED, Attached, Subacked, Unsubacked
from sessions.frames import Subscribe as SubscribeFrame
from sessions.frames import Unsubscribe as UnsubscribeFrame

_FAILED = 0x80


@dataclass(slots=True, eq=False)
class _Waiting:
    """A SUBACK on its way.  needs: link -> the Interest that link has to confirm."""

    connection: Connection
    packet: Suback
    retained: Sequence[LiveSub]
    durable: Sequence[LiveSub]
    needs: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A SUBSCRIBE at the session actor.  codes: those decided here; None where the session actor decides."""

    rows: list[tuple[bytes, int, int, int]]
    codes: list[ReasonCode | None]
    identifier: int


class Subscribing:
    def __init__(
        self,
        state: State,
        table: LiveTable,
        retained: Retained,
        closing: Closing,
        permitting: Permitting,
        welcome: Callable[[LiveSub], None],
    ) -> None:
        """welcome: gives what is known of `$SYS` to a new subscription."""
        self._welcome = welcome
        self._state = state
        self._table = table
        self._retained = retained
        self._closing = closing
        self._permitting = permitting
        self._fresh: list[_Waiting] = []
        self._waiting: list[_Waiting] = []
        self._deadlines: Wheel[_Waiting] = Wheel()

    # ---------------------------------------------------------------- from the client
    def subscribe(self, connection: Connection, packet: Subscribe) -> None:
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        codes = self._refusals(connection, packet.subscriptions)
        if codes is None:
            return
        if connection.durable:
            self._ask(connection, packet, codes, identifier)
            return
        reasons: list[ReasonCode] = []
        retained: list[LiveSub] = []
        for row, code in zip(packet.subscriptions, codes, strict=True):
            if code is None:
                code = ReasonCode(row.qos)
                sub = LiveSub(connection, row.filter, row.qos, True, self._options(row), identifier)
                old = connection.subs.get(row.filter)
                self._table.subscribe(sub)
                self._permitting.subscribed(sub)
                # An earlier subscription to the filter that is still being given its retained messages hands that on.
                new = old is None or old.retain_topics is not None
                # A shared subscription brings no retained messages (MQTT 5, 4.8.2).
                if not is_shared(row.filter) and (row.retain_handling == 0 or (row.retain_handling == 1 and new)):
                    retained.append(sub)
            reasons.append(code)
        self._answer(connection, Suback(packet.packet_id, tuple(reasons)), retained)

    def unsubscribe(self, connection: Connection, packet: Unsubscribe) -> None:
        if connection.durable:
            if packet.packet_id in connection.unsubscribing:
                self._closing.violation(connection, f"packet id {packet.packet_id} is in use by another UNSUBSCRIBE")
                return
            frame = UnsubscribeFrame(connection.conn, packet.packet_id, list(packet.filters))
            connection.unsubscribing[packet.packet_id] = list(packet.filters)
            self._state.outbox.to_session(connection.session, frame)
            return
        reasons = [
            ReasonCode.SUCCESS if self._table.unsubscribe(connection, filter) else ReasonCode.NO_SUBSCRIPTION_EXISTED
            for filter in packet.filters
        ]
        self._reply(connection, Unsuback(packet.packet_id, tuple(reasons)))

    def _refusals(self, connection: Connection, rows: tuple[Subscription, ...]) -> list[ReasonCode | None] | None:
        """Per filter the code that refuses it, or None; None for all when the connection was closed over it."""
        options = self._state.options
        count = len(connection.subs)
        codes: list[ReasonCode | None] = []
        for row in rows:
            code: ReasonCode | None = None
            try:
                parsed = parse_filter(row.filter, options.filter_levels_max)
            except ProtocolError as error:
                if connection.version != MQTT_5 and not is_shared(row.filter):
                    # 3.1.1 has wildcards in wrong places as a violation, not as a refusal [MQTT-4.7.1-2, -3].
                    # $share is no word of 3.1.1, so a wrong use of it is one.
                    self._closing.violation(connection, error.detail)
                    return None
                code = error.reason
            else:
                profile = connection.profile
                if profile is not None and not may_subscribe(profile, row.filter):
                    self._permitting.refused(connection, row.filter)
                    code = ReasonCode.NOT_AUTHORIZED
                elif parsed.group is not None and ((connection.durable and not connection.memory) or not options.shared):
                    code = ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
                elif row.filter not in connection.subs:
                    count += 1
                    if count > options.subscriptions_max:
                        code = ReasonCode.QUOTA_EXCEEDED
            codes.append(code)
        return codes

    # ---------------------------------------------------------------- durable: the session actor answers
    def _ask(self, connection: Connection, packet: Subscribe, codes: list[ReasonCode | None], identifier: int) -> None:
        rows = [(row.filter, row.qos, self._options(row), row.retain_handling) for row in packet.subscriptions]
        wanted = [row for row, code in zip(rows, codes, strict=True) if code is None]
        if not wanted:
            self._answer(connection, Suback(packet.packet_id, tuple([code for code in codes if code is not None])))
            return
        if packet.packet_id in connection.subscribing:
            self._closing.violation(connection, f"packet id {packet.packet_id} is in use by another SUBSCRIBE")
            return
        connection.subscribing[packet.packet_id] = Asked(rows, codes, identifier)
        self._state.outbox.to_session(connection.session, SubscribeFrame(connection.conn, packet.packet_id, wanted, identifier))

    def subacked(self, connection: Connection, frame: Subacked) -> None:
        asked = connection.subscribing.pop(frame.packet_id, None)
        if asked is None:
            return
        answers = iter(frame.codes)
        reasons: list[ReasonCode] = []
        durable: list[LiveSub] = []
        for (filter, _, options, handling), code in zip(asked.rows, asked.codes, strict=True):
            if code is None:
                granted = next(answers)
                code = ReasonCode(granted)
                if granted < _FAILED:
                    # What has a route keeps it as long as the connection lasts (sessions.subscriptions).
                    old = connection.subs.get(filter)
                    if handling == 0 or (handling == 1 and old is None):
                        durable.append(LiveSub(connection, filter, 0, True, options, asked.identifier))
                    routed = granted > 0 or self._state.options.store_qos0 or (old is not None and not old.every)
                    self._live(connection, filter, routed, options, asked.identifier)
            reasons.append(code)
        self._answer(connection, Suback(frame.packet_id, tuple(reasons)), durable=durable)

    def attached(self, connection: Connection, frame: Attached) -> None:
        """The subscriptions that the session had already."""
        for filter, granted, options, identifier in frame.subscriptions:
            self._live(connection, filter, granted > 0 or bool(options & ROUTED), options & ~ROUTED, identifier)

    def unsubacked(self, connection: Connection, frame: Unsubacked) -> None:
        filters = connection.unsubscribing.pop(frame.packet_id, None)
        if filters is None:
            return
        for filter, code in zip(filters, frame.codes, strict=True):
            if code < _FAILED:
                self._table.unsubscribe(connection, filter)
                connection.shared_in_memory.pop(filter, None)
        reasons = tuple([ReasonCode(code) for code in frame.codes])
        self._reply(connection, Unsuback(frame.packet_id, reasons))

    def _live(self, connection: Connection, filter: bytes, routed: bool, options: int, identifier: int) -> None:
        """A durable subscription gets live what the store does not bring: everything if it has no route, else what is not stored
        (PROTOCOLS 8).  A session in memory gets everything from its session actor."""
        if not connection.memory and not is_shared(filter):
            sub = LiveSub(connection, filter, 0, not routed, options, identifier)
            self._table.subscribe(sub)
            self._permitting.subscribed(sub)
        elif is_shared(filter):
            self._permitting.shared_in_memory(connection, filter)

    # ---------------------------------------------------------------- SUBACK
    def _answer(self, connection: Connection, packet: Suback, retained: Sequence[LiveSub] = (), durable: Sequence[LiveSub] = ()) -> None:
        """retained, durable: subscriptions to which retained messages go from here, and those whose session actor brings them."""
        self._fresh.append(_Waiting(connection, packet, retained, durable))

    def peers_changed(self, links: dict[int, Peer]) -> None:
        """Something was confirmed, or a gateway is gone: send the SUBACKs that waited for nothing else."""
        if self._waiting:
            self._waiting = [waiting for waiting in self._waiting if not self._confirmed(waiting, links)]

    def _confirmed(self, waiting: _Waiting, links: dict[int, Peer]) -> bool:
        if all(link not in links or links[link].seen >= number for link, number in waiting.needs.items()):
            self._send(waiting)
            return True
        return False

    def turn(self, now_ms: int, unconfirmed: dict[int, int]) -> None:
        """At the end of a turn, when the other gateways have been told: SUBACK, or wait for their answer."""
        for waiting in self._fresh:
            if not unconfirmed or min(waiting.packet.reasons) >= _FAILED:
                self._send(waiting)
                continue
            waiting.needs = unconfirmed
            self._waiting.append(waiting)
            self._deadlines.after(self._state.options.suback_wait_ms, waiting)
        self._fresh.clear()
        for late in self._deadlines.turn(now_ms):
            if late in self._waiting:
                self._waiting.remove(late)
                self._state.counters.subacks_unconfirmed += 1
                self._send(late)

    def next_ms(self) -> int | None:
        """When a SUBACK goes out unconfirmed, at the latest."""
        return self._deadlines.next_ms()

    def _send(self, waiting: _Waiting) -> None:
        connection = waiting.connection
        if connection.phase is not Phase.ONLINE:
            return
        if not self._reply(connection, waiting.packet):
            return
        for sub in (*waiting.retained, *waiting.durable):
            self._welcome(sub)
        for sub in waiting.retained:
            self._retained.begin(sub)

    def _reply(self, connection: Connection, packet: Suback | Unsuback) -> bool:
        """Send it.  A client that does not take so many codes in one packet cannot be told what it has: it is closed, and False."""
        data = answer(connection, packet)
        if connection.fits(data):
            self._state.outbox.write(connection, data)
            return True
        detail = f"{type(packet).__name__} of {len(data)} bytes, at most {connection.packet_max}"
        self._closing.close(connection, ReasonCode.PACKET_TOO_LARGE, detail)  # [MQTT-3.1.2-24]
        return False

    def _options(self, row: Subscription) -> int:
        return row.no_local | row.retain_as_published << 1 | (UPGRADE_QOS if self._state.options.upgrade_qos else 0)
