"""Decoder and gateway core in one process, without a socket: cases as fast as the code allows, and a verdict on each.

Shards, session actors and whoever knows identities answer at once, with the models of tests.gateway.scripted.  Judged is what a client
sees, by `judged`, which judges a real broker too (tests.broker.fuzzing).
"""

from __future__ import annotations

from collections.abc import Iterator

from access.identity import Identity
from gateway.events import (
    AuthChallenged,
    Authenticate,
    Authenticated,
    AuthRefused,
    ContinueAuth,
    Event,
    ForgetAuth,
    FromSession,
    Malformed,
    Opened,
    Received,
    RetainedTold,
    SocketLost,
)
from gateway.options import Options
from gateway.transport.websocket import FrameReader, WebSocketError
from mqtt.decode import DecodeError, Decoder
from mqtt.encode import encode
from mqtt.packets import AckKind, AckRun, Disconnect, Item, Pingreq, PublishRun, Subscribe, Subscription
from sessions.frames import Attach, Attached, Subacked, Unsubacked
from sessions.frames import Frame as SessionFrame
from sessions.frames import Subscribe as SubscribeFrame
from sessions.frames import Unsubscribe as UnsubscribeFrame
from tests.fuzz.cases import Case, case
from tests.fuzz.frames import frame
from tests.fuzz.judge import Seen, Unjust, judged
from tests.gateway.scripted import Client, Shell, message
from tests.mqtt.generated import merged

PACKET_BYTES_MAX = 1 << 20
CONNECT_BYTES_MAX = 100_000
ECHO_EVERY = 50
CHECK_EVERY = 8
"""The core checks itself in one of so many cases: it costs as much as the case."""
SETTLED_WITHIN = 20
"""Rounds of answers after which nothing may be left to answer."""


class Hostile(Client):
    """A socket whose bytes nobody encodes."""

    def __init__(self, shell: Shell, socket: int) -> None:
        super().__init__(shell, socket, 5)
        self.decoder = Decoder(None, PACKET_BYTES_MAX, connect_bytes_max=CONNECT_BYTES_MAX)
        self.out = b""
        self.items: list[Item] = []
        self.failed: str | None = None
        self.frames: FrameReader | None = None
        """Over WebSocket."""
        self.broke = False
        """It has ended, or broken, what lies beneath MQTT."""

    def read(self, data: bytes) -> None:
        if self.broke:
            return  # The shell has closed it already, and writes nothing more.
        if self.closed is not None:
            raise Unjust(f"{data!r} written after the close")
        self.out += data

    def seen(self, pinged: bool) -> Seen:
        left = self.broke or any(isinstance(item, Disconnect) for item in self.items)
        return Seen(self.decoder.version, self.out, self.closed is not None, self.failed, self.decoder.held_bytes, pinged, left)

    def events(self, data: bytes) -> Iterator[Event]:
        """As the shell of a gateway makes them of bytes."""
        frames = self.frames
        if frames is None:
            yield from self._decoded(data)
            return
        try:
            yield from self._decoded(b"".join(frames.feed(data)))
        except WebSocketError as error:
            yield from self._decoded(b"".join(error.pieces))
            self.broke = True
        if self.broke or frames.closed:
            self.broke, self.closed = True, "WebSocket is over"
            yield SocketLost(self.socket, self.closed)

    def _decoded(self, data: bytes) -> Iterator[Event]:
        try:
            items = self.decoder.feed(data)
        except DecodeError as error:
            items, self.failed = error.items, error.detail
            yield from self._received(items)
            yield Malformed(self.socket, int(error.reason), error.detail, self.decoder.version or 0)
            return
        yield from self._received(items)

    def _received(self, items: list[Item]) -> Iterator[Event]:
        if items:
            self.items += items
            yield Received(self.socket, items)


class Inside:
    """One gateway, its honest clients, and whoever comes next."""

    def __init__(self) -> None:
        self.shell = Shell(Options(packet_bytes_max=PACKET_BYTES_MAX), n_shards=2)
        self._socket = 100
        self._echoes = 0
        self._honest = self.shell.online("honest", 5)
        self._honest.send(Subscribe(1, (Subscription(b"honest/echo", 1),)))
        self._settle()
        self._honest.take()

    def run(self, numbers: range) -> None:
        for number in numbers:
            self.one(case(number))
            if number % ECHO_EVERY == 0:
                self._echo()

    def one(self, given: Case) -> Seen:
        """Raises Unjust, or whatever the code raised; the case is named either way."""
        try:
            return self._one(given)
        except Exception as error:
            error.add_note(str(given))
            raise

    def _one(self, given: Case) -> Seen:
        shell = self.shell
        shell.checking = given.number % CHECK_EVERY == 0
        self._socket += 1
        hostile = Hostile(shell, self._socket)
        hostile.frames = FrameReader() if given.web else None
        shell.clients[hostile.socket] = hostile
        shell.turn(Opened(hostile.socket, "tcp", "peer"), after_ms=50)
        for piece in given.pieces:
            if hostile.closed is not None or hostile.failed is not None:
                break
            self._feed(hostile, piece)
        else:
            self._same_when_whole(given, hostile)
        self._settle()
        pinged = hostile.closed is None and not hostile.decoder.held_bytes and bool(hostile.out) and not given.spoiled
        if pinged:
            ping = encode(4, Pingreq())
            self._feed(hostile, frame(ping) if given.web else ping)
        seen = hostile.seen(pinged)
        judged(given, seen)
        self._forget(hostile)
        return seen

    def _feed(self, hostile: Hostile, data: bytes) -> None:
        events = list(hostile.events(data))
        if events:
            self.shell.turn(*events)
            self._settle()
            if hostile.paused and hostile.closed is None:
                raise Unjust("it is not read, and everything is answered")

    def _same_when_whole(self, given: Case, hostile: Hostile) -> None:
        """However the bytes were cut, the decoder made the same of them."""
        whole = Decoder(None, PACKET_BYTES_MAX, connect_bytes_max=CONNECT_BYTES_MAX)
        failed = None
        try:
            items = whole.feed(_unframed(b"".join(given.pieces)) if given.web else given.wire)
        except DecodeError as error:
            items, failed = error.items, error.detail
        if (merged(items), failed, whole.version) != (merged(hostile.items), hostile.failed, hostile.decoder.version):
            raise Unjust(f"whole {items} {failed}, in pieces {hostile.items} {hostile.failed}")

    def _settle(self) -> None:
        """Shards, session actors and retained pages answer until nobody is waited for."""
        shell = self.shell
        for _ in range(SETTLED_WITHIN):
            if not (shell.requests or shell.to_session or shell.queries or shell.asked):
                return
            if shell.requests:
                shell.answer()
            frames, shell.to_session = shell.to_session, []
            queries, shell.queries = shell.queries, []
            asked, shell.asked = shell.asked, []
            answers = [answer for session, frame in frames for answer in _of_session(session, frame)]
            shell.turn(
                *answers,
                *[verdict for each in asked for verdict in _of_desk(each)],
                *[RetainedTold(query.shard, query.id, [], b"") for query in queries],
            )
        raise Unjust("the gateway asks and asks")

    def _echo(self) -> None:
        self._echoes += 1
        text = b"%d" % self._echoes
        self._honest.send(message(b"honest/echo", text, 1, self._echoes % 65_535 + 1))
        self._settle()
        got = self._honest.take()
        if not any(isinstance(each, PublishRun) and each.bodies == [b"\0" + text] for each in got):
            raise Unjust(f"the honest client got {got}, wanted {text!r} back")
        for each in got:
            if isinstance(each, PublishRun):
                self._honest.send(AckRun(AckKind.PUBACK, each.packet_ids))

    def _forget(self, hostile: Hostile) -> None:
        shell = self.shell
        if hostile.closed is None:
            shell.turn(SocketLost(hostile.socket, "gone"))
            self._settle()
        del shell.clients[hostile.socket]
        shell.homes.ended.clear()
        shell.homes.stored.clear()
        left = shell.core.connections - 1
        if left:
            raise Unjust(f"{left} connections are left of one that is gone")


def _unframed(data: bytes) -> bytes:
    try:
        return b"".join(FrameReader().feed(data))
    except WebSocketError as error:
        return b"".join(error.pieces)


def _of_desk(effect: Authenticate | ContinueAuth | ForgetAuth) -> Iterator[Event]:
    """Some are let in, some are not, and who names a method is asked further."""
    match effect:
        case Authenticate(socket, attempt, login) if login.method is not None:
            yield AuthChallenged(socket, attempt, b"go on")
        case Authenticate(socket, attempt, login):
            user = login.user or ""
            if len(user) % 4 == 3:
                yield AuthRefused(socket, attempt, 0x86, "a name of so many letters")
            else:
                yield Authenticated(socket, attempt, Identity(user, "password"))
        case ContinueAuth(socket, attempt, data):
            yield Authenticated(socket, attempt, Identity("scram", "scram"), data)
        case _:
            pass


def _of_session(session: int, frame: SessionFrame) -> Iterator[Event]:
    match frame:
        case Attach():
            yield FromSession(session, Attached(frame.conn, 0, []))
        case SubscribeFrame():
            yield FromSession(session, Subacked(frame.conn, frame.packet_id, [qos for _, qos, *_ in frame.filters]))
        case UnsubscribeFrame():
            yield FromSession(session, Unsubacked(frame.conn, frame.packet_id, [0] * len(frame.filters)))
        case _:
            pass
