"""The gateway: connections from CONNECT to DISCONNECT, ephemeral sessions, and everything that is delivered live.

`GatewayCore.handle` takes one event and returns effects.  Most of what an event causes is returned by the next TickEnded:
there all that goes to one shard becomes one numbered request, all that goes to one connection one write.  The rules are in
the parts, one module each; here is who gets which event, and what a turn of the loop does in what order.

    connecting   CONNECT to CONNACK                  authenticating   who a client is
    closing      every end of a connection           fanout      a message to its live subscribers
    inbound      PUBLISH and PUBREL from clients     peers       other gateways
    subscribing  SUBSCRIBE, UNSUBSCRIBE              retained    retained messages of a new subscription
    live         the table of live subscriptions     egress      deliveries and acknowledgements of durable sessions
    groups       members of a shared group           ephemeral   the window of an ephemeral session
    sending      what leaves for one taker           sharing     a message to one member of each group
    permitting   what the rules in force mean for connections             pacing   how fast a client may publish
    asking       what rules leave to a plugin, and who waits for its word        inquiry  what people ask of connections

Always holds (see check): every connection is in the tables of its phase; a message of QoS 1 or 2 is acknowledged only by an
answer of its shard, or refused, or known before; nothing is written to a connection after its end.
"""

from __future__ import annotations

from random import Random
from typing import assert_never

from access.denials import Denial
from gateway.asker import Asker
from gateway.asking import Asking
from gateway.authenticating import Authenticating
from gateway.closing import Closing
from gateway.connecting import Connecting
from gateway.connection import Connection, Phase
from gateway.egress import Egress
from gateway.events import (
    AccessChanged,
    AuthChallenged,
    Authenticated,
    AuthRefused,
    Congested,
    Effect,
    Event,
    FromInquirer,
    FromPeer,
    FromSession,
    FromShard,
    HoldingsTold,
    IdentitiesRevoked,
    Malformed,
    Opened,
    PeerLinked,
    PeerLost,
    Received,
    Replied,
    RetainedTold,
    RightsForgotten,
    RightTold,
    SessionLinked,
    SessionLost,
    SettingsChanged,
    ShardLinked,
    ShardLost,
    SocketLost,
    Stopping,
    TickEnded,
    Wake,
)
from gateway.fanout import Fanout
from gateway.frames import Counts, Forward, Interest, InterestSeen, SystemTable
from gateway.inbound import Inbound
from gateway.inquiry import Inquiry
from gateway.live import LiveTable
from gateway.options import Counters, Options
from gateway.pacing import Pacing
from gateway.peers import Peers, session_link, to_link
from gateway.permitting import Permitting
from gateway.reasons import WORDS
from gateway.retained import Retained
from gateway.second import Seconds
from gateway.sending import Sending
from gateway.sharing import Sharing
from gateway.state import Deadline, State
from gateway.subscribing import Subscribing
from gateway.system import SystemTopics
from mqtt.encode import encode
from mqtt.packets import (
    MQTT_5,
    Ack,
    AckKind,
    AckRun,
    Auth,
    Connect,
    Disconnect,
    Item,
    Pingreq,
    Pingresp,
    Publish,
    PublishRun,
    Subscribe,
    Unsubscribe,
)
from mqtt.reason import ReasonCode
from sessions.frames import Attached, Deliver, SendPubrel, SessionClosed, Subacked, Unsubacked
from sessions.frames import Frame as SessionFrame
from shards.frames import (
    Check,
    Checked,
    Connected,
    Delay,
    Disconnected,
    Entry,
    Published,
    Release,
    Released,
    Reply,
    Superseded,
)
from shards.frames import Connect as ConnectEntry
from shards.frames import Publish as PublishEntry
from shards.slots import SlotTable

TURN_MS_MAX = 1_000
"""While there are connections the clock of the core is never older than this."""
_PINGRESP = encode(MQTT_5, Pingresp())


class GatewayCore:
    """One gateway.  n_sessions: the session of shard i is worked for by session actor i % n_sessions.  roams: as in State."""

    def __init__(self, name: str, slot_table: SlotTable, n_sessions: int, options: Options, rng: Random, roams: bool = False) -> None:
        self.name = name
        self._state = state = State(slot_table, n_sessions, options, rng, roams)
        self._table = LiveTable(options.cached_topics_max)
        self._closing = Closing(state, self._table)
        self._asking = Asking(state)
        self._sending = Sending(state, self._asking)
        self._sharing = Sharing(name, state, self._table, self._sending, lambda: self._peers.is_first(name))
        self._fanout = Fanout(state, self._table, self._sending, self._sharing)
        self._peers = Peers(state, self._table, self._fanout)
        self._retained = Retained(state, self._sending)
        self._permitting = Permitting(state, self._table, self._asking)
        self._authenticating = Authenticating(state, self._closing, self._permitting)
        self._connecting = Connecting(state, self._closing, self._authenticating, self._asking, self._peers.note_newest)
        self._inbound = Inbound(state, self._table, self._fanout, self._closing, self._peers.newest_of)
        self._system = SystemTopics(name, state, self._table, self._peers, self._fanout, self._sending)
        self._seconds = seconds = Seconds(state, self._closing)
        self._subscribing = Subscribing(state, self._table, self._retained, self._closing, self._permitting, seconds, self._system.welcome)
        self._egress = Egress(state, self._closing, self._asking, seconds)
        self._pacing = Pacing(state)
        self._inquiry = Inquiry(state, self._closing)
        self._timed = (state.wheel, self._connecting, self._authenticating, self._asking, self._subscribing, self._system)
        self._wake_at_ms = 0
        self.patient = False
        """What the last event has brought may wait a moment for company: nobody waits for it."""

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def sent(self) -> dict[str, int]:
        """What went to clients, beside what counters say of PUBLISH."""
        return {"bytes_sent": self._state.outbox.bytes_sent, "others_sent": self._state.outbox.others_sent}

    @property
    def connections(self) -> int:
        """Open connections; 0 after Stopping means that the clients are all gone."""
        return len(self._state.by_socket)

    def denied(self) -> list[Denial]:
        """What the rules have refused or suppressed, as far as the log is to hear of it now."""
        return self._state.denials.take(self._state.now_ms)

    def ready(self) -> bool:
        """Whether clients may be accepted: every linked gateway has said what it wants."""
        return self._peers.ready() and not self._state.stopping

    def settled(self) -> bool:
        """Whether every shard has answered everything: after Stopping, whether the process may end."""
        return not any(queue.pending or queue.unanswered for queue in self._state.outbox.shards.values())

    # ---------------------------------------------------------------- events
    def handle(self, event: Event) -> list[Effect]:
        """Take one event.  Only TickEnded returns effects; an event of a connection that is over means nothing."""
        state = self._state
        self.patient = False
        match event:
            case Received(socket, items):
                connection = state.by_socket.get(socket)
                if connection is not None:
                    self.patient = self._egress.may_wait(connection, items)
                    state.touch(connection)
                    self._received(connection, items)
            case FromSession(session, frame):
                self._from_session(session, frame)
            case Replied(shard, request, replies):
                for answered, entry, reply in state.outbox.replied(shard, request, replies):
                    self._replied(answered, entry, reply)
                self._inbound.shard_answered(state.outbox.shard(shard))
            case TickEnded(now_ms, wall_ms):
                return self._turn(now_ms, wall_ms)
            case Congested(socket, congested):
                connection = state.by_socket.get(socket)
                if connection is not None:
                    connection.congested = congested
                    self._egress.hold(connection)
            case FromPeer(link, frame):
                if isinstance(frame, Counts | SystemTable):
                    self._system.received(link, frame)
                else:
                    self._peers.received(link, frame)
                    if isinstance(frame, Forward):
                        self._connecting.heard_of(frame.publisher, frame.conn)
                    self._subscribing.peers_changed(self._peers.links)
            case Opened():
                self._connecting.opened(event)
            case Malformed(socket, code, detail, version):
                connection = state.by_socket.get(socket)
                if connection is not None:
                    self._closing.malformed(connection, ReasonCode(code), detail, version)
            case SocketLost(socket, why):
                connection = state.by_socket.get(socket)
                if connection is not None and not self._asking.keeps(connection, why):
                    self._closing.socket_lost(connection, why)
            case FromShard(_, frame):
                if isinstance(frame, Superseded):
                    for conn in self._seconds.superseded([conn for _, conn in frame.connections]):
                        self._connecting.superseded(conn)
                else:
                    self._fanout.entered_everywhere(frame)
            case RetainedTold(shard, query, values, next_after):
                self._retained.told(shard, query, values, next_after)
            case HoldingsTold(shard, found):
                self._system.held(shard, found)
            case ShardLinked(shard):
                self._shard_linked(shard)
            case ShardLost(shard):
                state.shards_linked.pop(shard, None)
            case SessionLinked(session):
                self._peers.linked(session_link(session), f"session-{session}")
                self._connecting.session_linked(session)
                self._seconds.session_linked(session)
            case SessionLost(session):
                self._peers.lost(session_link(session))
                self._connecting.session_lost(session)
                self._seconds.session_lost(session)
            case PeerLinked(link, gateway):
                self._peers.linked(link, gateway)
            case PeerLost(link):
                self._peers.lost(link)
                self._subscribing.peers_changed(self._peers.links)
            case FromInquirer(link, ask):
                self._inquiry.asked(link, ask)
            case Stopping():
                self._closing.stop()
            case SettingsChanged(options):
                before, state.options = state.options.rates, options
                self._pacing.changed(before)
            case AccessChanged(access):
                self._permitting.changed(access)
                self._renewed()
            case Authenticated():
                known = self._authenticating.authenticated(event)
                if known is not None:
                    self._connecting.go_home(known)
                self._renewed()
            case RightTold():
                asker = self._asking.told(event)
                if asker is not None and not event.answered and self._asking.has_no_word(asker):
                    self._closing.close(asker.connection, ReasonCode.SERVER_UNAVAILABLE, "nobody could say whether it may publish")
                elif asker is not None:
                    self._go_on(asker)
            case RightsForgotten():
                self._asking.forgotten()
            case AuthChallenged():
                self._authenticating.challenged(event)
            case AuthRefused():
                self._authenticating.refused(event)
            case IdentitiesRevoked():
                self._authenticating.revoked(event)
            case _ as never:
                assert_never(never)
        return []

    # ---------------------------------------------------------------- from clients
    def _received(self, connection: Connection, items: list[Item]) -> None:
        if connection.asker is not None and connection.phase is Phase.ONLINE:
            items = self._asking.ready(connection, items)
        for index, item in enumerate(items):
            if connection.phase is Phase.ONLINE:
                self._item(connection, item)
            elif connection.phase is Phase.CLOSED:
                return
            elif connection.phase is Phase.OPENED:
                if isinstance(item, Connect):
                    self._connecting.connect(connection, item)
                else:
                    self._closing.violation(connection, f"{type(item).__name__} before CONNECT")
            elif connection.phase is Phase.AUTHENTICATING and connection.auth_method is not None:
                self._authenticating.received(connection, item)
            else:
                self._connecting.hold(connection, items[index:])
                return
        if connection.pace is not None:
            self._pacing.took(connection, items)

    def _item(self, connection: Connection, item: Item) -> None:
        if isinstance(item, PublishRun):
            self._inbound.received_run(connection, item)
            return
        if isinstance(item, Publish):
            self._inbound.publish(connection, item)
            return
        counters = self._state.counters
        counters.others_received += 1
        match item:
            case AckRun(kind, packet_ids):
                counters.others_received += len(packet_ids) - 1
                if kind is AckKind.PUBREL:
                    self._inbound.release(connection, packet_ids)
                else:
                    self._egress.acknowledge(connection, kind, packet_ids)
            case Ack():
                if item.kind is AckKind.PUBREL:
                    self._inbound.release(connection, [item.packet_id])
                else:
                    self._egress.acknowledge_one(connection, item)
            case Pingreq():
                self._state.outbox.write(connection, _PINGRESP)
            case Subscribe():
                self._subscribing.subscribe(connection, item)
            case Unsubscribe():
                self._subscribing.unsubscribe(connection, item)
            case Disconnect():
                self._closing.disconnect(connection, item)
            case Auth():
                self._authenticating.auth(connection, item)
            case _:
                self._closing.violation(connection, f"{type(item).__name__} from a client")

    def _renewed(self) -> None:
        for asker in self._asking.renewed():
            self._go_on(asker)

    def _go_on(self, asker: Asker) -> None:
        """With all of a connection that needs no other word of a plugin than those that are there."""
        connection = asker.connection
        if asker.awaits_will is not None and asker.awaits_will not in asker.asked:
            self._connecting.look_at_will(connection)
        self._received(connection, self._asking.release(connection))
        if asker.awaits_refill is not None and asker.awaits_refill not in asker.asked:
            self._egress.refill(connection)
        if asker.awaits_out is not None and asker.awaits_out not in asker.asked:
            self._asking.drain(asker)
        if asker.lost is not None and asker.awaits_in is None and connection.phase is Phase.ONLINE:
            self._closing.socket_lost(connection, asker.lost)

    # ---------------------------------------------------------------- from shards
    def _replied(self, connection: Connection | None, entry: Entry, reply: Reply) -> None:
        if isinstance(reply, Checked):
            for conn in self._seconds.superseded(reply.stale):
                self._connecting.superseded(conn)
            return
        assert connection is not None, f"{type(reply).__name__} to an entry of no connection"
        match reply:
            case Published():
                if isinstance(entry, Delay):
                    self._inbound.delayed(connection, entry, reply)
                else:
                    assert isinstance(entry, PublishEntry)
                    self._inbound.published(connection, entry, reply)
            case Released():
                assert isinstance(entry, Release)
                self._inbound.released(connection, entry, reply)
            case Connected():
                if isinstance(entry, ConnectEntry) and self._seconds.connected(connection, entry, reply):
                    pass
                elif reply.refused:
                    code = ReasonCode(reply.refused)
                    self._closing.refuse(connection, code, WORDS.get(code, "refused by the home"))
                elif not reply.conn:
                    self._connecting.not_yet(connection, reply)
                elif self._connecting.connected(connection, reply):
                    self._online(connection)
            case Disconnected():
                pass
            case _:
                raise ValueError(f"{type(reply).__name__} in answer to {type(entry).__name__} of {connection}")
        if self._state.stopping:
            self._closing.stopped(connection)

    def _online(self, connection: Connection) -> None:
        self._pacing.begin(connection)
        self._received(connection, self._connecting.release_held(connection))

    def _shard_linked(self, shard: int) -> None:
        """After a break of the link: are the connections of this shard still the newest of their clients?  Those whose CONNECT
        has no answer yet ask when they have it, since it may be the answer from before the break."""
        state = self._state
        for connection in state.by_socket.values():
            if connection.phase is Phase.AT_HOME and connection.shard == shard:
                connection.relinked = True
        state.shards_linked[shard] = None
        self._retained.shard_linked(shard)
        rows = [(connection.client, conn) for conn, connection in state.by_conn.items() if connection.shard == shard]
        rows += self._seconds.shard_linked(shard)
        for start in range(0, len(rows), state.options.check_batch):
            state.outbox.entry(shard, None, Check(rows[start : start + state.options.check_batch]))

    # ---------------------------------------------------------------- from session actors
    def _from_session(self, session: int, frame: SessionFrame) -> None:
        if isinstance(frame, Deliver):
            self._egress.deliver(frame)
            return
        if isinstance(frame, Interest | InterestSeen | Forward):
            self._peers.received(session_link(session), frame)
            return
        second = self._state.seconds.get(frame.conn)
        connection = second.connection if second is not None else self._state.by_conn.get(frame.conn)
        if connection is None or (second or connection).session != session or (second and self._seconds.received(second, frame)):
            return
        match frame:
            case SendPubrel(_, packet_ids, found):
                self._egress.send_pubrel(connection, packet_ids, found)
            case Subacked():
                self._subscribing.subacked(connection, frame)
            case Unsubacked():
                self._subscribing.unsubacked(connection, frame)
            case Attached():
                moved = connection.moving
                if self._connecting.attached(connection, frame):
                    self._subscribing.attached(connection, frame, moved)
                    self._online(connection)
            case SessionClosed(_, code):
                self._connecting.session_closed(connection, ReasonCode(code))
            case _:
                raise ValueError(f"session actor {session} sent {type(frame).__name__}")

    # ---------------------------------------------------------------- a turn of the loop
    def _turn(self, now_ms: int, wall_ms: int) -> list[Effect]:
        state = self._state
        state.now_ms, state.wall_ms = now_ms, wall_ms
        for connection in state.touched:
            connection.heard_ms = now_ms
            connection.touched = False
        state.touched.clear()
        for deadline, socket in state.wheel.turn(now_ms):
            late = state.by_socket.get(socket)
            if late is None:
                continue
            if deadline is Deadline.HOME:
                self._connecting.ask_home_again(late)
            else:
                self._closing.late(late, deadline)
        self._connecting.turn(now_ms)
        self._pacing.turn(now_ms)
        self._asking.turn(now_ms)
        self._authenticating.turn(now_ms)
        self._permitting.turn()
        self._renewed()
        # Other gateways first, so that a SUBACK of this turn knows what it has to wait for.
        self._peers.tell()
        self._system.turn(now_ms)
        self._subscribing.turn(now_ms, self._peers.unconfirmed())
        self._retained.turn()
        if state.orphans:
            self._sharing.turn()
        state.outbox.effects += [to_link(link, frame) for link, frame in self._sending.forwards()]
        effects = state.outbox.turn(wall_ms)
        self._wake(now_ms, effects)
        return effects

    def _wake(self, now_ms: int, effects: list[Effect]) -> None:
        due_ms = now_ms - now_ms % TURN_MS_MAX + TURN_MS_MAX if self._state.by_socket else None
        for part in self._timed:
            part_ms = part.next_ms()
            if part_ms is not None and (due_ms is None or part_ms < due_ms):
                due_ms = part_ms
        if self._permitting.busy:
            due_ms = now_ms
        if due_ms is None:
            return
        at_ms = max(due_ms, now_ms + 1)
        if at_ms < self._wake_at_ms or self._wake_at_ms <= now_ms:
            self._wake_at_ms = at_ms
            effects.append(Wake(at_ms - now_ms))

    def check(self) -> None:
        self._state.check()
        self._connecting.check()
        self._table.check()
