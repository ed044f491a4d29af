"""Lives a life: the three connections of one client, step by step, and what it saw.

The script waits for what the broker has to say at each step, so it is the same over a simulated network and a real one.  What
should have been seen is not known here; only a step that cannot be gone on from ends the life early (`Observed.stuck`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.broker import wire
from tests.broker.wire import Version
from tests.lives import packets
from tests.lives.connection import Connection, Port, Stuck
from tests.lives.packets import WillSent
from tests.lives.stage import Stage
from tests.lives.table import (
    DISCONNECTING,
    TAKEOVERS,
    WITH_WILL,
    Before,
    Ending,
    Expiry,
    Holds,
    Life,
    Stranger,
    When,
    Will,
    gap_s,
    said_s,
    third_gap_s,
    visit_s,
)

KEEP_ALIVE_S = 2
PAUSE_S = 0.1
BACKLOG = 12
TAKEN_AFTER = 4
"""Messages of a backlog that have arrived when the second connection comes."""
INCOMING_ID = 7
STRANGER = "stranger"
LEFT_S = 2.0
"""After a stranger was let in and has gone: until its home knows that for certain, and takes another one in."""
_AFTER_CLOSING_S = 10.0
UNACKED, UNRECEIVED, UNCOMPLETED = b"unacked", b"unreceived", b"uncompleted"
MISSED = ((b"missed one", 1), (b"missed two", 2))
AFTER, OLDER = b"after", b"older"
FIRST_WILL, SECOND_WILL, SAID = b"will of the first ", b"will of the second ", b"said "


@dataclass(slots=True)
class Observed:
    """Times are those of the port.  An end lies between ended_from_s and ended_to_s as far as the client can know."""

    stuck: str = ""
    first_present: bool = False
    farewell: int | None = None
    ended_from_s: float = 0.0
    ended_to_s: float = 0.0
    silent_s: float = 0.0
    """When the client of a lost keep alive was last heard."""
    second_s: float = 0.0
    accepted_s: float = 0.0
    present: bool = False
    told_expiry_s: int | None = None
    first_ids: dict[bytes, int] = field(default_factory=dict)
    """Under which packet identifier a message came on the first connection."""
    arrived: list[wire.Publish] = field(default_factory=list)
    """What came on the second connection, in order."""
    releases: list[int] = field(default_factory=list)
    incoming: list[int] = field(default_factory=list)
    """Reason codes of PUBREC, if the session went on, and PUBCOMP for the message that was not released."""
    stranger: wire.Connack | None = None
    """What somebody else was told."""
    third_present: bool = False
    third_arrived: list[wire.Publish] = field(default_factory=list)


class Player:
    """One life.  number: different for every life on a stage."""

    def __init__(self, life: Life, number: int, port: Port, stage: Stage) -> None:
        self.life = life
        self.number = number
        self.seen = Observed()
        self._port = port
        self._stage = stage
        self._bell = port.bell()
        self._name = f"{stage.prefix}-{life.kind.value}-{number}"
        self._inbox = f"{stage.prefix}/i/{number}"
        self._older_inbox = f"{stage.prefix}/o/{number}"
        self._first_at = 0 if life.ending is Ending.KILLED else number % 2
        self._second_at = 1 - self._first_at if life.elsewhere else self._first_at

    @property
    def key(self) -> bytes:
        """What its payloads end with."""
        return b"%d" % self.number

    async def play(self) -> None:
        try:
            await self._play()
        except Stuck as error:
            self.seen.stuck = str(error)

    async def _play(self) -> None:
        life, seen, port = self.life, self.seen, self._port
        if life.before is Before.OFFLINE:
            await self._make_offline_session()
        first = await self._begin_first()
        await self._fill(first)
        if life.stranger is Stranger.THERE:
            await self._visit()
        second = Connection(port, self._bell, life.second_version, answering=True)
        if life.ending in TAKEOVERS:
            await second.open(self._second_at)
        await self._end_first(first)
        if life.ending not in TAKEOVERS:
            if life.holds in (Holds.MISSED, Holds.ALL):
                for tag, qos in MISSED:
                    await self._publish(tag, qos)
            if life.stranger in (Stranger.AWAY, Stranger.EXPIRED):
                await port.passes(max(0.0, seen.ended_to_s + visit_s(life.expiry, life.ending, life.stranger) - port.now_s))
                await self._visit()
            gap = gap_s(life.expiry, life.ending, life.will, life.when)
            await port.passes(max(0.0, seen.ended_to_s + gap - port.now_s))
            await second.open(self._second_at)
        await self._live_second(second, first)
        await self._ask_third()
        if life.will is not Will.NONE:
            # A will that must not come must not come later either.
            await port.passes(max(0.0, seen.ended_to_s + life.will.value + 2.0 - port.now_s))

    async def _publish(self, tag: bytes, qos: int) -> None:
        await self._stage.publish(self._bell, self._inbox, tag, qos)

    # -------------------------------------------------------------------- the first connection

    async def _make_offline_session(self) -> None:
        """By a connection of any version, and with a backlog, when one is to be replayed."""
        version: Version = 5 if self.number % 3 else 4
        zero = Connection(self._port, self._bell, version)
        await zero.open(self._first_at)
        zero.send(packets.connect(version, self._name, version == 5, 0, Expiry.KEPT.value, None))
        await zero.accepted()
        await zero.subscribe(1, self._older_inbox, 1)
        if self.life.holds is Holds.BACKLOG:
            await zero.subscribe(2, self._inbox, 2)
        await self._leave(zero, version)
        if self.life.holds is Holds.BACKLOG:
            for n in range(BACKLOG):
                await self._publish(b"backlog %d" % n, 1 + n % 2)

    async def _begin_first(self) -> Connection:
        life = self.life
        first = Connection(self._port, self._bell, life.version)
        await first.open(self._first_at)
        keep_alive_s = KEEP_ALIVE_S if life.ending is Ending.KEEP_ALIVE else 0
        will = None
        if life.will is not Will.NONE:
            topic = f"{self._stage.prefix}/w/{self.number}"
            will = WillSent(topic, FIRST_WILL + self.key, life.will_qos, life.will_retain, life.will.value)
        # A full window stops a replay in its midst; without one it is taken over wherever it is.
        window = TAKEN_AFTER + 1 if life.ending is Ending.REPLAYING and self.number // 2 % 2 else 0
        first.send(packets.connect(life.version, self._name, life.clean, keep_alive_s, life.expiry.value, will, window))
        await first.accepted()
        assert first.connack is not None
        self.seen.first_present = first.connack.session_present
        return first

    async def _fill(self, first: Connection) -> None:
        """Give the session what it is to hold."""
        holds, version = self.life.holds, self.life.version
        if holds is Holds.BACKLOG:
            await first.must(lambda: len(first.publishes) >= TAKEN_AFTER, "backlog")
        elif holds not in (Holds.NOTHING, Holds.INCOMING):
            await first.subscribe(1, self._inbox, 2)
        if holds in (Holds.UNACKED, Holds.ALL):
            await self._deliver(first, UNACKED, 1)
        if holds in (Holds.UNRECEIVED, Holds.ALL):
            await self._deliver(first, UNRECEIVED, 2)
        if holds in (Holds.UNCOMPLETED, Holds.ALL):
            packet_id = await self._deliver(first, UNCOMPLETED, 2)
            first.send(wire.answer(wire.PUBREC, packet_id))
            await first.must(lambda: packet_id in first.releases, "PUBREL")
        if holds in (Holds.INCOMING, Holds.ALL):
            first.send(wire.publish(version, f"{self._stage.prefix}/s/{self.number}", SAID + self.key, 2, INCOMING_ID))
            await first.must(lambda: (wire.PUBREC, INCOMING_ID) in first.answers, "PUBREC")

    async def _deliver(self, first: Connection, tag: bytes, qos: int) -> int:
        await self._publish(tag, qos)
        await first.must(lambda: first.found(tag) is not None, f"{tag.decode()} message")
        found = first.found(tag)
        assert found is not None
        return found.packet_id

    async def _end_first(self, first: Connection) -> None:
        life, seen, port = self.life, self.seen, self._port
        version, ending = life.version, life.ending
        if ending in TAKEOVERS:
            return
        seen.silent_s = first.sent_s
        seen.ended_from_s = port.now_s
        if ending is Ending.KILLED:
            seen.ended_from_s = await port.killed(self._first_at)
        elif ending is Ending.CLOSED:
            first.leave()
        elif ending is Ending.PROTOCOL_ERROR:
            first.send(packets.connect(version, self._name, True, 0, 0, None))
        elif ending is not Ending.KEEP_ALIVE:
            first.send(self._farewell())
        if ending is not Ending.CLOSED:
            await self._ended(first)
        seen.ended_to_s = port.now_s
        if ending is Ending.KEEP_ALIVE:
            seen.ended_from_s = seen.silent_s + 1.5 * KEEP_ALIVE_S
        if ending is Ending.KILLED:
            seen.ended_to_s = seen.ended_from_s
        self._remember(first)
        # Until every part of the broker has noticed, a message may set out for the connection, and come again with DUP.
        await port.passes(PAUSE_S)

    def _farewell(self) -> bytes:
        code = packets.WITH_WILL if self.life.ending in WITH_WILL else packets.NORMAL
        return packets.disconnect(self.life.version, code, said_s(self.life.expiry, self.life.ending))

    async def _ended(self, connection: Connection) -> None:
        if not await self._bell.until(lambda: connection.closed, _AFTER_CLOSING_S):
            raise Stuck("the broker did not close the connection")
        connection.leave()

    def _remember(self, first: Connection) -> None:
        self.seen.farewell = first.farewell
        self.seen.first_ids = {each.publish.payload: each.publish.packet_id for each in first.publishes}

    # -------------------------------------------------------------------- somebody else

    async def _visit(self) -> None:
        """A CONNECT of another name.  Where it is let in it leaves nothing behind."""
        life = self.life
        self.seen.stranger = connack = await self._come_and_go(life.stranger_clean)
        if connack.code:
            return
        if life.stranger_version == 4 and not life.stranger_clean:
            await self._come_and_go(True)
        await self._port.passes(LEFT_S)

    async def _come_and_go(self, clean: bool) -> wire.Connack:
        version: Version = self.life.stranger_version
        stranger = Connection(self._port, self._bell, version)
        await stranger.open(1 - self._first_at if self.life.ending is Ending.KILLED else self._first_at)
        stranger.send(packets.connect(version, self._name, clean, 0, 0, None, user=STRANGER))
        await stranger.must(lambda: stranger.connack is not None, "CONNACK for a stranger")
        assert stranger.connack is not None
        if stranger.connack.code:
            await self._ended(stranger)
        else:
            await self._leave(stranger, version)
        return stranger.connack

    # -------------------------------------------------------------------- the second and the third

    async def _live_second(self, second: Connection, first: Connection) -> None:
        life, seen, port = self.life, self.seen, self._port
        version: Version = life.second_version
        will = WillSent(f"{self._stage.prefix}/w/{self.number}", SECOND_WILL + self.key, 1, False, 0)
        hello = packets.connect(version, self._name, life.second_clean, 0, life.second_expiry.value, will)
        # Who comes first must not always be the same one.
        if life.ending in DISCONNECTING and self.number % 4 < 2:
            first.send(self._farewell())
        seen.second_s = port.now_s
        second.send(hello)
        if life.ending in DISCONNECTING and self.number % 4 >= 2:
            first.send(self._farewell())
        await second.accepted()
        assert second.connack is not None
        seen.accepted_s = port.now_s
        seen.present, seen.told_expiry_s = second.connack.session_present, second.connack.expiry_s
        if life.ending in TAKEOVERS:
            seen.ended_from_s, seen.ended_to_s = seen.second_s, seen.accepted_s
            await self._ended(first)
            self._remember(first)
        elif life.ending is Ending.KILLED and life.when is When.AT_ONCE:
            seen.ended_to_s = seen.accepted_s
        if life.holds in (Holds.INCOMING, Holds.ALL):
            await self._release(second)
        if life.before is Before.OFFLINE:
            await self._stage.publish(self._bell, self._older_inbox, OLDER, 1)
        await self._publish(AFTER, 1)
        await port.passes(port.settle_s)
        seen.arrived, seen.releases = [each.publish for each in second.publishes], second.releases
        if second.closed:
            raise Stuck(f"the second connection was closed{second.last_word}")
        await self._leave(second, version)

    async def _release(self, second: Connection) -> None:
        """The incoming QoS 2 message: sent again if the session knows it, and released."""
        version = self.life.second_version
        if self.seen.present:
            second.send(wire.publish(version, f"{self._stage.prefix}/s/{self.number}", SAID + self.key, 2, INCOMING_ID, dup=True))
            await second.must(lambda: (wire.PUBREC, INCOMING_ID) in second.answers, "PUBREC")
            self.seen.incoming.append(second.answers[wire.PUBREC, INCOMING_ID])
        second.send(wire.answer(wire.PUBREL, INCOMING_ID))
        await second.must(lambda: (wire.PUBCOMP, INCOMING_ID) in second.answers, "PUBCOMP")
        self.seen.incoming.append(second.answers[wire.PUBCOMP, INCOMING_ID])

    async def _ask_third(self) -> None:
        life, seen, port = self.life, self.seen, self._port
        await port.passes(third_gap_s(life.second_expiry, life.third))
        third = Connection(port, self._bell, life.second_version, answering=True)
        await third.open(self._first_at)
        third.send(packets.connect(life.second_version, self._name, False, 0, 0, None))
        await third.accepted()
        assert third.connack is not None
        seen.third_present = third.connack.session_present
        await port.passes(PAUSE_S)
        seen.third_arrived = [each.publish for each in third.publishes]
        await self._leave(third, life.second_version)

    async def _leave(self, connection: Connection, version: Version) -> None:
        connection.send(packets.disconnect(version, packets.NORMAL, None))
        await self._ended(connection)
