"""SUBSCRIBE and UNSUBSCRIBE, of ephemeral sessions (answered here) and of all others (answered by their session actor).

A SUBACK that brings new live interest waits until every linked gateway has confirmed that it knows, at most
`suback_wait_ms` (PROTOCOLS 9).  Retained messages of an ephemeral subscription follow its SUBACK.

Shared subscriptions ($share/name/filter) are for MQTT 3.1.1 too, as other brokers have it.

A filter that may not be used gets its own code in the SUBACK and does not harm the others in the packet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gateway.bridges import CARRIED, comes_as_bridge
from gateway.closing import Closing
from gateway.connection import Connection, Phase
from gateway.groups import is_shared
from gateway.live import LiveSub, LiveTable
from gateway.moving import HELD_MAX
from gateway.peers import Peer
from gateway.permitting import Permitting
from gateway.reasons import answer
from gateway.replay import KEPT_SINCE, NOTHING, NotUnderstood, Wanted, shown, wanted
from gateway.retained import Retained
from gateway.rights import may_replay, may_subscribe
from gateway.second import CLIENT_BYTES_MAX, Second, Seconds
from gateway.state import State
from gateway.wheel import Wheel
from mqtt.packets import MQTT_5, NO_PROPERTIES, Properties, Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from mqtt.reason import ProtocolError, ReasonCode
from mqtt.topics import parse_filter
from sessions.bodies import POSITIONS, UPGRADE_QOS
from sessions.frames import ROUTED, Attached, Subacked, Unsubacked
from sessions.frames import Subscribe as SubscribeFrame
from sessions.frames import Unsubscribe as UnsubscribeFrame

_FAILED = 0x80
_IF_NEW = 1


@dataclass(slots=True, eq=False)
class _Waiting:
    """A SUBACK on its way.  why: what people are told of a refusal, when the code says too little.  needs: link -> the Interest that
    link has to confirm."""

    connection: Connection
    packet: Suback
    retained: Sequence[LiveSub]
    durable: Sequence[LiveSub]
    why: str = ""
    needs: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A SUBSCRIBE at the session actor.  codes: those decided here; None where the session actor decides.  retained: what was made here,
    beside that, and wants its retained messages."""

    rows: list[tuple[bytes, int, int, int]]
    codes: list[ReasonCode | None]
    identifier: int
    wanted: Wanted = NOTHING
    retained: Sequence[LiveSub] = ()


class Subscribing:
    def __init__(
        self,
        state: State,
        table: LiveTable,
        retained: Retained,
        closing: Closing,
        permitting: Permitting,
        seconds: Seconds,
        welcome: Callable[[LiveSub], None],
    ) -> None:
        """welcome: gives what is known of `$SYS` to a new subscription."""
        self._welcome = welcome
        self._state = state
        self._table = table
        self._retained = retained
        self._closing = closing
        self._permitting = permitting
        self._seconds = seconds
        self._fresh: list[_Waiting] = []
        self._waiting: list[_Waiting] = []
        self._deadlines: Wheel[_Waiting] = Wheel()

    # ---------------------------------------------------------------- from the client
    def subscribe(self, connection: Connection, packet: Subscribe) -> None:
        if connection.moving:
            self._hold(connection, packet)
            return
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        try:
            asked = self._wanted(connection, packet)
        except NotUnderstood as error:
            refused = (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,) * len(packet.subscriptions)
            self._answer(connection, Suback(packet.packet_id, refused), why=str(error))
            return
        codes = self._refusals(connection, packet.subscriptions, asked.replay is not None)
        if codes is None:
            return
        if connection.durable:
            self._ask(connection, packet, codes, identifier, asked)
            return
        retained: list[LiveSub] = []
        elsewhere = connection.second.filters if connection.second is not None else ()
        for index, row in enumerate(packet.subscriptions):
            if codes[index] is None and asked is NOTHING and row.filter not in elsewhere:
                codes[index] = ReasonCode(row.qos)
                self._here(connection, row, identifier, retained)
        self._ask(connection, packet, codes, identifier, asked, retained)

    def _here(self, connection: Connection, row: Subscription, identifier: int, retained: list[LiveSub]) -> None:
        """A subscription of the ephemeral session; with it, what wants retained messages."""
        sub = LiveSub(connection, row.filter, row.qos, True, self._options(row), identifier)
        old = connection.subs.get(row.filter)
        self._table.subscribe(sub)
        self._permitting.subscribed(sub)
        # An earlier subscription to the filter that is still being given its retained messages hands that on.
        new = old is None or old.retain_topics is not None
        # A shared subscription brings no retained messages (MQTT 5, 4.8.2).
        if not is_shared(row.filter) and (row.retain_handling == 0 or (row.retain_handling == 1 and new)):
            retained.append(sub)

    def _hold(self, connection: Connection, packet: Subscribe | Unsubscribe) -> None:
        """Its session actor is another one, which does not know it yet: the packet is read again when it does."""
        if len(connection.held) < HELD_MAX:
            connection.held.append(packet)
        else:
            self._closing.close(connection, ReasonCode.SERVER_SHUTTING_DOWN, f"{HELD_MAX} packets wait for its session actor")

    def _ask_again(self, connection: Connection) -> None:
        """Its session actor is another one: it is asked what the last one has not answered, and goes on from what that has committed."""
        for packet_id, asked in list(connection.subscribing.items()):
            rows = [self._once_more(connection, row) for row in asked.rows]
            connection.subscribing[packet_id] = replace(asked, rows=rows)
            open_rows = [row for row, code in zip(rows, asked.codes, strict=True) if code is None]
            frame = SubscribeFrame(connection.conn, packet_id, open_rows, asked.identifier, asked.wanted.replay or ())
            self._state.outbox.to_session(connection.session, frame)
        for packet_id, filters in connection.unsubscribing.items():
            self._state.outbox.to_session(connection.session, UnsubscribeFrame(connection.conn, packet_id, filters))

    def _once_more(self, connection: Connection, row: tuple[bytes, int, int, int]) -> tuple[bytes, int, int, int]:
        """Retained messages that only a new subscription wants: to the client it is new, whether or not the last actor has made it."""
        filter, qos, options, handling = row
        return (filter, qos, options, 0 if handling == _IF_NEW and filter not in connection.subs else handling)

    def unsubscribe(self, connection: Connection, packet: Unsubscribe) -> None:
        if connection.moving:
            self._hold(connection, packet)
            return
        if connection.durable:
            if packet.packet_id in connection.unsubscribing:
                self._closing.violation(connection, f"packet id {packet.packet_id} is in use by another UNSUBSCRIBE")
                return
            frame = UnsubscribeFrame(connection.conn, packet.packet_id, list(packet.filters))
            connection.unsubscribing[packet.packet_id] = list(packet.filters)
            self._state.outbox.to_session(connection.session, frame)
            return
        second = connection.second
        elsewhere = [each for each in packet.filters if each in second.filters] if second is not None else []
        if second is not None and elsewhere:
            self._leave_second(connection, second, packet, elsewhere)
            return
        reasons = [self._leave_here(connection, filter) for filter in packet.filters]
        self._reply(connection, Unsuback(packet.packet_id, tuple(reasons)))

    def _leave_here(self, connection: Connection, topic_filter: bytes) -> ReasonCode:
        return ReasonCode.SUCCESS if self._table.unsubscribe(connection, topic_filter) else ReasonCode.NO_SUBSCRIPTION_EXISTED

    def _leave_second(self, connection: Connection, second: Second, packet: Unsubscribe, elsewhere: list[bytes]) -> None:
        if packet.packet_id in second.leaving:
            self._closing.violation(connection, f"packet id {packet.packet_id} is in use by another UNSUBSCRIBE")
            return
        for each in elsewhere:
            self._table.unsubscribe(connection, each)
            second.filters.pop(each, None)
        second.leaving[packet.packet_id] = [None if each in elsewhere else self._leave_here(connection, each) for each in packet.filters]
        self._seconds.ask(connection, UnsubscribeFrame(0, packet.packet_id, elsewhere))

    def _wanted(self, connection: Connection, packet: Subscribe) -> Wanted:
        """What it says about the past.  Raises NotUnderstood."""
        if not packet.properties.user_properties:
            return NOTHING
        asked = wanted(packet.properties.user_properties, self._state.wall_ms, max(self._state.slots.shards) + 1)
        if asked is not NOTHING:
            if any(is_shared(row.filter) for row in packet.subscriptions):
                raise NotUnderstood("a shared subscription has no replay")
            if connection.memory:
                raise NotUnderstood("this session is in memory, where there is no replay")
            if not connection.durable and len(connection.client) > CLIENT_BYTES_MAX:
                raise NotUnderstood("the client identifier is too long for a replay")
        return asked

    def _refusals(self, connection: Connection, rows: tuple[Subscription, ...], replays: bool) -> list[ReasonCode | None] | None:
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
                if profile is not None and not (may_subscribe(profile, row.filter) and (not replays or may_replay(profile, row.filter))):
                    self._permitting.refused(connection, row.filter)
                    code = ReasonCode.NOT_AUTHORIZED
                elif parsed.group is not None and not options.shared:
                    code = ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
                elif row.filter not in connection.subs:
                    count += 1
                    if count > options.subscriptions_max:
                        code = ReasonCode.QUOTA_EXCEEDED
            codes.append(code)
        return codes

    # ---------------------------------------------------------------- durable: the session actor answers
    def _ask(
        self, connection: Connection, packet: Subscribe, codes: list[ReasonCode | None], identifier: int, asked: Wanted,
        retained: Sequence[LiveSub] = (),
    ) -> None:  # fmt: skip
        more = (POSITIONS if asked.positions else 0) | (CARRIED if comes_as_bridge(connection) else 0)
        rows = [(row.filter, row.qos, self._options(row) | more, row.retain_handling) for row in packet.subscriptions]
        open_rows = [row for row, code in zip(rows, codes, strict=True) if code is None]
        if not open_rows:
            self._answer(connection, Suback(packet.packet_id, tuple([code for code in codes if code is not None])), retained)
            return
        if packet.packet_id in connection.subscribing:
            self._closing.violation(connection, f"packet id {packet.packet_id} is in use by another SUBSCRIBE")
            return
        connection.subscribing[packet.packet_id] = Asked(rows, codes, identifier, asked, retained)
        frame = SubscribeFrame(connection.conn, packet.packet_id, open_rows, identifier, asked.replay or ())
        if connection.durable:
            self._state.outbox.to_session(connection.session, frame)
        else:
            self._seconds.ask(connection, frame)

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
                if granted < _FAILED and asked.wanted.ends:
                    # History alone: nothing comes live.
                    self._table.unsubscribe(connection, filter)
                elif granted < _FAILED:
                    # What has a route keeps it as long as the connection lasts (sessions.subscriptions).
                    old = connection.subs.get(filter)
                    if not is_shared(filter) and (handling == 0 or (handling == 1 and old is None)):
                        durable.append(LiveSub(connection, filter, 0, True, options, asked.identifier))
                    routed = granted > 0 or self._state.options.store_qos0 or asked.wanted.replay is not None
                    routed = routed or (old is not None and not old.every)
                    self._live(connection, filter, routed, options, asked.identifier)
            reasons.append(code)
        properties = NO_PROPERTIES
        if frame.kept_since_ms and connection.problem:
            properties = Properties(user_properties=((KEPT_SINCE, shown(frame.kept_since_ms)),))
        self._answer(connection, Suback(frame.packet_id, tuple(reasons), properties), asked.retained, durable)

    def attached(self, connection: Connection, frame: Attached, moved: bool = False) -> None:
        """The subscriptions that the session had already.  moved: another session actor has had the connection."""
        if moved:
            self._ask_again(connection)
        for filter, granted, options, identifier in frame.subscriptions:
            self._live(connection, filter, granted > 0 or bool(options & ROUTED), options & ~ROUTED, identifier)

    def unsubacked(self, connection: Connection, frame: Unsubacked) -> None:
        second = connection.second
        if second is not None and frame.packet_id in second.leaving:
            theirs = iter(frame.codes)
            codes = [ReasonCode(next(theirs)) if code is None else code for code in second.leaving.pop(frame.packet_id)]
            self._reply(connection, Unsuback(frame.packet_id, tuple(codes)))
            return
        filters = connection.unsubscribing.pop(frame.packet_id, None)
        if filters is None:
            return
        reasons: list[ReasonCode] = []
        for filter, code in zip(filters, frame.codes, strict=True):
            if code < _FAILED:
                known = self._table.unsubscribe(connection, filter)
                connection.shared_elsewhere.pop(filter, None)
                if known and connection.handshakes is not None:
                    # A session actor that was lost may have removed it, and could not say so any more.
                    code = ReasonCode.SUCCESS
            reasons.append(ReasonCode(code))
        self._reply(connection, Unsuback(frame.packet_id, tuple(reasons)))

    def _live(self, connection: Connection, filter: bytes, routed: bool, options: int, identifier: int) -> None:
        """A durable subscription gets live what the store does not bring: everything if it has no route, else what is not stored
        (PROTOCOLS 8); a shared one has a route always.  A session in memory gets everything from its session actor."""
        if not connection.memory and not comes_as_bridge(connection):
            sub = LiveSub(connection, filter, 0, not routed and not is_shared(filter), options, identifier)
            self._table.subscribe(sub)
            self._permitting.subscribed(sub)
        if is_shared(filter):
            self._permitting.shared_elsewhere(connection, filter)

    # ---------------------------------------------------------------- SUBACK
    def _answer(
        self, connection: Connection, packet: Suback, retained: Sequence[LiveSub] = (), durable: Sequence[LiveSub] = (), why: str = ""
    ) -> None:  # fmt: skip
        """retained, durable: subscriptions to which retained messages go from here, and those whose session actor brings them."""
        self._fresh.append(_Waiting(connection, packet, retained, durable, why))

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
        if not self._reply(connection, waiting.packet, waiting.why):
            return
        for sub in (*waiting.retained, *waiting.durable):
            self._welcome(sub)
        for sub in waiting.retained:
            self._retained.begin(sub)

    def _reply(self, connection: Connection, packet: Suback | Unsuback, why: str = "") -> bool:
        """Send it.  A client that does not take so many codes in one packet cannot be told what it has: it is closed, and False."""
        data = answer(connection, packet, why)
        if not connection.fits(data) and packet.properties is not NO_PROPERTIES:
            data = answer(connection, replace(packet, properties=NO_PROPERTIES))
        if connection.fits(data):
            self._state.outbox.write(connection, data)
            return True
        detail = f"{type(packet).__name__} of {len(data)} bytes, at most {connection.packet_max}"
        self._closing.close(connection, ReasonCode.PACKET_TOO_LARGE, detail)  # [MQTT-3.1.2-24]
        return False

    def _options(self, row: Subscription) -> int:
        return row.no_local | row.retain_as_published << 1 | (UPGRADE_QOS if self._state.options.upgrade_qos else 0)
